"""A source that keeps its log for each reader keeps it for a validation until what was read is stored."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.validate.watching import Watched, copied, replicating, validating, wait_for
from truecopy.metastore.validations import Validations
from truecopy.transfer.continuous import releasing
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.deletion import delete_task
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

OPTIONS = ContinuousOptions(validate_interval=1.0, row_error_delay=1.0)
NEVER = 3600.0


@dataclass(frozen=True)
class Source:
    """What keeps its log."""

    url: str
    execute: Callable[[str], object]


@pytest.fixture(params=["postgresql", "sqlite"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    if request.param == "postgresql":
        database: Database = request.getfixturevalue("postgres_db")
        return Source(database.url, database.execute)
    file = tmp_path / "source.db"

    def execute(statement: str) -> None:
        with closing(sqlite3.connect(file, timeout=30)) as connection, connection:
            connection.execute(statement)

    return Source(f"sqlite:///{file}", execute)


@pytest.fixture
def settings(source: Source, mariadb_db: Database, task: str) -> Iterator[Settings]:
    source.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT)")
    made = Settings(task, source.url, mariadb_db.url, continuous=OPTIONS)
    yield made
    delete_task(made)  # with the slots, which a server has few of


@pytest.mark.long
@pytest.mark.parametrize("is_copied_before", [False, True], ids=["from the copy", "on the fly"])
def test_a_run_validates_what_it_replicates(
    spark: SparkSession,
    source: Source,
    mariadb_db: Database,
    settings: Settings,
    is_copied_before: bool,
) -> None:
    if is_copied_before:
        copied(settings)
        source.execute("INSERT INTO t VALUES (100, 1)")
    watched = Watched(settings.task, threading.Lock())
    with replicating(settings):
        wait_for(lambda: Validations().find(settings.task) is not None)
        mariadb_db.execute(
            "CREATE TRIGGER spoil BEFORE INSERT ON t FOR EACH ROW SET NEW.v = IF(NEW.id = 2, -1, NEW.v)"
        )
        source.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
        (error,) = watched.until_errors(1)
        assert (error.key, error.source, error.target) == ({"id": "2"}, {"v": "2"}, {"v": "-1"})
        watched.until_processed(3)
        assert watched.standing.state == "running"


@pytest.mark.long
def test_what_was_only_held_is_read_again(
    spark: SparkSession, source: Source, settings: Settings
) -> None:
    plain = Settings(settings.task, settings.source, settings.target)
    copied(plain)
    with replicating(plain):
        with validating(settings, "current", validate_interval=NEVER) as watched:
            for number in range(5):  # batches of their own
                source.execute(f"INSERT INTO t VALUES ({number}, {number})")
                _until_held(watched, number + 1)
            assert watched.processed() == 0
        with validating(settings) as watched:
            watched.until_processed(5)
            watched.until_settled()
            assert not watched.errors


@pytest.mark.long
@pytest.mark.parametrize("source", ["sqlite"], indirect=True)  # segments of a spool are large
def test_what_is_stored_is_let_go_of(
    spark: SparkSession,
    source: Source,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(releasing, "_SECONDS", 0.5)

    def oldest() -> int:
        with closing(sqlite3.connect(source.url.removeprefix("sqlite:///"))) as connection:
            ((found,),) = connection.execute("SELECT min(sequence) FROM truecopy_log").fetchall()
        return int(found)

    plain = Settings(settings.task, settings.source, settings.target)
    copied(plain)
    with replicating(plain), validating(settings, "current") as watched:
        begin = oldest()
        for number in count(1):  # a batch is let go of with the next one
            source.execute(f"INSERT INTO t VALUES ({number}, {number})")
            watched.until_processed(number)
            if oldest() >= begin + 5:
                break
            assert number < 60


def _until_held(watched: Watched, changes: int) -> None:
    def held() -> int:
        report = watched.standing.standing.report or {}
        return int(report.get("held_changes", 0))

    watched.until(lambda: held() >= changes, f"{changes} changes are read")
