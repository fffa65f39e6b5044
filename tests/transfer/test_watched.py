"""A run whose verifiers watch: what somebody else did to the target fails it, and its own writes do not."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.load import fill, writing
from truecopy.model.errors import CannotFinish
from truecopy.transfer.proof.verifier import NotProven
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def watched(source: Database, target: Database) -> Transfer:
    verify = ("inline", "target")
    return Transfer(Settings("watched", source.url, target.url, chunk_rows=500, verify=verify))


@pytest.mark.long
def test_its_own_writes_pass(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 1000)
    with writing(mariadb_db, 1000):
        watched(mariadb_db, second_mariadb_db).run(until_caught_up=True)
    mariadb_db.execute("ALTER TABLE items ADD COLUMN more INT")
    mariadb_db.execute("UPDATE items SET more = 1 WHERE id < 100")
    watched(mariadb_db, second_mariadb_db).run(until_caught_up=True)


def test_a_row_that_somebody_else_wrote_fails_the_run(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 200)
    watched(mariadb_db, second_mariadb_db).run(until_caught_up=True)
    second_mariadb_db.execute("UPDATE items SET name = 'rogue' WHERE id = 7")
    with pytest.raises(NotProven, match="id=7"):
        watched(mariadb_db, second_mariadb_db).run(until_caught_up=True)


@pytest.mark.slow
def test_a_rogue_write_ends_a_run_that_replicates(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 200)
    failures = list[BaseException]()

    def run() -> None:
        try:
            watched(mariadb_db, second_mariadb_db).run()
        except CannotFinish as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    with writing(mariadb_db, 200):
        time.sleep(30)
        assert not failures
        second_mariadb_db.execute("DELETE FROM items WHERE id = 7")
        thread.join(60)
    assert "7" in str(failures[0])
