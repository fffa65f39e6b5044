"""Lost servers, hanging queries, killed runs: what is tried again, cancelled, kept and cleaned up."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.program import start, truecopy
from tests.queries.ends import End, both, fill, one, run
from tests.servers import MariaDB, PostgreSQL
from truecopy.engines.queries.failure import Failure, Kind
from truecopy.queries.result import Skipped, Status

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
        left = database.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'truecopy_scratch'"
        )
        assert left == []


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
    tables = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'truecopy_scratch'"
    )
    deadline = time.monotonic() + 60
    while not mariadb_end.execute(tables) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=30)
    assert mariadb_end.execute(tables) != []
    again = truecopy("queries", "run", str(suite))
    assert again.code == 0, again.err + again.out
    assert "left behind" in again.err
    assert mariadb_end.execute(tables) == []
    assert postgres_end.execute(tables) == []


def test_a_second_run_of_the_same_suite_is_refused(postgres_end: End, tmp_path: Path) -> None:
    suite = tmp_path / "twice.yaml"
    sleepy = {"name": "q", "query": "SELECT 1 AS s WHERE pg_sleep(40) IS NOT NULL"}
    suite.write_text(
        json.dumps({"control": postgres_end.url, "test": postgres_end.url, "queries": [sleepy]})
    )
    first = start("queries", "run", str(suite))
    try:
        deadline = time.monotonic() + 60
        busy = "SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(40)%' AND pid <> pg_backend_pid()"
        while not postgres_end.execute(busy)[0][0] and time.monotonic() < deadline:
            time.sleep(0.05)
        second = truecopy("queries", "run", str(suite))
        assert second.code == 2
        assert "runs already" in second.err
    finally:
        first.send_signal(signal.SIGINT)
        try:
            first.communicate(timeout=60)
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
