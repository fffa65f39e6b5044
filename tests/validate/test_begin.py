"""Where a validation begins: at a time, at a token, and anew at another place than it stands at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database, MariaDB
from tests.validate.watching import Watched, begun, copied, validating
from truecopy.model.errors import UsageError
from truecopy.model.position import parse_position
from truecopy.model.token import EventToken
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.continuous.validator import Validator
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def whole_log_db() -> Iterator[Database]:
    """A server whose log nobody purged: only such a one is known to reach back to a time of this hour."""
    with MariaDB() as server:
        yield server.create_database("shop")


@pytest.mark.long
def test_it_begins_at_a_time_or_a_token(
    spark: SparkSession, whole_log_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = whole_log_db, second_mariadb_db
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    copied(settings)
    token = here(source)
    source.execute("INSERT INTO t VALUES (1, 1)")
    time.sleep(2.2)  # commits are known by the second
    between = datetime.now(UTC)
    time.sleep(1.1)
    source.execute("INSERT INTO t VALUES (2, 2)")
    copied(settings)
    target.execute("UPDATE t SET v = -1")
    with validating(settings, between.isoformat(), row_error_delay=1.0) as watched:
        assert keys(watched, 1) == {"2"}
        assert watched.processed() == 1
    with validating(settings, token, row_error_delay=1.0) as watched:
        assert keys(watched, 2) == {"1", "2"}
        assert watched.processed() == 3  # both from there on, after the one
        assert len(watched.errors) == 2


def test_beginning_elsewhere_lets_go_of_what_is_pending(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    copied(settings)
    target.execute("DELETE FROM t WHERE id = 1")
    with validating(settings, row_error_delay=600.0) as watched:
        watched.until(lambda: watched.standing.pending.total == 1, "one is pending")
    with validating(settings) as watched:
        watched.until(lambda: bool(watched.standing.standing.report), "it runs")
        assert watched.standing.pending.total == 1
    with validating(settings, "current") as watched:
        watched.until_settled()
    assert target.execute("SELECT id FROM t") == [(2,)]
    assert not watched.errors


def test_what_is_no_point_in_time_is_refused(
    mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    settings = Settings(task, mariadb_db.url, second_mariadb_db.url)
    with pytest.raises(UsageError, match="yesterday"):
        Validator(settings, ContinuousOptions()).begin("yesterday")


def here(source: Database) -> str:
    """A token of where the log ends."""
    ((position,),) = source.execute("SELECT @@gtid_binlog_pos")
    return str(EventToken(0, source.name, parse_position(position)))


def keys(watched: Watched, count: int) -> set[str | None]:
    errors = watched.until_errors(count)
    watched.until_settled()
    return {error.key["id"] for error in errors}
