"""Events of a run that fails: its phases in order, one reason, and no password."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Database, MariaDB
from tests.transfer.cutting import wait_until
from tests.transfer.load import fill
from tests.transfer.test_webhook import Receiver, receiver
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.secret import Secret
from truecopy.transfer.limits import Limits
from truecopy.transfer.run import RunReport, Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.webhook import Hook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Telling:
    """A run that lasts, and whoever is told of it."""

    there: Receiver
    run: Future[RunReport]

    def states(self) -> list[str]:
        return [one["state"] for one in self.there.got if one["event"] == "state"]

    def errors(self) -> list[dict[str, Any]]:
        return [one for one in self.there.got if one["event"] == "error"]

    def await_state(self, state: str) -> None:
        wait_until(lambda: state in self.states() or self.run.done())
        assert state in self.states(), self.run.result()


@contextmanager
def telling(source: Database, target: Database, **more: Any) -> Iterator[Telling]:
    """A run that goes on until it fails, or the block ends."""
    with receiver() as there, ThreadPoolExecutor(1) as beside:
        asked = Settings(
            "move", source.url, target.url, chunk_rows=50, hook=Hook(Secret(there.url)), **more
        )
        work = Transfer(asked)
        try:
            yield Telling(there, beside.submit(work.run))
        finally:
            work.stop()


@pytest.mark.long
@pytest.mark.parametrize("moment", ["copy", "replication"])
def test_a_row_that_the_target_refuses(
    spark: SparkSession, mariadb_db: Database, moment: str
) -> None:
    """What refuses it says every password that there is, and the replica did not replicate at first."""
    fill(mariadb_db, 200)
    bad = 150 if moment == "copy" else 1000
    with MariaDB() as primary, MariaDB() as replica:
        replica.execute(
            None,
            f"CHANGE MASTER TO master_host='127.0.0.1', master_port={primary.port}, master_user='root',"
            f" master_password='{primary.password}', master_use_gtid=slave_pos",
        )
        target = primary.create_database("shop")
        passwords = [mariadb_db.server.password, primary.password, replica.password]
        fill(target, 0)
        target.execute(
            "CREATE TRIGGER picky BEFORE INSERT ON items FOR EACH ROW"
            f" IF NEW.id = {bad} THEN"
            f" SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one: {' '.join(passwords)}';"
            " END IF"
        )
        limits = Limits(replicas=(replica.url(),), max_lag=60.0)
        with telling(mariadb_db, target, limits=limits) as told:
            told.await_state("waiting")
            replica.execute(None, "START SLAVE")
            if moment == "replication":
                told.await_state("replicate")
                mariadb_db.execute(f"INSERT INTO items (id, code) VALUES ({bad}, 'bad')")
            with pytest.raises(CannotFinish, match="not this one"):
                told.run.result(120)
    phases = [] if moment == "copy" else ["replay", "replicate"]
    assert told.states() == ["snapshot", "waiting", "snapshot", *phases, "stopped"]
    assert "does not replicate" in told.there.got[1]["reason"]
    (error,) = told.errors()
    assert "not this one: *** *** ***" in error["message"]
    assert [one["event"] for one in told.there.got][-2:] == ["error", "state"]
    for password in passwords:
        assert password not in json.dumps(told.there.got)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["second_mariadb_db", "postgres_db"])
def test_a_database_that_goes_away(
    spark: SparkSession, mariadb_db: Database, request: pytest.FixtureRequest, kind: str
) -> None:
    fill(mariadb_db, 200)
    target: Database = request.getfixturevalue(kind)
    with telling(mariadb_db, target) as told:
        told.await_state("replicate")
        target.server.drop_database(target.name)
        mariadb_db.execute("UPDATE items SET price = price + 1")
        with pytest.raises(TruecopyError):
            told.run.result(120)
    assert told.states() == ["snapshot", "replay", "replicate", "stopped"]
    (error,) = told.errors()
    assert target.name in error["message"]
    for database in (mariadb_db, target):
        assert database.server.password not in json.dumps(told.there.got)
