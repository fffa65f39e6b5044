"""Differing rows of large results: found through Spark, and the same as those found here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from tests.queries.ends import End, both, details, one, run
from truecopy.queries.verdict import Match

ROWS = 6_000
FEW = 500
NUMBERS = {
    "duckdb": f"range(1, {ROWS + 1}) AS s(i)",
    "postgresql": f"generate_series(1, {ROWS}) AS s(i)",
    "mariadb": f"(SELECT seq AS i FROM seq_1_to_{ROWS}) AS s",
    "spark": f"(SELECT id AS i FROM range(1, {ROWS + 1})) AS s",
}
DOUBLE = {"mariadb": "DOUBLE", "spark": "DOUBLE"}
PAIRS = [
    ("postgresql", "mariadb"),
    ("duckdb", "postgresql"),
    ("mariadb", "spark"),
    ("duckdb", "duckdb"),
]


@pytest.fixture
def place(end: Callable[[str], End], tmp_path: Path) -> Callable[[str], End]:
    """An end by its engine, Spark with a table of its own among them."""
    (tmp_path / "parquet").mkdir()
    duckdb.execute(f"COPY (SELECT 1 AS a) TO '{tmp_path / 'parquet' / 'p.parquet'}'")
    spark = End(f"spark:///{tmp_path / 'parquet'}", None)
    return lambda engine: spark if engine == "spark" else end(engine)


def query(engine: str, value: str) -> str:
    """All numbers, with a float that is the number itself or something else."""
    value = value.format(double=DOUBLE.get(engine, "DOUBLE PRECISION"))
    return f"SELECT i AS id, 'x' AS t, {value} AS f FROM {NUMBERS[engine]}"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("control", "test"), PAIRS)
def test_one_row_among_many_that_are_only_near(
    control: str, test: str, place: Callable[[str], End]
) -> None:
    """Every row differs in its last bits, so that each bucket does; few of them tell nothing."""
    right = query(control, "CAST(i AS {double})")
    wrong = query(test, "CASE i WHEN 4501 THEN 5001 ELSE i END * CAST('1.000000001' AS {double})")
    found = one(place(control), place(test), right, wrong, driver_rows=FEW, reruns=0, retries=0)
    assert found.match is Match.ROW_MISMATCH, found.detail
    assert [(row["kind"], row["key"], row["control"]) for row in found.differences] == [
        ("differs", {"id": "4501"}, {"f": "4501"})
    ]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("few", [FEW, ROWS])
def test_rows_without_a_key_are_counted(few: int, duckdb_end: End, postgres_end: End) -> None:
    """All rows are the same, so that all are in one bucket, and only a number of them is missing."""
    right = f"SELECT 'x' AS t FROM range({ROWS})"
    wrong = f"SELECT 'x' AS t FROM generate_series(1, {ROWS - 3})"
    found = one(duckdb_end, postgres_end, right, wrong, driver_rows=few, reruns=0)
    assert found.differences == ({"kind": "missing", "key": {}, "control": {"t": "x"}},) * 3


@pytest.mark.usefixtures("spark")
def test_spark_finds_no_more_than_is_asked_for(duckdb_end: End, postgres_end: End) -> None:
    right = f"SELECT i AS id, i AS v FROM {NUMBERS['duckdb']}"
    wrong = f"SELECT i AS id, i + 1 AS v FROM {NUMBERS['postgresql']}"
    results = run(
        duckdb_end, postgres_end, both("q", right, wrong), driver_rows=10, sample=7, reruns=0
    )
    assert len(results[0].differences) == 7, details(results)
    assert all(
        int(row["test"]["v"]) == int(row["control"]["v"]) + 1 for row in results[0].differences
    )
