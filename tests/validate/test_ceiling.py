"""The load on the target stays under the ceiling that the task sets, as the target itself sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.validate.watching import begun, copied, validating, wait_for
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

ROWS = 300


def one_change(source: Database, target: Database, task: str) -> Settings:
    """A task that is validated from now on; one row has changed."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.execute("INSERT INTO t VALUES (0, 0)")
    copied(settings)
    return settings


def change(source: Database, settings: Settings) -> None:
    source.executemany("INSERT INTO t VALUES (%s, %s)", [(n, n) for n in range(1, ROWS)])
    copied(settings)


@pytest.mark.long
@pytest.mark.parametrize("connections", [1, 2])
def test_no_more_statements_run_at_a_time_than_connections_allow(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    task: str,
    connections: int,
) -> None:
    target = second_mariadb_db
    settings = one_change(mariadb_db, target, task)
    with validating(settings, connections=connections) as watched:
        watched.until_processed(1)
        with closing(target.connect()) as connection, connection.cursor() as cursor:
            with watched.between_checks:
                change(mariadb_db, settings)
                cursor.execute("LOCK TABLES t WRITE")  # whoever asks has to wait, and is counted
            wait_for(lambda: waiting(target) == connections)
            time.sleep(1.0)
            assert waiting(target) == connections
            cursor.execute("UNLOCK TABLES")
        watched.until_processed(ROWS)
        watched.until_settled()
        assert not watched.errors
        wait_for(lambda: waiting(target) == 0)


def waiting(target: Database) -> int:
    """Statements about the table that wait for its lock."""
    ((count,),) = target.execute(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = %s AND state LIKE 'Waiting for table%%'",
        (target.name,),
    )
    return int(count)


@pytest.mark.long
def test_no_more_rows_are_asked_for_in_a_second_than_the_rate_allows(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    settings = one_change(mariadb_db, second_mariadb_db, task)
    change(mariadb_db, settings)
    rate, batch = 100, 10
    with (
        logged(second_mariadb_db) as questions,
        validating(settings, rate=rate, batch_query_size=batch, connections=2) as watched,
    ):
        watched.until_processed(ROWS)
        watched.until_settled()
        times = questions(f"%`{second_mariadb_db.name}`.`t`%WHERE%IN (%")
        opened = questions("START TRANSACTION WITH CONSISTENT SNAPSHOT%")
    assert len(times) >= ROWS / batch
    # Each of two workers may begin one more before it has to wait.
    most = rate / batch + 2
    for first in times:
        within = [at for at in times if first <= at < first + timedelta(seconds=1)]
        assert len(within) <= most + 1
    # No state of the target is kept open for much longer than the interval, of a second: each worker may ask for 50.
    assert len(opened) >= ROWS / 50 - 1


@contextmanager
def logged(target: Database) -> Iterator[Callable[[str], list[datetime]]]:
    """Has the server write down what it is asked; gives the times of statements like a pattern."""
    server = target.server
    server.execute(None, "SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = 1")

    def times(pattern: str) -> list[datetime]:
        rows = server.execute(
            None,
            f"SELECT event_time FROM mysql.general_log WHERE argument LIKE '{pattern}'"
            " AND argument NOT LIKE '%general_log%' ORDER BY event_time",
        )
        return [at for (at,) in rows]

    try:
        yield times
    finally:
        server.execute(
            None,
            "SET GLOBAL general_log = 0; SET GLOBAL log_output = 'FILE'; TRUNCATE TABLE mysql.general_log",
        )
