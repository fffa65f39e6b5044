"""The whole of it: replication at 2,000 changes a second, and 200 rows of 20 kinds spoiled on the target meanwhile."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database, MariaDB
from tests.validate.damage import KINDS, TABLE, Damage, insert
from tests.validate.watching import Watched, copied, replicating, validating, wait_for
from truecopy.metastore.validation_errors import RESOLVED
from truecopy.transfer.continuous.repair import apply_repair, plan_repair
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

_log = logging.getLogger(__name__)

INTERVAL, DELAY = 8.0, 12.0
EACH = 10
"""Rows that are spoiled by each kind of damage."""
_LOADED, _FIRST = 4000, 1_000_000
_RATE = 2000


@contextmanager
def load(source: Database) -> Iterator[None]:
    """About 2,000 changes a second, of rows that nobody spoils."""
    stop = threading.Event()
    reached = list[float]()

    def write() -> None:
        with closing(source.connect()) as connection, connection.cursor() as cursor:
            begun, count = time.monotonic(), 0
            while not stop.is_set():
                first = _FIRST + count % _LOADED
                cursor.execute(
                    "UPDATE wide SET n = n + 1, amount = amount + 1 WHERE id BETWEEN %s AND %s",
                    (first, first + 19),
                )
                count += 20
                stop.wait(max(0.0, begun + count / _RATE - time.monotonic()))
            reached.append(count / (time.monotonic() - begun))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert reached[0] >= 0.95 * _RATE


class Planting:
    """Spoils rows between two checks: after their change has arrived, and before it was looked at."""

    def __init__(self, source: Database, target: Database, watched: Watched) -> None:
        self._source = source
        self._target = target
        self._watched = watched
        self._next = 1
        self.planted: dict[int, tuple[Damage, float]] = {}

    def plant(self, damages: list[Damage]) -> None:
        numbers = range(self._next, self._next + len(damages))
        self._next += len(damages)
        insert(self._source, numbers)
        with self._watched.between_checks:
            for number, damage in zip(numbers, damages, strict=True):
                self._source.execute(damage.source, (number,))
            self._wait_for(numbers)
            for number, damage in zip(numbers, damages, strict=True):
                damage.spoil(self._target, number)
            now = time.time()
        self.planted |= {n: (d, now) for n, d in zip(numbers, damages, strict=True)}

    def _wait_for(self, numbers: range) -> None:
        """Until all of them have arrived: rows of one table may come by several ways."""
        asked = "SELECT id, n FROM wide WHERE ABS(id) BETWEEN %s AND %s ORDER BY id"
        ends = numbers[0], numbers[-1]
        wanted = self._source.execute(asked, ends)
        wait_for(lambda: self._target.execute(asked, ends) == wanted)


@contextmanager
def noticing(watched: Watched) -> Iterator[dict[int, float]]:
    """When each error was first there, for somebody who looks every second; later looks move its last failure."""
    seen: dict[int, float] = {}
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(1.0):
            for error in watched.new:
                seen.setdefault(int(error.key["id"] or 0), time.time())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def prove(source: Database, target: Database, settings: Settings, spark: SparkSession) -> None:
    with (
        load(source),
        validating(
            settings, validate_interval=INTERVAL, validate_changes=10**9, row_error_delay=DELAY
        ) as watched,
        noticing(watched) as reported,
    ):
        watched.until(lambda: watched.standing.standing.caught_up, "caught up")
        planting = Planting(source, target, watched)
        for _ in range(EACH):
            planting.plant(list(KINDS))
            time.sleep(INTERVAL)  # checks go on as they would
        planted = planting.planted
        assert len(planted) == 200
        watched.until(lambda: reported.keys() >= planted.keys(), "200 errors")
        found = {int(error.key["id"] or 0): error for error in watched.new}
        assert found.keys() == planted.keys()
        for number, (damage, _) in planted.items():
            error = found[number]
            assert (error.kind, set(error.columns)) == (damage.kind, set(damage.columns)), damage
        late = sorted(reported[number] - at for number, (_, at) in planted.items())
        _log.info("of 200, half are reported after %.1f s, the last %.1f s", late[100], late[-1])
        assert late[-1] <= DELAY + 2 * INTERVAL
        apply_repair(settings, plan_repair(settings, watched.new, spark))
        # Nobody asks for it: each is looked at again after twice the time that it was left alone before.
        watched.until(lambda: not watched.new, "all resolve themselves", 600)
        assert {error.status for error in watched.errors} == {RESOLVED}


def prepared(source: Database) -> None:
    source.execute(TABLE)
    insert(source, range(_FIRST, _FIRST + _LOADED))


def test_beside_a_task(
    spark: SparkSession, mariadb_db: Database, target: Database, task: str
) -> None:
    settings = Settings(task, mariadb_db.url, target.url)
    prepared(mariadb_db)
    copied(settings)
    with replicating(settings):
        prove(mariadb_db, target, settings, spark)


def test_beside_a_native_replica(spark: SparkSession, task: str) -> None:
    with (
        MariaDB("--server-id=31") as primary,
        MariaDB("--server-id=32", "--slave-parallel-threads=2") as replica,
    ):
        replica.execute(
            None,
            f"CHANGE MASTER TO master_host='127.0.0.1', master_port={primary.port}, master_user='root',"
            f" master_password='{primary.password}', master_use_gtid=slave_pos; START SLAVE",
        )
        source, target = primary.create_database("native"), Database(replica, "native")
        prepared(source)
        ((position,),) = primary.execute(None, "SELECT @@gtid_binlog_pos")
        assert replica.execute(None, f"SELECT MASTER_GTID_WAIT('{position}', 60)") == [(0,)]
        prove(source, target, Settings(task, source.url, target.url), spark)
