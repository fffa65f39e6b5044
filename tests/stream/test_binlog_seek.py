"""Finding a place in the log: by position, by time, by what filtered replication recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Thread
from typing import Any

import pytest

from tests.conftest import fresh_database
from tests.servers import Database, MariaDB
from tests.stream.changes import Follower, plain, session
from tests.stream.test_binlog_servers import SMALL, purge
from truecopy.model.change import ORIGIN_TABLE
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.stream.binlog.log import BinlogLog
from truecopy.stream.log import Follows, LogGone, RecordsOrigins, Wanted

SECOND = 1_000_000


@pytest.fixture(scope="module")
def private() -> Iterator[Database]:
    """A server of its own: files are searched by the times at which they began."""
    with MariaDB(*SMALL, buffer_pool="16M") as server:
        yield server.create_database("shop")


@pytest.fixture
def log(private: Database) -> Iterator[BinlogLog]:
    with BinlogLog(parse_endpoint(private.url), Wanted("s")) as log:
        yield log


@pytest.fixture(scope="module")
def timed(private: Database) -> list[tuple[int, int]]:
    """Rows as (id, logged time in seconds), in the order of the log; some times run backwards."""
    private.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
    with session(private) as run, session(private) as other:
        for n in range(24):
            run(f"INSERT INTO t VALUES ({n}, REPEAT('x', 700))")
            if n % 8 == 7:
                # A statement that waits for a lock is logged late, with the time at which it began.
                run("BEGIN", "UPDATE t SET v = 'y' WHERE id = 1")
                waiting = Thread(target=other, args=(f"UPDATE t SET v = 'z{n}' WHERE id = 1",))
                waiting.start()
                time.sleep(0.3)
                for i in range(4):
                    private.execute(f"INSERT INTO t VALUES ({100 * n + i}, REPEAT('x', 900))")
                    time.sleep(0.5)
                run("COMMIT")
                waiting.join()
    with Follower(private, Follower(private).log.oldest()) as follower:
        found = follower.read()
    return [(int(c["key"][0]), int(c["committed_at"].timestamp())) for c in found]


def rows_after(private: Database, log: BinlogLog, at: float) -> list[tuple[int, int]]:
    with Follower(private, log.seek_time(int(at * SECOND))) as follower:
        found = follower.read()
    return [(int(c["key"][0]), int(c["committed_at"].timestamp())) for c in found]


def test_a_time_is_before_everything_committed_then_or_later(
    private: Database, log: BinlogLog, timed: list[tuple[int, int]]
) -> None:
    assert [t for _, t in timed] != sorted(t for _, t in timed)
    assert len(private.execute("SHOW BINARY LOGS")) > 3
    for at in sorted({t + fraction for _, t in timed for fraction in (-1, 0, 0.5)}):
        found = rows_after(private, log, at)
        first = next((i for i, (_, t) in enumerate(timed) if t >= int(at)), len(timed))
        assert found == timed[first:]


def test_a_time_to_come_is_the_end(private: Database, log: BinlogLog, timed: Any) -> None:
    mark = log.seek_time(int((time.time() + 3600) * SECOND))
    assert mark.position == log.current().position


def test_a_time_before_the_first_transaction(private: Database, log: BinlogLog, timed: Any) -> None:
    assert log.seek_time(SECOND) == log.oldest()


def test_positions_of_others_are_refused(log: BinlogLog) -> None:
    for position in ("16/B374D848", "12", "binlog.000001:4@elsewhere"):
        with pytest.raises(LogGone):
            log.seek(position)
    with pytest.raises(LogGone, match="GTID"):
        log.seek("0-1-99999999")
    with pytest.raises(UsageError, match="not a position"):
        log.seek("what")


def test_the_position_of_nothing_is_the_start(private: Database, log: BinlogLog) -> None:
    assert log.seek("").position == ""
    with Follower(private, log.seek("")) as one, Follower(private, log.oldest()) as two:
        assert plain(one.read(), "txn", "key") == plain(two.read(), "txn", "key")


def test_server_ids_are_checked(private: Database) -> None:
    endpoint = parse_endpoint(private.url)
    for wrong in ("x", "0-5", "9-3", "5-99999999999"):
        with pytest.raises(UsageError, match="is not a range"):
            BinlogLog(endpoint, Wanted("s", settings={"server_ids": wrong}))


def test_a_primary_is_behind_nobody(log: BinlogLog) -> None:
    assert isinstance(log, Follows)
    assert log.behind() == 0


# What filtered replication recorded


@pytest.fixture
def merged(private: Database) -> Iterator[Database]:
    """A shard that was fed from shards a and b."""
    with fresh_database(private.server) as database:
        database.execute(
            f"CREATE TABLE {ORIGIN_TABLE} (shard VARCHAR(190) PRIMARY KEY, position TEXT, committed_at BIGINT)"
        )
        database.execute("CREATE TABLE r (id INT PRIMARY KEY, v TEXT)")
        yield database


@pytest.fixture
def merged_log(merged: Database) -> Iterator[BinlogLog]:
    with BinlogLog(parse_endpoint(merged.url), Wanted("s")) as log:
        yield log


def apply(run: Any, shard: str, number: int, *statements: str) -> None:
    run(
        "BEGIN",
        f"INSERT INTO {ORIGIN_TABLE} VALUES ('{shard}', '0-1-{number}', {number * SECOND})"
        " ON DUPLICATE KEY UPDATE position = VALUES(position), committed_at = VALUES(committed_at)",
        *statements,
        "COMMIT",
    )


@pytest.mark.parametrize("wanted", [{}, {"keys_only": True}, {"before": False}])
def test_transactions_carry_their_origin(merged: Database, wanted: dict[str, Any]) -> None:
    with Follower(merged, **wanted) as follower, session(merged) as run:
        apply(run, "a", 7, "INSERT INTO r VALUES (1, 'x')", "INSERT INTO r VALUES (2, 'x')")
        apply(run, "a", 8)  # nothing of it was for this shard
        run("INSERT INTO r VALUES (3, 'own')")
        apply(run, "a", 9, "UPDATE r SET v = 'z' WHERE id = 1")
        found = follower.read()
    seconds = [int(change["committed_at"].timestamp()) for change in found]
    assert plain(found, "kind", "key", "seq", "origin") == [
        ("insert", ("1",), 0, "a 0-1-7"),
        ("insert", ("2",), 1, "a 0-1-7"),
        ("insert", ("3",), 0, None),
        ("update", ("1",), 0, "a 0-1-9"),
    ]
    assert [seconds[0], seconds[1], seconds[3]] == [7, 7, 9]
    assert abs(seconds[2] - datetime.now(UTC).timestamp()) < 100


def test_a_ledger_that_moves_by_itself_is_no_write(merged: Database, merged_log: BinlogLog) -> None:
    merged.execute("CREATE TABLE truecopy_progress (n INT)")
    with Follower(merged) as follower, session(merged) as run:
        for number in (1, 2, 3):
            apply(run, "a", number, f"INSERT INTO r VALUES ({number}, 'x')")
            run(f"INSERT INTO truecopy_progress VALUES ({number})")
        assert plain(follower.read(), "table") == [(f"{merged.name}.r",)] * 3
    with Follower(merged, merged_log.seek_origin({"a": "0-1-2"})) as follower:
        assert plain(follower.read(), "key") == [(("3",),)]


def test_origins_are_found_in_the_log(merged: Database, merged_log: BinlogLog) -> None:
    assert isinstance(merged_log, RecordsOrigins)
    with session(merged) as run:
        for n in range(1, 6):
            apply(run, "a", n, f"INSERT INTO r VALUES ({n}, 'a')")
            apply(run, "b", 10 * n, f"INSERT INTO r VALUES ({10 * n}, 'b')")
    # Everything that the positions do not contain comes after the mark, and not all of the log does.
    for a, b in ((3, 50), (5, 29), (2, 20), (5, 50)):
        mark = merged_log.seek_origin({"a": f"0-1-{a}", "b": f"0-1-{b}"})
        with Follower(merged, mark, tables=("r",)) as follower:
            keys = {int(change["key"][0]) for change in follower.read()}
        expected = {n for n in range(1, 6) if n > a} | {10 * n for n in range(1, 6) if 10 * n > b}
        assert expected <= keys < {1, 2, 3, 4, 5, 10, 20, 30, 40, 50}


def test_origins_that_were_purged_are_gone(merged: Database, merged_log: BinlogLog) -> None:
    with session(merged) as run:
        apply(run, "a", 1, "INSERT INTO r VALUES (1, 'a')")
        apply(run, "b", 1, "INSERT INTO r VALUES (2, 'b')")
        run("FLUSH BINARY LOGS")
        purge(merged)
        apply(run, "a", 2, "INSERT INTO r VALUES (3, 'a')")
        apply(run, "a", 3, "INSERT INTO r VALUES (4, 'a')")
    for origins in ({"a": "0-1-1", "b": "0-1-1"}, {"a": "0-1-2", "b": "0-1-0"}):
        with pytest.raises(LogGone, match="starts after what was replicated"):
            merged_log.seek_origin(origins)
    # All of b's is contained, whatever was purged of it.
    with Follower(merged, merged_log.seek_origin({"a": "0-1-2", "b": "0-1-1"})) as follower:
        assert plain(follower.read(), "key") == [(("4",),)]
