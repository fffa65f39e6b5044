"""Commits that are in the log and cannot be read yet: no false alarm, and nothing is missed. On real semi-sync."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest

from tests.servers import Database, Server
from tests.stream.test_binlog_servers import (
    primary_and_replica,  # noqa: F401 - a fixture
    wait_for,
)
from truecopy.engines import connect
from truecopy.engines.mysql import MySQL
from truecopy.engines.mysql_snapshot import snapshot
from truecopy.engines.protocols import Statement
from truecopy.mapping.plan import plan_table as mapping_of
from truecopy.model.endpoint import parse_endpoint
from truecopy.transfer.plan import TablePlan, plan_table
from truecopy.transfer.proof.reverify import Reverification
from truecopy.transfer.proof.store import REACHED, ReverifyStore
from truecopy.transfer.proof.verifier import Scene


def test_a_row_that_the_source_does_not_show_yet(
    primary_and_replica: tuple[Server, Server],  # noqa: F811 - the fixture above
    mariadb_db: Database,
    tmp_path: Path,
) -> None:
    one, two = primary_and_replica
    shop = one.create_database("seen")
    for database in (shop, mariadb_db):
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))")
        database.execute("INSERT INTO t VALUES (1, 'old'), (2, 'old')")
    wait_for(two, one)
    plan = planned(shop, mariadb_db)
    scene = Scene("seen", "", {plan.source_name: plan}, None, lambda _endpoint, _position: True)
    with ReverifyStore(tmp_path / "store.db") as store:
        looks = Reverification(scene, store)
        with waiting(one, two, shop, "UPDATE t SET v = 'new'"):
            # Both rows were applied; the write of the second one was lost.
            mariadb_db.execute("UPDATE t SET v = 'new' WHERE id = 1")
            reached = {f"{REACHED}s": str(logged(shop))}
            store.add({plan.source_name: pa.array(["1", "2"])}, reached)
            assert shop.execute("SELECT DISTINCT v FROM t") == [("old",)]
            assert looks.work().mismatches == (), (
                "the target is right, and ahead of what can be seen"
            )
            assert len(store) == 2, "nor is the other equal for good"
        (wrong,) = looks.work().mismatches
        assert (wrong.key, wrong.columns) == (("2",), ("v",))


def test_what_can_be_seen_is_told_without_reading_the_log(
    primary_and_replica: tuple[Server, Server],  # noqa: F811 - the fixture above
) -> None:
    one, two = primary_and_replica
    shop = one.create_database("told")
    shop.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    wait_for(two, one)
    with MySQL(parse_endpoint(shop.url)) as session:
        assert session.visible_position() == session.log_end()
        before = session.visible_position()
        with waiting(one, two, shop, "INSERT INTO t VALUES (1)"):
            assert session.log_end() != before
            assert session.visible_position() == before
        assert session.visible_position() == session.log_end() != before
        one.execute(None, "FLUSH BINARY LOGS")
        with waiting(one, two, shop, "INSERT INTO t VALUES (2)"):
            assert session.visible_position() != session.log_end()
        assert session.visible_position() == session.log_end()


@pytest.mark.long
def test_a_snapshot_counts_no_commit_that_it_does_not_show(
    primary_and_replica: tuple[Server, Server],  # noqa: F811 - the fixture above
) -> None:
    """Where a file has just begun, the server writes behind the commit that waits, and calls that the place."""
    one, two = primary_and_replica
    shop = one.create_database("counted")
    shop.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    for number in range(5):
        one.execute(None, "FLUSH BINARY LOGS")
        with (
            ThreadPoolExecutor(1) as beside,
            waiting(one, two, shop, f"INSERT INTO t VALUES ({number})"),
        ):
            found = beside.submit(_rows_and_position, shop)
            with suppress(TimeoutError):  # where nothing can be told while it waits
                rows, position = found.result(timeout=1.5)
                assert len(rows) == number
                assert position != logged(shop)
        rows, position = found.result(timeout=30)
        assert (len(rows) == number + 1) == (position == logged(shop))


def _rows_and_position(shop: Database) -> tuple[list[tuple[object, ...]], str]:
    with MySQL(parse_endpoint(shop.url)) as session, snapshot(session, ()) as position:
        return session.fetch(Statement("SELECT id FROM t")), position


@contextmanager
def waiting(one: Server, two: Server, shop: Database, write: str) -> Iterator[None]:
    """A commit is in the log and waits for the replica until the block ends."""
    two.execute(None, "SET GLOBAL rpl_semi_sync_slave_enabled = 1; STOP SLAVE; START SLAVE")
    one.execute(
        None,
        "SET GLOBAL rpl_semi_sync_master_timeout = 600000, rpl_semi_sync_master_wait_point = AFTER_SYNC;"
        "SET GLOBAL rpl_semi_sync_master_enabled = 1",
    )
    until(lambda: status(one, "status") == "ON" and int(status(one, "clients")) > 0)
    wait_for(two, one)
    two.execute(None, "STOP SLAVE IO_THREAD")
    before = logged(shop)
    writer = Thread(target=shop.execute, args=(write,))
    writer.start()
    try:
        until(lambda: logged(shop) != before)
        yield
        assert writer.is_alive()
    finally:
        two.execute(None, "START SLAVE IO_THREAD")
        writer.join(30)
        one.execute(None, "SET GLOBAL rpl_semi_sync_master_enabled = 0")
    assert not writer.is_alive()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def status(server: Server, name: str) -> str:
    found = server.execute(None, f"SHOW STATUS LIKE 'rpl_semi_sync_master_{name}'")
    return str(found[0][1])


def logged(shop: Database) -> object:
    return shop.execute("SELECT @@GLOBAL.gtid_binlog_pos")[0][0]


def planned(source: Database, target: Database) -> TablePlan:
    here, there = parse_endpoint(source.url), parse_endpoint(target.url)
    with connect(here) as one, connect(there) as other:
        assert isinstance(one, MySQL)
        assert isinstance(other, MySQL)
        (table,) = map(one.describe, one.tables())
        onto = other.describe(other.tables()[0])
        return plan_table(mapping_of(table), here, table, there, onto)
