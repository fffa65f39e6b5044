"""Validation while everything moves: busy rows, a replication that lags, one that is not ours."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database, MariaDB, Server
from tests.validate.watching import copied, replicating, validating, wait_for
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.continuous.validator import Validator
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

_TABLE = "CREATE TABLE items (id INT PRIMARY KEY, n INT NOT NULL, note VARCHAR(100))"
_PIN = """CREATE TRIGGER pin BEFORE INSERT ON items FOR EACH ROW
    SET NEW.n = IF(NEW.id = 1, -1, NEW.n)"""


@contextmanager
def busy(database: Database, pause: float = 0.05, others: int = 0) -> Iterator[None]:
    """Row 1 changes again and again; and some others with it."""
    stop = threading.Event()

    def write() -> None:
        connection = database.connect()
        with connection.cursor() as cursor:
            count = 0
            while not stop.wait(pause):
                count += 1
                cursor.execute("UPDATE items SET n = n + 1 WHERE id = 1")
                for _ in range(others):
                    cursor.execute(
                        "UPDATE items SET n = n + 1 WHERE id = %s", (count * 7919 % 400 + 2,)
                    )
        connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def filled(source: Database) -> None:
    source.execute(_TABLE)
    source.executemany(
        "INSERT INTO items VALUES (%s, %s, %s)", [(n, n, f"note {n}") for n in range(1, 403)]
    )


@pytest.mark.long
def test_a_busy_row_is_neither_a_false_error_nor_a_hiding_place(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    settings = Settings(task, mariadb_db.url, second_mariadb_db.url)
    filled(mariadb_db)
    copied(settings)
    with (
        replicating(settings),
        busy(mariadb_db, others=3),
        validating(settings, row_error_delay=4.0) as watched,
    ):
        watched.until_processed(200)
        time.sleep(12)
        assert not watched.errors, watched.errors
        assert watched.standing.standing.caught_up
        second_mariadb_db.execute(_PIN)
        pinned_at = time.time()
        (error,) = watched.until_errors(1)
        assert time.time() - pinned_at < 4 + 2 * 1 + 20  # the delay, two intervals, a slow machine
        assert (error.key, error.kind, error.columns) == ({"id": "1"}, "differs", ["n"])
        assert error.target == {"n": "-1"}
        second_mariadb_db.execute("DROP TRIGGER pin")
        watched.until(lambda: not watched.new, "the error resolves itself")
        assert len(watched.errors) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "lag", [8, pytest.param(60, marks=pytest.mark.slow)], ids=["seconds", "a minute"]
)
def test_a_replication_that_lags_makes_no_error(
    spark: SparkSession, mariadb_db: Database, target: Database, task: str, lag: int
) -> None:
    settings = Settings(task, mariadb_db.url, target.url)
    filled(mariadb_db)
    copied(settings)
    with validating(settings, row_error_delay=1.0) as watched:
        with busy(mariadb_db, 0.02, others=5):
            with replicating(settings):
                watched.until_processed(100)
            time.sleep(lag)  # the replication stands still
            with replicating(settings):
                before = watched.processed()
                watched.until_processed(before + 100)
        copied(settings)
        watched.until_settled()
        assert not watched.errors, watched.errors


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary and its replica, by MariaDB's own replication."""
    with (
        MariaDB("--server-id=21") as primary,
        MariaDB("--server-id=22", "--slave-parallel-threads=2") as replica,
    ):
        replica.execute(
            None,
            f"CHANGE MASTER TO master_host='127.0.0.1', master_port={primary.port}, master_user='root',"
            f" master_password='{primary.password}', master_use_gtid=slave_pos; START SLAVE",
        )
        yield primary, replica


@pytest.mark.long
def test_a_native_replica_is_validated_by_its_own_position(
    spark: SparkSession, pair: tuple[Server, Server], task: str
) -> None:
    primary, replica = pair
    source, target = primary.create_database("native"), Database(replica, "native")
    filled(source)
    wait_for(lambda: _count(replica) == 402)
    settings = Settings(task, source.url, target.url)
    with (
        busy(source, 0.02, others=5),
        validating(settings, row_error_delay=3.0) as watched,
    ):
        watched.until_processed(200)
        assert watched.standing.standing.report["applied_by"] == "replica"
        replica.execute(None, "STOP SLAVE")
        time.sleep(5)
        assert not watched.errors
        replica.execute(None, "START SLAVE")
        before = watched.processed()
        watched.until_processed(before + 200)
        assert not watched.errors, watched.errors
    Validator(settings, ContinuousOptions()).begin()
    source.execute("UPDATE items SET note = 'changed' WHERE id IN (10, 11, 12)")
    source.execute("DELETE FROM items WHERE id = 13")
    wait_for(lambda: not target.execute("SELECT 1 FROM items WHERE id = 13"))
    target.execute("SET sql_log_bin = 0; UPDATE items SET note = 'wrong' WHERE id = 10")
    target.execute("SET sql_log_bin = 0; DELETE FROM items WHERE id = 11")
    target.execute("SET sql_log_bin = 0; INSERT INTO items VALUES (13, 13, 'again')")
    with validating(settings, row_error_delay=1.0) as watched:
        errors = watched.until_errors(3)
        watched.until_settled()
        assert {(error.key["id"], error.kind) for error in errors} == {
            ("10", "differs"),
            ("11", "missing"),
            ("13", "extra"),
        }


@pytest.mark.long
def test_what_a_replica_has_from_elsewhere_hides_no_error(
    spark: SparkSession, pair: tuple[Server, Server], task: str
) -> None:
    primary, replica = pair
    source, target = primary.create_database("shared"), Database(replica, "shared")
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    source.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    wait_for(lambda: bool(replica.execute(None, "SHOW DATABASES LIKE 'shared'")))
    replica.execute(None, "STOP SLAVE")
    # As another source leaves it, whose changes are logged under a domain of their own.
    elsewhere = "SET GLOBAL gtid_slave_pos = CONCAT(@@GLOBAL.gtid_slave_pos, ',7-99-5')"
    replica.execute(None, elsewhere)
    replica.execute(None, "START SLAVE")
    settings = Settings(task, source.url, target.url)
    Validator(settings, ContinuousOptions()).begin()
    source.execute("UPDATE t SET v = v + 10")
    wait_for(lambda: target.execute("SELECT v FROM t") == [(11,), (12,)])
    target.execute("UPDATE t SET v = -1 WHERE id = 1")
    with validating(settings, row_error_delay=1.0) as watched:
        (error,) = watched.until_errors(1, 60)
        assert watched.standing.standing.report["applied_by"] == "replica"
        assert (error.key, error.target) == ({"id": "1"}, {"v": "-1"})
        target.execute("UPDATE t SET v = 11 WHERE id = 1")
        watched.until(lambda: not watched.new, "the error resolves itself", 60)


@pytest.mark.long
def test_any_other_replication_is_validated_by_a_lag(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database, task: str
) -> None:
    for database in (mariadb_db, postgres_db):
        filled(database)
    settings = Settings(task, mariadb_db.url, postgres_db.url)
    with validating(settings, applied="lag", lag=5.0, row_error_delay=3.0) as watched:
        with written_to_both(mariadb_db, postgres_db, later=2.0):
            watched.until_processed(200)
            time.sleep(6)
            assert not watched.errors, watched.errors
        mariadb_db.execute("UPDATE items SET note = 'late' WHERE id = 5")
        postgres_db.execute("UPDATE items SET note = 'wrong' WHERE id = 5")
        (error,) = watched.until_errors(1)
        assert (error.key, error.source) == ({"id": "5"}, {"note": "late"})


@contextmanager
def written_to_both(source: Database, target: Database, later: float) -> Iterator[None]:
    """Somebody else's replication, in little: what is written to the one is written to the other, so much later."""
    stop = threading.Event()
    on_its_way = queue.SimpleQueue[tuple[float, int] | None]()
    change = "UPDATE items SET n = n + 1 WHERE id = %s"

    def write() -> None:
        with closing(source.connect()) as connection, connection.cursor() as cursor:
            for count in itertools.count():
                if stop.wait(0.05):
                    break
                for key in (1, count * 7919 % 400 + 2):
                    cursor.execute(change, (key,))
                    on_its_way.put((time.monotonic() + later, key))
        on_its_way.put(None)

    def replicate() -> None:
        with closing(target.connect()) as connection, connection.cursor() as cursor:
            while (due := on_its_way.get()) is not None:
                time.sleep(max(0.0, due[0] - time.monotonic()))
                cursor.execute(change, (due[1],))

    threads = [threading.Thread(target=write), threading.Thread(target=replicate)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _count(replica: Server) -> int:
    found = replica.execute(
        None, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'native'"
    )
    if not found[0][0]:
        return 0
    return int(replica.execute("native", "SELECT COUNT(*) FROM items")[0][0])
