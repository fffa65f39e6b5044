"""What fails for a while is tried again, and what fails for good stops a validation with the reason."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.validate.watching import beside, validating, wait_for
from truecopy.metastore.validations import Validations
from truecopy.model.errors import CannotFinish
from truecopy.transfer.continuous import trying
from truecopy.transfer.continuous.options import LAG, ContinuousOptions
from truecopy.transfer.continuous.trying import Tries, metastore_explained
from truecopy.transfer.continuous.validator import Validator
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)


def test_it_is_given_up_after_the_last_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "PAUSES", (1.0, 2.0))
    tries, error = Tries(), CannotFinish("gone")
    assert [tries.pause_after(error), tries.pause_after(error)] == [1.0, 2.0]
    with pytest.raises(CannotFinish, match="gone"):
        tries.pause_after(error)
    tries.succeeded()
    assert tries.pause_after(error) == 1.0


class Guest:
    """A reader of the target who can be shut out."""

    def __init__(self, target: Database, name: str) -> None:
        self._target, self._name = target, name
        target.execute(f"CREATE USER {name}@'%' IDENTIFIED BY 'only-here'")
        target.execute(f"GRANT SELECT ON {target.name}.* TO {name}@'%'")
        where = target.url.rpartition("@")[2]
        self.url = f"mariadb://{name}:only-here@{where}"

    def shut_out(self) -> None:
        self._target.execute(f"ALTER USER {self._name}@'%' ACCOUNT LOCK")
        self._target.execute(f"KILL USER {self._name}")

    def let_in(self) -> None:
        self._target.execute(f"ALTER USER {self._name}@'%' ACCOUNT UNLOCK")


@pytest.fixture
def guest(mariadb_db: Database, second_mariadb_db: Database, task: str) -> Guest:
    for database in (mariadb_db, second_mariadb_db):
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    return Guest(second_mariadb_db, f"u{task[-8:]}")


def waits(task: str) -> str:
    standing = Validations().find(task)
    return str(standing.report.get("waits") or "") if standing else ""


def runs(task: str) -> bool:
    standing = Validations().find(task)
    return standing is not None and bool(standing.report.get("applied_by"))


@pytest.mark.long
def test_a_target_that_is_gone_stops_it(
    spark: SparkSession,
    mariadb_db: Database,
    guest: Guest,
    task: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trying, "PAUSES", (0.1, 0.1, 0.1))
    options = ContinuousOptions(validate_interval=1.0, applied=LAG, lag=0.0)
    validator = Validator(Settings(task, mariadb_db.url, guest.url), options)

    def lose() -> None:
        wait_for(lambda: runs(task))
        guest.shut_out()
        mariadb_db.execute("INSERT INTO t VALUES (1, 1)")

    too_long = threading.Timer(90, validator.stop)
    too_long.start()
    with beside(lose, lambda: None), pytest.raises(CannotFinish, match="locked"):
        validator.run()
    too_long.cancel()
    standing = Validations().find(task)
    assert standing is not None
    assert standing.state == "stopped"
    assert "locked" in standing.message
    assert standing.position  # which it begins at again


@pytest.mark.long
def test_a_target_that_comes_back_is_gone_on_with(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    guest: Guest,
    task: str,
) -> None:
    settings = Settings(task, mariadb_db.url, guest.url)
    with validating(settings, applied=LAG, lag=0.0, row_error_delay=1.0) as watched:
        watched.until(lambda: runs(task), "it runs")
        guest.shut_out()
        mariadb_db.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        watched.until(lambda: "tries again after" in waits(task), "it waits", 60)
        second_mariadb_db.execute("INSERT INTO t VALUES (1, 1)")
        guest.let_in()
        (error,) = watched.until_errors(1, 60)
        assert (error.key, error.kind) == ({"id": "2"}, "missing")
        assert watched.processed() == 2
        watched.until(lambda: not waits(task), "nothing is waited for", 60)


@contextmanager
def without_a_table(state_folder: Path) -> Iterator[None]:
    """The metastore fails for as long as the block runs."""
    with closing(sqlite3.connect(state_folder / "metastore.db", timeout=20)) as metastore:
        metastore.execute("ALTER TABLE validation_pending RENAME TO away")
        try:
            yield
        finally:
            metastore.execute("ALTER TABLE away RENAME TO validation_pending")


@pytest.mark.long
def test_a_metastore_that_fails_for_a_while_is_gone_on_with(
    spark: SparkSession, mariadb_db: Database, guest: Guest, task: str, state_folder: Path
) -> None:
    settings = Settings(task, mariadb_db.url, guest.url)
    with validating(settings, applied=LAG, lag=0.0, row_error_delay=1.0) as watched:
        watched.until(lambda: runs(task), "it runs")
        with without_a_table(state_folder):
            wait_for(lambda: "the metastore cannot be used" in waits(task), 60)
            assert "SELECT" not in waits(task)
        # Nothing changes on the source: it is well again because it could ask.
        watched.until(lambda: not waits(task), "nothing is waited for", 60)
        time.sleep(2)
        mariadb_db.execute("INSERT INTO t VALUES (1, 1)")
        watched.until_errors(1, 60)


def test_a_metastore_that_fails_is_told_in_one_line(task: str, state_folder: Path) -> None:
    store = Validations()
    with (
        without_a_table(state_folder),
        pytest.raises(CannotFinish) as failed,
        metastore_explained(),
    ):
        store.pending(task)
    assert "no such table" in str(failed.value)
    assert task not in str(failed.value)
