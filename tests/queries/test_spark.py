"""Spark as an end: the session of the process, and a server by Spark Connect."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.queries.connect import connect_server
from tests.queries.ends import End, both, details, run
from truecopy.queries.result import Status
from truecopy.queries.verdict import Match

AGREEING = [
    both("all", "SELECT * FROM t"),
    both("unnamed", "SELECT COUNT(*), MAX(id), NULL FROM t"),
    both("floats", "SELECT id % 2 AS g, SUM(f) AS s, AVG(amount) AS a FROM t GROUP BY id % 2"),
    both("insert", "INSERT INTO t SELECT * FROM t"),
    both("array", "SELECT id, [name, 'x'] AS a FROM t", "SELECT id, array('x', name) AS a FROM t"),
    both(
        "map",
        "SELECT id, MAP {'k': id, 'l': 2} AS m FROM t",
        "SELECT id, map('l', 2, 'k', id) AS m FROM t",
    ),
    both(
        "struct",
        "SELECT id, {'x': name, 'y': f} AS s FROM t",
        "SELECT id, named_struct('x', name, 'y', f) AS s FROM t",
    ),
    both(
        "time",
        "SELECT TIMESTAMPTZ '2024-06-01 12:00:00+02' AS z, TIMESTAMP '2024-06-01 12:00:00.5' AS n",
        "SELECT TIMESTAMP '2024-06-01 10:00:00 UTC' AS z, TIMESTAMP_NTZ '2024-06-01 12:00:00.5' AS n",
    ),
    both("view", "CREATE VIEW v AS SELECT id, name FROM t"),
]
DIFFERING = [
    both("array", "SELECT id, [name, 'x'] AS a FROM t", "SELECT id, array('y', name) AS a FROM t"),
    both("map", "SELECT MAP {'k': 1, 'l': 2} AS m", "SELECT map('k', 2, 'l', 1) AS m"),
    both("field", "SELECT {'x': 1.5::DOUBLE} AS s", "SELECT named_struct('x', 1.6D) AS s"),
    both(
        "swapped", "SELECT id, f FROM t WHERE id < 3", "SELECT id, 4 - f AS f FROM t WHERE id < 3"
    ),
    both(
        "zone",
        "SELECT TIMESTAMPTZ '2024-06-01 12:00:00+02' AS z",
        "SELECT TIMESTAMP '2024-06-01 12:00:00 UTC' AS z",
    ),
]


@pytest.fixture
def parquet(duckdb_end: End, tmp_path: Path) -> Path:
    """The table `t` as Parquet."""
    folder = tmp_path / "parquet"
    folder.mkdir()
    with duckdb.connect(duckdb_end.url.removeprefix("duckdb:///")) as connection:
        connection.execute(f"COPY t TO '{folder / 't.parquet'}'")
    return folder


def _check(duckdb_end: End, spark: End) -> None:
    results = run(duckdb_end, spark, *AGREEING, reruns=0)
    assert details([r for r in results if r.status is not Status.SUCCEEDED]) == []
    found = run(duckdb_end, spark, *DIFFERING, reruns=0)
    assert {r.name: (r.status, r.match) for r in found} == {
        "array": (Status.FAILED, Match.COLUMN_MISMATCH),
        "map": (Status.FAILED, Match.COLUMN_MISMATCH),
        "field": (Status.FAILED, Match.COLUMN_MISMATCH),
        "swapped": (Status.FAILED, Match.ROW_MISMATCH),
        "zone": (Status.FAILED, Match.COLUMN_MISMATCH),
    }, details(found)
    assert found[3].differences[0]["columns"] == ["f"]


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_the_session_of_the_process(duckdb_end: End, parquet: Path) -> None:
    _check(duckdb_end, End(f"spark:///{parquet}", None))


@pytest.mark.slow
def test_a_server_by_spark_connect(duckdb_end: End, parquet: Path, tmp_path: Path) -> None:
    with connect_server(tmp_path / "connect") as url:
        _check(duckdb_end, End(f"{url}?tables={parquet}", None))
