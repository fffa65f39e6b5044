"""Logs that rotate, are purged or reset, and servers that restart, hang up, or hand over."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from threading import Thread

import pytest

from tests.servers import Database, MariaDB, Server
from tests.stream.changes import Follower, plain, session
from tests.stream.replay import read_changes
from truecopy.engines.protocols import Statement
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.stream.binlog import tail
from truecopy.stream.binlog.log import BinlogLog
from truecopy.stream.binlog.visibility import snapshot, visible_mark
from truecopy.stream.log import LogGone, Mark, Wanted

SMALL = ("--max-binlog-size=4096", "--innodb-log-file-size=4M", "--gtid-strict-mode=1")


@pytest.fixture(scope="module")
def rotating() -> Iterator[MariaDB]:
    """A server whose files are tiny."""
    private = MariaDB(*SMALL, buffer_pool="16M")
    with private:
        yield private


@pytest.fixture
def shop(rotating: MariaDB) -> Database:
    server = rotating.server()
    server.execute(None, "CREATE OR REPLACE DATABASE shop")
    return Database(server, "shop")


def fill(database: Database, first: int, last: int) -> None:
    with session(database) as run:
        for n in range(first, last):
            run(f"INSERT INTO t VALUES ({n}, REPEAT('x', 150))")


def purge(database: Database) -> None:
    """Leave only the last file; the server keeps some until its own work with them is done."""
    deadline = time.monotonic() + 20
    while len(files := database.execute("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < deadline
        database.execute(f"PURGE BINARY LOGS TO '{files[-1][0]}'")


def keys(follower: Follower) -> list[int]:
    return [int(change["key"][0]) for change in follower.changes]


def test_a_range_over_many_files(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "SAMPLE_BYTES", 1000)
    with Follower(shop) as follower:
        shop.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
        fill(shop, 0, 100)
        start = follower.mark
        follower.read(max_bytes=6000)
        assert len(follower.marks) > 5
        assert keys(follower) == list(range(100))
        assert len({mark.place.partition(":")[0] for mark in follower.marks}) > 3
        with BinlogLog(follower.endpoint, Wanted("s")) as fresh:
            once = read_changes(fresh, start, follower.mark)
            assert [int(change["key"][0]) for change in once] == list(range(100))


def test_what_was_purged_is_gone(shop: Database) -> None:
    with Follower(shop) as follower:
        shop.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
        fill(shop, 0, 40)
        start = follower.mark
        follower.read()
        middle = follower.mark
        fill(shop, 40, 80)
        purge(shop)
        with BinlogLog(follower.endpoint, Wanted("s")) as fresh:
            for mark in (start, Mark(start.position), middle):
                with pytest.raises(LogGone, match="start from a newer point"):
                    fresh.advance(mark, 1 << 20, 5)
            with pytest.raises(LogGone, match="start from a newer point"):
                fresh.seek(start.position)
            with pytest.raises(LogGone):
                read_changes(fresh, middle, follower.log.current())
            with pytest.raises(LogGone, match=r"no log .* reaches back to that time for sure"):
                fresh.seek_time(1_000_000_000_000_000)
            # The oldest boundary is where the log begins now.
            oldest = fresh.oldest()
            assert fresh.seek(oldest.position) == Mark(oldest.position)
            with Follower(shop, oldest) as rest:
                assert [int(change["key"][0]) for change in rest.read()][-1] == 79


def test_a_killed_dump_is_opened_again(shop: Database) -> None:
    with Follower(shop) as follower:
        shop.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
        for n in range(4):
            fill(shop, 10 * n, 10 * n + 10)
            follower.read()
            for (number,) in shop.execute(
                "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
            ):
                shop.execute(f"KILL {number}")
        assert keys(follower) == list(range(40))


def test_another_reader_with_the_same_server_id(shop: Database) -> None:
    """It ends the first dump, which comes back; nothing is lost by it."""
    settings = {"server_ids": "77-77"}
    with Follower(shop, settings=settings) as one, Follower(shop, settings=settings) as two:
        shop.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
        for n in range(3):
            fill(shop, 10 * n, 10 * n + 10)
            for follower in (one, two):
                for start, end in follower.ranges():
                    with BinlogLog(follower.endpoint, Wanted("s")) as reader:
                        follower.changes += read_changes(reader, start, end)
        assert keys(one) == keys(two) == list(range(30))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_restarts(rotating: MariaDB, shop: Database, how: signal.Signals) -> None:
    with Follower(shop) as follower:
        shop.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
        fill(shop, 0, 20)
        follower.read()
        shop.execute("FLUSH ENGINE LOGS")
        rotating.restart(how)
        fill(shop, 20, 40)
        follower.read()
        assert keys(follower) == list(range(40))
        # An old mark, and the same rows from a new process.
        with BinlogLog(follower.endpoint, Wanted("s")) as fresh:
            again = read_changes(fresh, follower.marks[0], follower.marks[1])
            assert [int(change["key"][0]) for change in again] == list(range(20))


def test_a_server_that_stays_away_is_an_error(
    rotating: MariaDB, shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "GIVE_UP_SECONDS", 1.0)
    with Follower(shop) as follower:
        shop.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
        fill(shop, 0, 3)
        follower.read()
        process = rotating._process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        try:
            with pytest.raises(CannotFinish, match="connect"):
                follower.log.advance(follower.mark, 1 << 20, 10)
        finally:
            rotating._start()
        # The same log goes on as soon as the server is there again.
        fill(shop, 3, 6)
        follower.read()
        assert keys(follower) == list(range(6))


def test_a_log_that_was_reset_is_an_honest_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "QUIET_SECONDS", 0.5)
    with MariaDB("--innodb-log-file-size=4M", buffer_pool="16M") as server:
        shop = server.create_database("shop")
        shop.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
        with Follower(shop) as follower:
            fill(shop, 0, 20)
            follower.read()
            follower.log.close()
            shop.execute("RESET MASTER")
            fill(shop, 20, 25)
            with BinlogLog(follower.endpoint, Wanted("s")) as fresh:
                with pytest.raises(LogGone, match=r"GTID|position"):
                    fresh.advance(follower.mark, 1 << 20, 5)
                with pytest.raises(CannotFinish):
                    read_changes(fresh, follower.marks[0], follower.marks[1])
                with pytest.raises(LogGone):
                    fresh.seek(follower.mark.position)
            # Under a reader's eyes, too.
            with Follower(shop) as other:
                fill(shop, 25, 30)
                other.read()
                shop.execute("RESET MASTER")
                fill(shop, 30, 32)
                with pytest.raises(CannotFinish):
                    other.log.advance(other.mark, 1 << 20, 20)


@pytest.fixture(scope="module")
def primary_and_replica() -> Iterator[tuple[Server, Server]]:
    options = ("--log-slave-updates", "--innodb-log-file-size=4M", "--slave-parallel-threads=4")
    with ExitStack() as stack:
        one, two = (stack.enter_context(MariaDB(*options, buffer_pool="16M")) for _ in range(2))
        # Other files and offsets than on the primary.
        for _ in range(3):
            two.execute(None, "FLUSH BINARY LOGS")
        replicate(one, two)
        yield one, two


def replicate(source: Server, replica: Server) -> None:
    replica.execute(
        None,
        f"CHANGE MASTER TO master_host='127.0.0.1', master_port={source.port}, master_user='root',"
        f" master_password='{source.password}', master_use_gtid=slave_pos, master_connect_retry=1;"
        " START SLAVE",
    )


def wait_for(replica: Server, source: Server) -> None:
    ((position,),) = source.execute(None, "SELECT @@gtid_binlog_pos")
    assert replica.execute(None, f"SELECT MASTER_GTID_WAIT('{position}', 120)") == [(0,)]


def test_the_stream_goes_on_at_another_server_of_the_shard(
    primary_and_replica: tuple[Server, Server],
) -> None:
    one, two = primary_and_replica
    shop = one.create_database("shop")
    shop.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
    with Follower(shop) as follower:
        fill(shop, 0, 20)
        with session(shop, "SET gtid_domain_id = 7") as run:
            run("INSERT INTO t VALUES (100, 'x')", "INSERT INTO t VALUES (101, 'x')")
        follower.read()
        start, middle = follower.marks[0], follower.mark
        fill(shop, 20, 30)
        follower.read()
        wait_for(two, one)
        with Follower(Database(two, "shop"), middle) as other:
            assert plain(other.read(), "position", "txn", "key", "after") == plain(
                [change for change in follower.changes if 20 <= int(change["key"][0]) < 30],
                "position",
                "txn",
                "key",
                "after",
            )
        # A part that was planned on a server which has gone is read from another one.
        wanted = Wanted("s", fallbacks=(other.endpoint,))
        with BinlogLog(follower.endpoint, wanted) as log:
            (part,) = log.split(start, follower.mark, 1)
            here = read_changes(log, start, follower.mark)
        dead = replace(part.servers[0], port=1)
        moved = replace(part, servers=(dead, *part.servers[1:]))
        assert [row for batch in moved.read() for row in batch.to_pylist()] == here
        # The same address may now be another server: its files are not those that were meant.
        taken_over = replace(part, servers=(other.endpoint,))
        assert [row for batch in taken_over.read() for row in batch.to_pylist()] == here


def test_domains_that_another_server_has_in_another_order(
    primary_and_replica: tuple[Server, Server],
) -> None:
    """What is not in a range's end is not given with it, and not lost after it."""
    one, two = primary_and_replica
    shop = one.create_database("mixed")
    shop.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    shop.execute("INSERT INTO t VALUES (1, 0)")
    wait_for(two, one)
    replica = Database(two, "mixed")
    with Follower(shop) as follower, session(shop, "SET gtid_domain_id = 7") as run:
        start = follower.mark
        with session(replica) as lock:
            lock("SET sql_log_bin = 0", "BEGIN", "SELECT * FROM t WHERE id = 1 FOR UPDATE")
            run("UPDATE t SET v = 1 WHERE id = 1")  # waits on the replica
            follower.read()
            middle = follower.mark
            shop.execute("INSERT INTO t VALUES (2, 2)")  # does not
            deadline = time.monotonic() + 20
            while not replica.execute("SELECT 1 FROM t WHERE id = 2"):
                assert time.monotonic() < deadline
            lock("ROLLBACK")
        wait_for(two, one)
        follower.read()
        assert plain(follower.changes, "kind", "key") == [("update", ("1",)), ("insert", ("2",))]

        with BinlogLog(follower.endpoint, Wanted("s")) as log:
            parts = [*log.split(start, middle, 1), *log.split(middle, follower.mark, 1)]
        endpoint = parse_endpoint(replica.url)
        found = [
            row
            for part in parts
            for batch in replace(part, servers=(endpoint,)).read()
            for row in batch.to_pylist()
        ]
        assert plain(found, "kind", "key") == plain(follower.changes, "kind", "key")
        assert plain(found, "position") == plain(follower.changes, "position")
        # And a stream that goes on there from between the two loses nothing.
        with Follower(replica, middle) as other:
            assert plain(other.read(), "kind", "key") == [("insert", ("2",))]


def test_a_commit_that_waits_for_a_replica_is_logged_and_not_visible(
    primary_and_replica: tuple[Server, Server],
) -> None:
    one, two = primary_and_replica
    shop = one.create_database("semi")
    shop.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    wait_for(two, one)
    endpoint = parse_endpoint(shop.url)
    two.execute(None, "SET GLOBAL rpl_semi_sync_slave_enabled = 1; STOP SLAVE; START SLAVE")
    one.execute(
        None,
        "SET GLOBAL rpl_semi_sync_master_timeout = 600000, rpl_semi_sync_master_wait_point = AFTER_SYNC;"
        "SET GLOBAL rpl_semi_sync_master_enabled = 1",
    )
    writer = Thread(target=shop.execute, args=("INSERT INTO t VALUES (1)",))
    with BinlogLog(endpoint, Wanted("s")) as log:
        two.execute(None, "STOP SLAVE IO_THREAD")
        before = log.current()
        assert visible_mark(endpoint).position == before.position
        writer.start()
        try:
            deadline = time.monotonic() + 20
            while (logged := log.current()).position == before.position:
                assert time.monotonic() < deadline
            with snapshot(endpoint) as (session, mark):
                assert session.fetch(Statement("SELECT * FROM t")) == []
                assert mark.position == before.position
            # The stream has it already.
            with Follower(shop, before) as follower:
                assert plain(follower.read(), "kind", "key") == [("insert", ("1",))]
            assert writer.is_alive()
        finally:
            two.execute(None, "START SLAVE IO_THREAD")
            writer.join(30)
            one.execute(None, "SET GLOBAL rpl_semi_sync_master_enabled = 0")
        assert not writer.is_alive()
        with snapshot(endpoint) as (session, mark):
            assert session.fetch(Statement("SELECT * FROM t")) == [("1",)]
            assert mark.position == logged.position == log.current().position


def test_a_snapshot_is_where_its_mark_says(shop: Database) -> None:
    """While others write: the rows of the snapshot, and the changes after it, are the table."""
    shop.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
    writer = Thread(target=fill, args=(shop, 0, 300))
    writer.start()
    endpoint = parse_endpoint(shop.url)
    try:
        for _ in range(5):
            time.sleep(0.05)
            with snapshot(endpoint) as (session, mark):
                seen = {int(row[0]) for row in session.fetch(Statement("SELECT id FROM t"))}
            with Follower(shop, mark) as follower:
                follower.read()
                assert keys(follower)[:1] in ([], [max(seen, default=-1) + 1])
    finally:
        writer.join()


def test_a_promoted_replica_goes_on(primary_and_replica: tuple[Server, Server]) -> None:
    one, two = primary_and_replica
    shop = one.create_database("promoted")
    shop.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
    with Follower(shop) as follower:
        fill(shop, 0, 10)
        follower.read()
        wait_for(two, one)
        two.execute(None, "STOP SLAVE")
        promoted = Database(two, "promoted")
        fill(promoted, 10, 20)
        with Follower(promoted, follower.mark) as after:
            after.read()
            assert keys(after) == list(range(10, 20))
        # What only the old primary has is not found on the new one, and that is said.
        fill(shop, 50, 52)
        follower.read()
        with (
            BinlogLog(parse_endpoint(promoted.url), Wanted("s")) as log,
            pytest.raises(LogGone, match="GTID"),
        ):
            log.advance(follower.mark, 1 << 20, 5)
