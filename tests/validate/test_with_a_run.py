"""A run that lasts brings its validation with it, however it is started."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.validate.watching import Watched, copied, replicating, wait_for
from truecopy.metastore.validations import Validations
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.cutover.back import way_back
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

OPTIONS = ContinuousOptions(validate_interval=1.0, row_error_delay=1.0)


def test_a_run_validates_what_it_replicates(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url, continuous=OPTIONS)
    copied(settings)
    assert Validations().find(task) is None  # a run that ends by itself has nobody to tell
    target.execute(
        "CREATE TRIGGER spoil BEFORE INSERT ON t FOR EACH ROW SET NEW.v = IF(NEW.id = 2, -1, NEW.v)"
    )
    watched = Watched(task, threading.Lock())
    with replicating(settings):
        wait_for(lambda: Validations().find(task) is not None)
        source.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
        (error,) = watched.until_errors(1)
        assert (error.key, error.source, error.target) == ({"id": "2"}, {"v": "2"}, {"v": "-1"})
        assert watched.standing.state == "running"
        assert watched.standing.standing.report["applied_by"] == "task"
    assert watched.standing.state == "stopped"
    assert not watched.standing.standing.stop_asked


def test_one_that_was_stopped_by_hand_stays_so(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url, continuous=OPTIONS)
    watched = Watched(task, threading.Lock())
    with replicating(settings):
        wait_for(lambda: Validations().find(task) is not None)
        Validations().ask_stop(task)
        watched.until(lambda: watched.standing.state == "stopped", "stopped by hand")
        source.execute("INSERT INTO t VALUES (1, 1)")
        wait_for(lambda: target.execute("SELECT v FROM t") == [(1,)])
    with replicating(settings):
        source.execute("INSERT INTO t VALUES (2, 2)")
        wait_for(lambda: len(target.execute("SELECT v FROM t")) == 2)
    assert (watched.standing.state, watched.processed()) == ("stopped", 0)


def test_the_way_back_is_not_validated() -> None:
    forth = Settings("t", "sqlite:///a.db", "sqlite:///b.db", continuous=OPTIONS)
    assert way_back(forth, {}).continuous is None
