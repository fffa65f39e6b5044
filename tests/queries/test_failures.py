"""Lost servers, hanging queries, killed runs: what is tried again, cancelled, kept and cleaned up."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.program import start, truecopy
from tests.queries.ends import End, both, fill, one, run
from tests.servers import MariaDB, PostgreSQL
from truecopy.engines.queries.duckdb import DuckDBTexts
from truecopy.engines.queries.failure import Failure, Kind
from truecopy.engines.queries.texts import Texts
from truecopy.queries import checksums
from truecopy.queries.query import Query, SideQuery
from truecopy.queries.result import Skipped, Status
from truecopy.queries.verdict import Match

SLEEPS = {
    "postgresql": "SELECT 1 AS s WHERE pg_sleep(60) IS NOT NULL",
    "mariadb": "SELECT 1 AS s FROM DUAL WHERE SLEEP(60) = 0",
}
RUNNING = {
    "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(60)%'"
    " AND pid <> pg_backend_pid()",
    "mariadb": "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(60)%'"
    " AND id <> CONNECTION_ID()",
}


SCRATCH_TABLES = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 'truecopy_scratch'"
)


def _wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, "it did not happen within a minute"
        time.sleep(0.05)


@pytest.mark.parametrize("engine", ["postgresql", "mariadb"])
def test_a_query_that_hangs_is_cancelled_on_the_server(
    engine: str, end: Callable[[str], End]
) -> None:
    seen: list[int] = []
    place, duck = end(engine), end("duckdb")

    def watch() -> None:
        for _ in range(40):
            seen.append(int(place.execute(RUNNING[engine])[0][0]))
            time.sleep(0.1)

    watching = threading.Thread(target=watch)
    watching.start()
    result = one(duck, place, "SELECT 1 AS s", SLEEPS[engine], timeout=2.0)
    watching.join()
    assert max(seen) == 1
    assert int(place.execute(RUNNING[engine])[0][0]) == 0
    assert (result.status, result.resolved_by) == (Status.FAILED_RESOLVED, "time-limit")
    assert result.failures[-1].kind is Kind.TIME_LIMIT
    hanging_control = one(place, duck, SLEEPS[engine], "SELECT 1 AS s", timeout=1.0)
    assert hanging_control.skipped_reason is Skipped.CONTROL_QUERY_TIMED_OUT


def test_a_long_query_of_duckdb_is_interrupted(duckdb_end: End) -> None:
    endless = "SELECT COUNT(*) AS n FROM range(100000000) a, range(100000) b"
    started = time.monotonic()
    result = one(duckdb_end, duckdb_end, "SELECT 1::BIGINT AS n", endless, timeout=1.0)
    assert result.failures[-1].kind is Kind.TIME_LIMIT
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("kind", [MariaDB, PostgreSQL])
def test_the_test_server_is_restarted_in_mid_suite(kind: type, duckdb_end: End) -> None:
    private = kind()
    with private as server:
        database = server.create_database("d")
        fill(database)
        slow = "pg_sleep(0.02) IS NOT NULL" if kind is PostgreSQL else "SLEEP(0.02) = 0"
        queries = [
            both(f"q{i}", "SELECT * FROM t", f"SELECT * FROM t WHERE {slow}") for i in range(30)
        ]
        # The processes of PostgreSQL outlive one that is killed, and would hold its folder.
        how = signal.SIGQUIT if kind is PostgreSQL else signal.SIGKILL
        # A server ends with the thread that started it, so the suite is what runs in another one.
        with ThreadPoolExecutor(1) as executor:
            running = executor.submit(
                run, duckdb_end, End(database.url, database), *queries, retries=8, backoff=0.3
            )
            time.sleep(1.5)
            private.restart(how)
            results = running.result()
        assert {r.status for r in results} == {Status.SUCCEEDED}, [r.detail for r in results]
        failures = [failure for r in results for failure in r.failures]
        assert {failure.kind for failure in failures} >= {Kind.CONNECTION}
        assert all(failure.stage and failure.message for failure in failures)
        assert database.execute(SCRATCH_TABLES) == []


@pytest.mark.parametrize("kind", [MariaDB, PostgreSQL])
def test_a_crash_after_the_query_is_no_mismatch(
    kind: type, duckdb_end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not logged is not what it was: the query has to run again before it is measured."""
    reached, crashed = threading.Event(), threading.Event()
    measure = checksums.look

    def look(fetch: checksums.Fetch, texts: Texts, *rest: Any, **more: Any) -> checksums.Look:
        if not isinstance(texts, DuckDBTexts) and not crashed.is_set():
            reached.set()
            assert crashed.wait(60)
        return measure(fetch, texts, *rest, **more)

    monkeypatch.setattr(checksums, "look", look)
    # The table that is asked for must outlive the crash.
    durable = ("--innodb-flush-log-at-trx-commit=1",) if kind is MariaDB else ()
    private = kind(*durable)
    with private as server, ThreadPoolExecutor(1) as executor:
        database = server.create_database("d")
        fill(database)
        place = End(database.url, database)
        running = executor.submit(one, duckdb_end, place, "SELECT * FROM t", retries=8, backoff=0.3)
        assert reached.wait(60)
        private.restart(signal.SIGQUIT if kind is PostgreSQL else signal.SIGKILL)
        crashed.set()
        result = running.result()
        assert (result.status, result.match) == (Status.SUCCEEDED, Match.MATCH), result.detail
        assert result.failures[0].kind is Kind.CONNECTION
        assert Kind.GONE in {failure.kind for failure in result.failures}
        assert database.execute(SCRATCH_TABLES) == []


@pytest.mark.parametrize("engine", ["postgresql", "mariadb"])
def test_an_interrupted_run_tears_down_and_ends_in_one_line(
    engine: str, end: Callable[[str], End], tmp_path: Path
) -> None:
    other = "mariadb" if engine == "postgresql" else "postgresql"
    suite = tmp_path / "interrupted.yaml"
    slow = {"name": "slow", "control": "SELECT * FROM t", "test": SLEEPS[engine]}
    suite.write_text(
        json.dumps({"control": end(other).url, "test": end(engine).url, "queries": [slow]})
    )
    running = start("queries", "run", str(suite))
    try:
        _wait_until(lambda: int(end(engine).execute(RUNNING[engine])[0][0]) == 1)
        assert end(other).execute(SCRATCH_TABLES) != []
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=180)
    finally:
        running.kill()
    assert running.returncode == 3
    assert err == "truecopy: interrupted; the same command goes on where this one stopped\n"
    assert out == ""
    assert int(end(engine).execute(RUNNING[engine])[0][0]) == 0
    assert end(engine).execute(SCRATCH_TABLES) == end(other).execute(SCRATCH_TABLES) == []


def test_an_interrupted_bank_tears_down(mariadb_end: End, tmp_path: Path) -> None:
    suite = tmp_path / "bank.yaml"
    suite.write_text(
        json.dumps(
            {"control": mariadb_end.url, "queries": [{"name": "q", "query": SLEEPS["mariadb"]}]}
        )
    )
    running = start("queries", "bank", str(suite), "--into", str(tmp_path / "bank"))
    try:
        _wait_until(lambda: int(mariadb_end.execute(RUNNING["mariadb"])[0][0]) == 1)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=180)
    finally:
        running.kill()
    assert (running.returncode, err.count("\n")) == (3, 1)
    assert mariadb_end.execute(SCRATCH_TABLES) == []


def test_stages_come_in_order_and_tear_down_always(duckdb_end: End) -> None:
    """The server's own log says so; the test query fails, and both are torn down all the same."""
    private = PostgreSQL("-c", "log_statement=all")
    with private as server:
        database = server.create_database("d")
        sides = [
            SideQuery(
                sql,
                (f"CREATE TABLE {{scratch:{name}}} AS SELECT 1 AS a",),
                (f"DROP TABLE {{scratch:{name}}}",),
            )
            for name, sql in (("first", "SELECT 1 AS a"), ("second", "SELECT 1 / 0 AS a"))
        ]
        place = End(database.url, database)
        (result,) = run(place, place, Query("s", "q", sides[0], sides[1]), retries=0)
        assert (result.status, result.failures[-1].stage) == (Status.FAILED, "test")
        assert database.execute(SCRATCH_TABLES) == []
        log = (private.folder / "server.log").read_text()
    stages = [
        r"CREATE TABLE \S+_first\W",
        r"CREATE UNLOGGED TABLE \S+c_1\W",
        r"CREATE TABLE \S+_second\W",
        r"CREATE UNLOGGED TABLE \S+t_1\W",
        r"DROP TABLE \S+_first\W",
        r"DROP TABLE \S+_second\W",
    ]
    found = [re.search(stage, log) for stage in stages]
    assert all(found), log[-3000:]
    places = [match.start() for match in found if match]
    assert places == sorted(places)


def test_a_query_whose_scratch_table_went_away_starts_again(
    duckdb_end: End, postgres_end: End
) -> None:
    postgres_end.execute(
        """
        CREATE TABLE lost (name TEXT);
        CREATE FUNCTION lose() RETURNS event_trigger LANGUAGE plpgsql AS $$
        DECLARE made RECORD;
        BEGIN
          FOR made IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
            IF made.object_identity LIKE 'truecopy_scratch.%' AND NOT EXISTS (SELECT 1 FROM lost) THEN
              INSERT INTO lost VALUES (made.object_identity);
              EXECUTE 'DROP TABLE ' || made.object_identity;
            END IF;
          END LOOP;
        END $$;
        CREATE EVENT TRIGGER lose ON ddl_command_end WHEN TAG IN ('CREATE TABLE AS') EXECUTE FUNCTION lose()
        """
    )
    found = one(duckdb_end, postgres_end, "SELECT id, f FROM t")
    assert postgres_end.execute("SELECT COUNT(*) FROM lost") == [(1,)]
    assert (found.status, found.detail) == (Status.SUCCEEDED, "")
    assert [(f.kind, f.stage) for f in found.failures] == [(Kind.GONE, "test describe")]
    once = one(duckdb_end, postgres_end, "SELECT id, f FROM t", resubmissions=0)
    assert once.status is Status.SUCCEEDED


def test_nothing_listens_is_one_line_and_exit_3(duckdb_end: End, tmp_path: Path) -> None:
    suite = tmp_path / "s.yaml"
    suite.write_text(
        "queries: [{name: q, query: SELECT 1 AS a}]\nsettings: {retries: 1, backoff: 0.1}\n"
    )
    ended = truecopy(
        "queries",
        "run",
        str(suite),
        "--control",
        duckdb_end.url,
        "--test",
        "postgresql://u:secret@127.0.0.1:1/d",
    )
    assert ended.code == 3
    assert ended.err.count("\n") == 1
    assert "secret" not in ended.err + ended.out


def test_a_killed_run_leaves_nothing_behind_after_a_rerun(
    mariadb_end: End, postgres_end: End, tmp_path: Path
) -> None:
    suite = tmp_path / "killed.yaml"
    suite.write_text(
        json.dumps(
            {
                "suite": "killed",
                "control": mariadb_end.url,
                "test": postgres_end.url,
                "queries": [
                    {
                        "name": "slow",
                        "control": "SELECT * FROM t",
                        "test": "SELECT t.* FROM t, (SELECT pg_sleep(5)) AS s",
                    }
                ],
            }
        )
    )
    killed = start("queries", "run", str(suite))
    _wait_until(lambda: mariadb_end.execute(SCRATCH_TABLES) != [])
    time.sleep(0.3)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=180)
    assert mariadb_end.execute(SCRATCH_TABLES) != []
    again = truecopy("queries", "run", str(suite))
    assert again.code == 0, again.err + again.out
    assert "left behind" in again.err
    assert mariadb_end.execute(SCRATCH_TABLES) == []
    assert postgres_end.execute(SCRATCH_TABLES) == []


def test_a_second_run_of_the_same_suite_is_refused(postgres_end: End, tmp_path: Path) -> None:
    suite = tmp_path / "twice.yaml"
    sleepy = {"name": "q", "query": "SELECT 1 AS s WHERE pg_sleep(40) IS NOT NULL"}
    suite.write_text(
        json.dumps({"control": postgres_end.url, "test": postgres_end.url, "queries": [sleepy]})
    )
    first = start("queries", "run", str(suite))
    try:
        busy = "SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(40)%' AND pid <> pg_backend_pid()"
        _wait_until(lambda: bool(postgres_end.execute(busy)[0][0]))
        second = truecopy("queries", "run", str(suite))
        assert second.code == 2
        assert "runs already" in second.err
    finally:
        first.send_signal(signal.SIGINT)
        try:
            first.communicate(timeout=180)
        except subprocess.TimeoutExpired:
            first.kill()
            first.communicate()


def test_failures_that_pass_are_kept(postgres_end: End) -> None:
    """A policy of another package may also try again what is refused."""
    from truecopy.queries.retry import passing, retried

    failures: list[Failure] = []
    tries = iter([Kind.TRANSIENT, Kind.CONNECTION, None])

    def flaky() -> str:
        from truecopy.engines.queries.failure import failed

        kind = next(tries)
        if kind is not None:
            raise failed(kind, "gone for a moment")
        return "answer"

    assert retried(flaky, lambda: "test", passing, 3, 0.01, failures) == "answer"
    assert [(f.kind, f.attempt, f.stage) for f in failures] == [
        (Kind.TRANSIENT, 1, "test"),
        (Kind.CONNECTION, 2, "test"),
    ]


def test_a_failing_test_query_fails_and_a_failing_control_query_is_skipped(duckdb_end: End) -> None:
    bad = one(duckdb_end, duckdb_end, "SELECT 1 AS a", "SELECT no_such_column FROM t")
    assert (bad.status, bad.failures[-1].stage) == (Status.FAILED, "test")
    skipped = one(duckdb_end, duckdb_end, "SELECT no_such_column FROM t", "SELECT 1 AS a")
    assert skipped.skipped_reason is Skipped.CONTROL_QUERY_FAILED
