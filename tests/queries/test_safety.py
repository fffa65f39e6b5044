"""Nothing is written outside the scratch schema, even where the user might."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.queries.conftest import ENGINES
from tests.queries.ends import End, both, run
from truecopy.engines.queries.session import open_session
from truecopy.model.endpoint import parse_endpoint
from truecopy.queries.query import Query, SideQuery
from truecopy.queries.result import Skipped, Status

WRITING = [
    "INSERT INTO t (id, name) VALUES (100, 'new')",
    "INSERT INTO t (id) SELECT id + 50 FROM t",
    "UPDATE t SET name = 'changed'",
    "UPDATE t SET f = (SELECT MAX(u.f) FROM t AS u) WHERE t.id = 1",
    "DELETE FROM t",
    "DELETE FROM t WHERE t.id = 1",
    "CREATE TABLE made AS SELECT * FROM t",
    "CREATE TABLE made (a INTEGER)",
    "CREATE VIEW made AS SELECT id FROM t",
]
REFUSED = [
    "DROP TABLE t",
    "TRUNCATE TABLE t",
    "ALTER TABLE t ADD COLUMN x INTEGER",
    "GRANT SELECT ON t TO PUBLIC",
]


def _tables(end: End, engine: str) -> set[str]:
    catalogs = {
        "sqlite": "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')",
        "duckdb": "SELECT table_name FROM information_schema.tables",
        "postgresql": "SELECT table_name FROM information_schema.tables"
        " WHERE table_schema IN ('public', 'truecopy_scratch')",
        "mariadb": "SELECT table_name FROM information_schema.tables"
        " WHERE table_schema IN (DATABASE(), 'truecopy_scratch')",
    }
    return {row[0] for row in end.execute(catalogs[engine])}


@pytest.mark.parametrize("engine", ENGINES)
def test_production_tables_are_never_written(engine: str, end: Callable[[str], End]) -> None:
    """The users of these ends may do anything; two of them are superusers."""
    before = end(engine).execute("SELECT * FROM t ORDER BY id")
    queries = [both(f"w{i}", sql) for i, sql in enumerate(WRITING)]
    results = run(end(engine), end(engine), *queries)
    assert {(r.name, r.status) for r in results} == {(q.name, Status.SUCCEEDED) for q in queries}, [
        r.detail for r in results
    ]
    refused = run(end(engine), end(engine), *(both(f"r{i}", sql) for i, sql in enumerate(REFUSED)))
    assert {r.status for r in refused} == {Status.SKIPPED}
    assert end(engine).execute("SELECT * FROM t ORDER BY id") == before
    assert _tables(end(engine), engine) == {"t"}


def test_writes_that_hide_inside_a_query_are_refused(postgres_end: End) -> None:
    postgres_end.execute("CREATE SEQUENCE numbers")
    hidden = [
        "WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone",
        "SELECT * INTO made FROM t",
        "SELECT nextval('numbers')",
        "SELECT id FROM t FOR UPDATE",
        "INSERT INTO t (id) SELECT nextval('numbers') FROM t",
    ]
    results = run(postgres_end, postgres_end, *(both(f"h{i}", sql) for i, sql in enumerate(hidden)))
    assert {r.skipped_reason for r in results} == {Skipped.UNSAFE}, [r.detail for r in results]
    assert postgres_end.execute("SELECT COUNT(*) FROM t") == [(5,)]
    assert postgres_end.execute("SELECT is_called FROM numbers") == [(False,)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t",
        "DROP TABLE t",
        "INSERT INTO t (id) VALUES (9)",
        "CREATE TABLE other (a INTEGER)",
    ],
)
def test_set_up_of_the_suite_may_not_write_elsewhere_either(
    statement: str, postgres_end: End
) -> None:
    side = SideQuery("SELECT 1 AS a", setup=(statement,), teardown=())
    (result,) = run(postgres_end, postgres_end, Query("s", "q", side, side))
    assert result.skipped_reason is Skipped.UNSAFE
    assert postgres_end.execute("SELECT COUNT(*) FROM t") == [(5,)]


@pytest.mark.parametrize("engine", ["postgresql", "mariadb", "duckdb", "sqlite"])
def test_set_up_and_tear_down_of_the_suite(engine: str, end: Callable[[str], End]) -> None:
    side = SideQuery(
        "SELECT * FROM {scratch:few}",
        setup=("CREATE TABLE {scratch:few} AS SELECT id FROM t WHERE id < 3",),
        teardown=("DROP TABLE {scratch:few}",),
    )
    forgetful = SideQuery(side.sql, side.setup)
    results = run(
        end(engine), end(engine), Query("s", "q", side, side), Query("s", "r", forgetful, forgetful)
    )
    assert [(r.status, r.detail) for r in results] == [(Status.SUCCEEDED, "")] * 2
    assert results[0].test is not None
    assert results[0].test.rows == 2
    assert _tables(end(engine), engine) == {"t"}


def test_a_user_who_may_only_read_can_verify(postgres_end: End, mariadb_end: End) -> None:
    postgres_end.execute("CREATE ROLE reader LOGIN PASSWORD 'r'; GRANT SELECT ON t TO reader")
    mariadb_end.execute("CREATE USER reader IDENTIFIED BY 'r'")
    mariadb_end.execute("GRANT SELECT ON t TO reader")
    try:
        ends = [
            End(f"{e.url.split('://')[0]}://reader:r@{e.url.split('@')[1]}", e.place)
            for e in (postgres_end, mariadb_end)
        ]
        (result,) = run(ends[0], ends[1], both("q", "SELECT * FROM t"), read_only=True)
        assert (result.status, result.detail) == (Status.SUCCEEDED, "")
        (refused,) = run(ends[0], ends[1], both("q", "SELECT * FROM t"))
        assert refused.skipped_reason is Skipped.CONTROL_SETUP_QUERY_FAILED
        assert "permission denied" in refused.detail
    finally:
        postgres_end.execute("DROP OWNED BY reader; DROP ROLE reader")
        mariadb_end.execute("DROP USER reader")


def test_results_are_kept_without_transactions_where_that_is_allowed(mariadb_end: End) -> None:
    with open_session(parse_endpoint(mariadb_end.url)) as session:
        session.make_scratch()
        session.run(session.create_as(session.scratch_name("tcq_kept"), "SELECT * FROM t"))
        kept = session.select(
            "SELECT engine FROM information_schema.tables WHERE table_name = 'tcq_kept'"
        )
        assert kept == [("Aria",)]
    with open_session(parse_endpoint(mariadb_end.url)) as session:
        session.execute("SET SESSION enforce_storage_engine = InnoDB")
        made = session.create_as(session.scratch_name("tcq_enforced"), "SELECT * FROM t")
        session.run(made)  # another engine would be refused
