"""Verification while both sides are written to: no false alarm, no hiding place."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from sqlalchemy.exc import IntegrityError

import truecopy
from tests.servers import Database, MariaDB, Server
from tests.verify.rows import fill
from truecopy.metastore.chunks import ChunkRecord
from truecopy.metastore.runs import RunRecord
from truecopy.model.relation import Key
from truecopy.verify.differences import Difference
from truecopy.verify.live import watch


@pytest.fixture(scope="module")
def replicated() -> Iterator[tuple[Server, Server]]:
    """A primary and its replica, by MariaDB's own replication."""
    with (
        MariaDB("--server-id=11") as primary,
        MariaDB("--server-id=12", "--read-only=0") as replica,
    ):
        replica.execute(
            None,
            f"CHANGE MASTER TO master_host='127.0.0.1', master_port={primary.port}, master_user='root',"
            f" master_password='{primary.password}', master_use_gtid=slave_pos; START SLAVE",
        )
        yield primary, replica


@contextmanager
def load(primary: Database, busy: int, hot: int, rows: int = 50_000) -> Iterator[list[int]]:
    """Writers that update, insert and delete until the block ends; one row never stands still."""
    stop, counts = threading.Event(), [0]

    def write() -> None:
        dice = random.Random(5)
        with closing(primary.connect()) as connection, connection.cursor() as cursor:
            new = rows
            while not stop.is_set():
                cursor.execute(
                    "UPDATE items SET k = k + 1 WHERE id = %s", (dice.randrange(1, busy),)
                )
                cursor.execute("UPDATE items SET k = k + 1 WHERE id = %s", (hot,))
                new += 1
                cursor.execute("INSERT INTO items VALUES (%s, 1, 'new', NULL)", (new,))
                cursor.execute(
                    "DELETE FROM items WHERE id = %s", (new - 50,) if new - 50 > rows else (0,)
                )
                counts[0] += 4
                time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield counts
    finally:
        stop.set()
        writer.join()


def wait_until_replicated(replica: Server, database: str, rows: int) -> None:
    deadline = time.monotonic() + 240
    while True:
        try:
            if replica.execute(database, "SELECT COUNT(*) FROM items")[0][0] == rows:
                return
        except Exception:  # noqa: BLE001 - the database may not be there yet
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_healthy_replica_under_load_is_equal(replicated: tuple[Server, Server]) -> None:
    primary, replica = replicated
    source = primary.create_database("healthy")
    fill(source, 50_000)
    wait_until_replicated(replica, "healthy", 50_000)
    with load(source, busy=50_000, hot=123) as counts:
        report = truecopy.verify(
            source.url,
            replica.url("healthy"),
            live=True,
            delay=1.0,
            settle_time=5.0,
            chunk_rows=5_000,
        )
    assert counts[0] > 100
    assert report.verdict == "equal", report.to_dict()
    assert report.tables[0].rows_compared >= 50_000


def test_damaged_replica_under_load_is_found_out(replicated: tuple[Server, Server]) -> None:
    primary, replica = replicated
    source = primary.create_database("damaged")
    fill(source, 50_000)
    wait_until_replicated(replica, "damaged", 50_000)
    replica.execute(
        "damaged", "SET SESSION sql_log_bin = 0; UPDATE items SET c = 'x' WHERE id = 4242"
    )
    replica.execute("damaged", "SET SESSION sql_log_bin = 0; DELETE FROM items WHERE id = 31313")
    with load(source, busy=4_000, hot=123):
        report = truecopy.verify(
            source.url,
            replica.url("damaged"),
            live=True,
            delay=1.0,
            settle_time=5.0,
            chunk_rows=5_000,
        )
    (table,) = report.to_dict()["tables"]
    found = {(d["kind"], d["key"]["id"]) for d in table["differences"]}
    assert found == {("differs", "4242"), ("missing", "31313")}
    assert report.exit_code == 1


def test_keyless_table_is_refused_live(mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (a INT)")
    report = truecopy.verify(mariadb_db.url, mariadb_db.url, live=True)
    assert report.verdict == "not_compared"
    assert "key" in (report.tables[0].reason or "")


@dataclass
class World:
    """A source row that changes at given instants, and a target that follows with a lag, or not."""

    changes: Sequence[float]
    lag: float
    broken: bool
    now: float = 0.0
    looks: int = field(default=0)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def version(self, at: float) -> int:
        return sum(1 for change in self.changes if change <= at)

    def look(self, keys: Sequence[Key]) -> list[Difference]:
        self.looks += 1
        source = self.version(self.now)
        self.now += 0.01  # the target is read a moment later
        target = -1 if self.broken else self.version(self.now - self.lag)
        if source == target:
            return []
        return [Difference("differs", key, ("1", str(source)), ("1", str(target))) for key in keys]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(0, 40), max_size=60).map(sorted), st.floats(0, 0.9), st.booleans())
def test_simulated_schedules(changes: list[float], lag: float, broken: bool) -> None:
    """A target that lags less than the delay is never different; a broken one is, or is unsettled."""
    world = World(changes, lag, broken)
    settled = watch([("1",)], world.look, 1.0, 10.0, world.clock, world.sleep)
    if broken:
        assert settled.different or settled.unsettled
        gaps = [b - a for a, b in zip([0.0, *changes], [*changes, 100.0], strict=True)]
        if all(gap > 1.5 for gap in gaps):
            assert settled.different
    else:
        assert not settled.different
    assert world.now <= 10.0 + 1.0 + 2.0


def test_live_through_frames_and_out_of_time(
    mariadb_db: Database, postgres_db: Database, spark: SparkSession
) -> None:
    """Keys that are ordered differently go through Spark; what they find is settled as well."""
    for database in (mariadb_db, postgres_db):
        database.execute("CREATE TABLE t (id VARCHAR(20) PRIMARY KEY, v INT)")
        database.executemany("INSERT INTO t VALUES (%s, %s)", [(f"k{i}", i) for i in range(500)])
    postgres_db.execute("UPDATE t SET v = -1 WHERE id = 'k7'")
    postgres_db.execute("DELETE FROM t WHERE id = 'k8'")
    ends = mariadb_db.url, postgres_db.url
    report = truecopy.verify(
        *ends, live=True, delay=0.2, settle_time=2, chunk_rows=100, spark=spark
    )
    table = report.tables[0]
    assert (report.verdict, table.missing, table.differing) == ("different", 1, 1), report.to_dict()
    hurried = truecopy.verify(
        *ends, live=True, delay=0.2, max_time=0.001, chunk_rows=100_000, fresh=True
    )
    assert (hurried.tables[0].found, hurried.tables[0].unsettled) == (0, 2), hurried.to_dict()
    assert hurried.verdict != "different"


def test_settled_rows_are_recorded_in_one_step(tmp_path: Path) -> None:
    """Whatever a kill interrupts, rows that differed are either still suspected or judged."""
    record = RunRecord(tmp_path / "run.db")
    record.start("x", [])
    suspected = ChunkRecord(0, 0, {}, 2, b"two rows")
    record.add(suspected)
    with pytest.raises(IntegrityError):  # the second of two records with one number cannot be kept
        record.replace(0, [ChunkRecord(0, 0, {}, 0, b""), ChunkRecord(0, 0, {}, 0, b"")])
    assert list(record.records(0)) == [suspected]
    record.close()
