"""JSON is compared by meaning, however an engine prints it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.queries.ends import End, both, details, one, run, wrong_columns
from truecopy.queries.query import Query, SideQuery
from truecopy.queries.result import Status
from truecopy.queries.suite import fill_bank, run_queries
from truecopy.queries.verdict import Match

PRINTED = ('{"b": 1.50, "a": [1, 2.0], "c": null}', '{"a":[1,2],"c":null,"b":1.5}')
JSON = {
    "duckdb": "CAST('{}' AS JSON)",
    "postgresql": "CAST('{}' AS JSONB)",
    "mariadb": "CAST('{}' AS CHAR(200))",
    "sqlite": "'{}'",
}


def rows(engine: str, *documents: str) -> str:
    """A query that gives documents by number."""
    return " UNION ALL ".join(
        f"SELECT {i} AS id, {JSON[engine].format(text)} AS j" for i, text in enumerate(documents)
    )


@pytest.mark.parametrize(
    ("control", "test"),
    [
        ("duckdb", "duckdb"),
        ("duckdb", "postgresql"),
        ("postgresql", "mariadb"),
        ("mariadb", "duckdb"),
        ("postgresql", "sqlite"),
    ],
)
def test_documents_are_compared_by_meaning(
    control: str, test: str, end: Callable[[str], End]
) -> None:
    first, second = PRINTED
    right = rows(control, first, '{"x": 1}')
    results = run(
        end(control),
        end(test),
        both("alike", right, rows(test, second, '{"x":1}')),
        both("value", right, rows(test, second, '{"x":2}')),
        both("swapped", right, rows(test, '{"x":1}', second)),
        both("number for text", right, rows(test, second, '{"x":"1"}')),
        reruns=0,
    )
    assert [(r.status, r.match) for r in results] == [
        (Status.SUCCEEDED, Match.MATCH),
        (Status.FAILED, Match.COLUMN_MISMATCH),
        (Status.FAILED, Match.ROW_MISMATCH),
        (Status.FAILED, Match.COLUMN_MISMATCH),
    ], details(results)
    assert wrong_columns(results[1]) == ["j"]
    assert results[1].differences == (
        {
            "kind": "differs",
            "key": {"id": "1"},
            "columns": ["j"],
            "control": {"j": '{"x":1}'},
            "test": {"j": '{"x":2}'},
        },
    )


def test_floats_beside_documents_that_are_printed_otherwise(
    duckdb_end: End, postgres_end: End
) -> None:
    """Rows are told apart without their documents, so a float that moved is still seen."""
    right = "SELECT 1 AS id, CAST('{\"a\": 1}' AS JSON) AS j, CAST(1 AS DOUBLE PRECISION) AS f"
    right += right.replace("SELECT 1", " UNION ALL SELECT 2").replace("CAST(1 AS", "CAST(2 AS")
    moved = right.replace("CAST(1 AS", "CAST(9 AS").replace("CAST(2 AS", "CAST(1 AS")
    moved = moved.replace("CAST(9 AS", "CAST(2 AS").replace('"a": 1', '"a":1')
    found = one(duckdb_end, postgres_end, right, moved, reruns=0)
    assert (found.match, wrong_columns(found)) == (Match.ROW_MISMATCH, ["f"])


def test_documents_inside_nested_values_say_that_they_are_compared_as_printed(
    duckdb_end: End,
) -> None:
    right, wrong = (f"SELECT [CAST('{text}' AS JSON)] AS a" for text in PRINTED)
    found = one(duckdb_end, duckdb_end, right, wrong, reruns=0)
    said = "a: documents inside a nested value are compared as they are printed"
    assert (found.match, found.detail.partition(" (")[0]) == (Match.COLUMN_MISMATCH, said)


def test_documents_of_a_bank(duckdb_end: End, postgres_end: End, tmp_path: Path) -> None:
    bank = tmp_path / "b"
    first, second = PRINTED
    query = Query("s", "q", SideQuery(rows("duckdb", first)), SideQuery(rows("postgresql", second)))
    ((_, line, _),) = list(fill_bank([query], duckdb_end.url))
    bank.write_text(json.dumps(line) + "\n")
    (same,) = run_queries([query], duckdb_end.url, postgres_end.url, bank=str(bank)).results
    assert (same.status, same.detail) == (Status.SUCCEEDED, "")
    other = Query("s", "q", query.control, SideQuery(rows("postgresql", '{"a":1}')))
    (wrong,) = run_queries([other], duckdb_end.url, postgres_end.url, bank=str(bank)).results
    assert wrong_columns(wrong) == ["j"]
