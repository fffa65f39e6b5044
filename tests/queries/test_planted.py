"""Planted differences are found, and what only looks like one is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.queries.ends import End, both, one, run, wrong_columns
from tests.queries.planted import NESTED, ORDINARY, Planted
from truecopy.queries.result import QueryResult, Status
from truecopy.queries.verdict import Match


def _found(control: End, test: End, planted: list[Planted]) -> dict[str, QueryResult]:
    groups = {(p.ordered, p.margin) for p in planted}
    results = {}
    for ordered, margin in groups:
        chosen = [p for p in planted if (p.ordered, p.margin) == (ordered, margin)]
        queries = [both(p.name, p.right, p.wrong) for p in chosen]
        for result in run(control, test, *queries, ordered_arrays=ordered, relative_margin=margin):
            results[result.name] = result
    return results


def _check(planted: list[Planted], results: dict[str, QueryResult]) -> None:
    seen = {name: (r.status, r.match) for name, r in results.items()}
    assert seen == {p.name: (Status.FAILED, p.match) for p in planted}, {
        name: r.detail for name, r in results.items()
    }
    for p in planted:
        if p.columns:
            assert set(wrong_columns(results[p.name])) == set(p.columns), p.name


def test_there_are_forty_of_them() -> None:
    assert len(ORDINARY) + len(NESTED) >= 40


@pytest.mark.parametrize("test", ["duckdb", "postgresql", "mariadb"])
def test_planted_differences_are_found(test: str, end: Callable[[str], End]) -> None:
    planted = ORDINARY
    if test == "mariadb":  # which has another word for it
        planted = [
            replace(p, wrong=p.wrong.replace("DOUBLE PRECISION", "DOUBLE")) for p in ORDINARY
        ]
    _check(planted, _found(end("duckdb"), end(test), planted))


def test_planted_differences_of_nested_values_are_found(duckdb_end: End) -> None:
    _check(NESTED, _found(duckdb_end, duckdb_end, NESTED))


ALIKE = [
    ("elements in another order", "SELECT [1, 2, 3] AS a", "SELECT [3, 1, 2] AS a"),
    (
        "entries in another order",
        "SELECT MAP {'k': 1, 'l': 2} AS a",
        "SELECT MAP {'l': 2, 'k': 1} AS a",
    ),
    ("one ulp", "SELECT 1.0::DOUBLE AS a", "SELECT 1.0000000000000002::DOUBLE AS a"),
    ("sums near zero", "SELECT 1e-13::DOUBLE AS a", "SELECT -1e-13::DOUBLE AS a"),
    (
        "sums that cancel out",
        "SELECT unnest([1e8, -1e8, 1e-9])::DOUBLE AS a",
        "SELECT unnest([1e8, -1e8, 2e-9])::DOUBLE AS a",
    ),
    ("floats of a list", "SELECT [0.1::DOUBLE + 0.2, 1] AS a", "SELECT [0.3::DOUBLE, 1] AS a"),
    ("rows in another order", "SELECT unnest([1, 2]) AS a", "SELECT unnest([2, 1]) AS a"),
    ("minus zero", "SELECT 0.0::DOUBLE AS a", "SELECT -0.0::DOUBLE AS a"),
]


def test_what_only_looks_like_a_difference_is_none(duckdb_end: End) -> None:
    results = run(duckdb_end, duckdb_end, *(both(n, a, b) for n, a, b in ALIKE))
    assert {r.name: (r.status, r.detail) for r in results if r.status is not Status.SUCCEEDED} == {}


def test_floats_within_the_margin_are_told_from_exact_ones(duckdb_end: End) -> None:
    same = one(duckdb_end, duckdb_end, "SELECT 1.0::DOUBLE AS a")
    near = one(
        duckdb_end, duckdb_end, "SELECT 1.0::DOUBLE AS a", "SELECT 1.0000000000000002::DOUBLE AS a"
    )
    assert (same.match, same.exact) == (Match.MATCH, True)
    assert (near.match, near.exact) == (Match.MATCH, False)


def test_a_schema_mismatch_says_what(duckdb_end: End) -> None:
    wider = one(duckdb_end, duckdb_end, "SELECT 1::INTEGER AS agg", "SELECT 1::BIGINT AS agg")
    assert wider.detail == "agg: INTEGER → BIGINT"
    assert wider.determinism is None
    gone = one(duckdb_end, duckdb_end, "SELECT 1 AS x, 2 AS y", "SELECT 2 AS y")
    assert gone.detail == "only in control: x INTEGER"
    turned = one(duckdb_end, duckdb_end, "SELECT 1 AS x, 2 AS y", "SELECT 2 AS y, 1 AS x")
    assert turned.detail == "order differs: x, y → y, x"


def test_differing_rows_are_shown(duckdb_end: End, postgres_end: End) -> None:
    found = one(
        duckdb_end,
        postgres_end,
        "SELECT id, name, f FROM t",
        "SELECT id, CASE id WHEN 2 THEN 'eve' ELSE name END AS name, f FROM t",
    )
    assert found.differences == (
        {
            "kind": "differs",
            "key": {"id": "2"},
            "columns": ["name"],
            "control": {"name": "bob"},
            "test": {"name": "eve"},
        },
    )
    lost = one(duckdb_end, postgres_end, "SELECT id, f FROM t", "SELECT id, f FROM t WHERE id <> 2")
    assert lost.differences == (
        {"kind": "missing", "key": {"id": "2"}, "control": {"id": "2", "f": "2.5"}},
    )
    keyless = one(
        duckdb_end, postgres_end, "SELECT 1 AS a FROM t", "SELECT 1 AS a FROM t WHERE id > 1"
    )
    assert [row["kind"] for row in keyless.differences] == ["missing"]


def test_a_key_that_is_given_pairs_rows(duckdb_end: End) -> None:
    right = "SELECT id % 2 AS g, id, f FROM t"
    wrong = "SELECT id % 2 AS g, id, CASE id WHEN 3 THEN 9 ELSE f END AS f FROM t"
    (found,) = run(duckdb_end, duckdb_end, both("q", right, wrong, key=("g", "id")))
    assert [row["key"] for row in found.differences] == [{"g": "1", "id": "3"}]


def test_differences_in_a_large_result_are_found_by_buckets(
    duckdb_end: End, postgres_end: End
) -> None:
    right = "SELECT i AS id, i * 7 AS v FROM generate_series(1, 200000) AS s(i)"
    wrong = "SELECT i AS id, CASE i WHEN 123456 THEN 0 ELSE i * 7 END AS v FROM generate_series(1, 200000) AS s(i)"
    found = one(duckdb_end, postgres_end, right, wrong)
    assert [(row["key"], row["test"]) for row in found.differences] == [
        ({"id": "123456"}, {"v": "0"})
    ]
