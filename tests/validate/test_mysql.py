"""Beside a replica of MySQL itself, which says how far it is, though not in the state that rows are read in."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database, MySQL
from tests.validate.watching import beside, validating
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(900), pytest.mark.mysql]


@pytest.fixture
def pair() -> Iterator[tuple[Database, Database]]:
    """A database of a primary, and the same one of its replica."""
    mysqld = os.environ.get("TRUECOPY_MYSQLD")
    if not mysqld:
        pytest.skip("TRUECOPY_MYSQLD names no mysqld (`make mysql` fetches one)")
    gtids = "--gtid-mode=ON", "--enforce-gtid-consistency=ON"
    with ExitStack() as servers:
        primary, replica = (
            servers.enter_context(MySQL(mysqld, *gtids, f"--server-id={number}"))
            for number in (51, 52)
        )
        replica.execute(
            None,
            f"CHANGE REPLICATION SOURCE TO source_host='127.0.0.1', source_port={primary.port},"
            f" source_user='root', source_password='{primary.password}', source_auto_position=1, source_ssl=1;"
            " START REPLICA",
        )
        yield primary.create_database("native"), Database(replica, "native")


def applied(source: Database, target: Database) -> None:
    """Waits until the replica has everything."""
    ((position,),) = source.execute("SELECT @@GLOBAL.gtid_executed")
    assert target.server.execute(None, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{position}', 60)") == [
        (0,)
    ]


def test_beside_a_native_replica(
    spark: SparkSession, pair: tuple[Database, Database], task: str
) -> None:
    source, target = pair
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    source.executemany("INSERT INTO t VALUES (%s, 0)", [(n,) for n in range(100)])
    applied(source, target)
    over = threading.Event()

    def write() -> None:
        with closing(source.connect()) as connection, connection.cursor() as cursor:
            while not over.wait(0.05):
                cursor.execute("UPDATE t SET v = v + 1 WHERE id BETWEEN 50 AND 99")

    with (
        beside(write, over.set),
        validating(Settings(task, source.url, target.url), row_error_delay=2.0) as watched,
    ):
        watched.until(lambda: watched.standing.plain()["applied_by"] == "replica", "it runs")
        with watched.between_checks:
            source.execute("UPDATE t SET v = -5 WHERE id < 10")
            applied(source, target)
            # Logged on the replica, whose position then holds what its source never had.
            target.execute("UPDATE t SET v = 7 WHERE id < 3")
            target.execute("DELETE FROM t WHERE id = 3")
        errors = watched.until_errors(4)
        time.sleep(5)  # rows that are written all the time are no errors
        assert {(error.key["id"], error.kind) for error in watched.new} == {
            ("0", "differs"),
            ("1", "differs"),
            ("2", "differs"),
            ("3", "missing"),
        }
        assert len(errors) == 4
