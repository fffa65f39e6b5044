"""Queries that agree, on every pair of engines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement

import pytest

from tests.queries.conftest import ENGINES
from tests.queries.ends import End, both, details, run
from truecopy.queries.result import Status
from truecopy.queries.verdict import Match

PAIRS = list(combinations_with_replacement(ENGINES, 2))

AGREEING = [
    both("all", "SELECT * FROM t"),
    both("star", "SELECT t.*, u.id FROM t JOIN t AS u ON u.id = t.id"),
    both("unnamed", "SELECT COUNT(*), MAX(id), COUNT(*) FROM t"),
    both("names", "SELECT name, name AS name FROM t"),
    both("grouped", "SELECT name, SUM(f) AS s, COUNT(*) AS n FROM t GROUP BY name"),
    both("ordered", "SELECT id FROM t WHERE f IS NOT NULL ORDER BY f DESC LIMIT 2"),
    both("with", "WITH u AS (SELECT id, f FROM t WHERE f > 0) SELECT * FROM u"),
    both("union", "SELECT id FROM t UNION ALL SELECT id FROM t"),
    both("empty", "SELECT id, name FROM t WHERE id > 100"),
    both("like", "SELECT id FROM t WHERE name LIKE '%b%'"),
    both("insert", "INSERT INTO t (id, name) SELECT id + 100, name FROM t"),
    both("update", "UPDATE t SET name = 'x' WHERE t.id > 2"),
    both("delete", "DELETE FROM t WHERE id IN (SELECT id FROM t WHERE f > 0)"),
    both("ctas", "CREATE TABLE made AS SELECT id, f FROM t"),
    both("view", "CREATE VIEW seen AS SELECT id, name FROM t"),
    both("table", "CREATE TABLE defined (a INTEGER, b VARCHAR(10))"),
]


@pytest.mark.parametrize(("control", "test"), PAIRS)
def test_the_same_data_gives_the_same_answers(
    control: str, test: str, end: Callable[[str], End]
) -> None:
    results = run(end(control), end(test), *AGREEING)
    assert details([r for r in results if r.status is not Status.SUCCEEDED]) == []
    assert {r.match for r in results} == {Match.MATCH}
    assert end(control).execute("SELECT COUNT(*) FROM t")[0][0] == 5


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_that_writes_nothing(engine: str, end: Callable[[str], End]) -> None:
    queries = [
        q for q in AGREEING if q.name not in ("insert", "update", "delete", "ctas", "view", "table")
    ]
    results = run(end(engine), end("duckdb"), *queries, read_only=True)
    assert details([r for r in results if r.status is not Status.SUCCEEDED]) == []


def test_texts_of_any_charset_are_the_same(mariadb_end: End, duckdb_end: End) -> None:
    mariadb_end.execute(
        "CREATE TABLE words (a VARCHAR(9) CHARACTER SET latin1, b VARCHAR(9) CHARACTER SET utf8mb4,"
        " c VARCHAR(9) CHARACTER SET ucs2, d ENUM('é', 'x') CHARACTER SET latin1)"
    )
    duckdb_end.execute("CREATE TABLE words (a VARCHAR, b VARCHAR, c VARCHAR, d VARCHAR)")
    for place in (mariadb_end, duckdb_end):
        place.execute("INSERT INTO words VALUES ('é,', 'é€', '€', 'é'), (NULL, '', 'x', NULL)")
    queries = [
        both("all", "SELECT * FROM words"),
        both("put together", "SELECT CONCAT(COALESCE(a, '-'), b) AS ab FROM words"),
    ]
    for read_only in (False, True):
        results = run(mariadb_end, duckdb_end, *queries, read_only=read_only)
        assert details([r for r in results if not (r.status is Status.SUCCEEDED and r.exact)]) == []
