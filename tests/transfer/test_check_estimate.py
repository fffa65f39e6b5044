"""How long `truecopy check` thinks that a copy takes, with the limits of the task, and what that means for the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import Database
from tests.transfer.checking import check, found
from truecopy.model.errors import UsageError
from truecopy.model.finding import Level, Subject
from truecopy.model.hours import parse_hours
from truecopy.model.table import Table, TableName
from truecopy.transfer.limits import Limits
from truecopy.transfer.preflight.estimate import estimate

HOUR = 3600.0
ROWS = 72_000


def seconds(rows: int, *hours: str, rate: int = 0) -> float:
    table = Table(TableName("shop", "items"), (), rows=rows, row_bytes=1)
    return estimate([table], Limits(rate, hours=tuple(map(parse_hours, hours)))).seconds


def test_the_rate_of_the_task_is_the_one_that_is_guessed_with() -> None:
    assert seconds(ROWS) == pytest.approx(3.6)
    assert seconds(ROWS, rate=500) == pytest.approx(144)
    assert seconds(ROWS, rate=1_000_000) == pytest.approx(3.6), "no faster than it is"


def test_hours_are_waited_for() -> None:
    an_hour = 3600 * 20_000
    assert seconds(an_hour, "22:00-06:00") == 17 * HOUR, "begun at six"
    assert seconds(20 * an_hour, "22:00-06:00") == 2 * 24 * HOUR + 16 * HOUR + 4 * HOUR
    assert seconds(an_hour, "01:00-02:00", "03:00-04:30") == (20.5 + 1) * HOUR, (
        "after half past four"
    )
    assert seconds(an_hour, "00:00-12:00", "12:00-00:00") == HOUR, "that is all day"
    with pytest.raises(UsageError, match="have no time in them"):
        seconds(an_hour, "10:00-10:00")


@pytest.fixture
def kept_for_an_hour(mariadb_db: Database) -> Iterator[Database]:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    mariadb_db.execute(f"INSERT INTO t SELECT seq FROM seq_1_to_{ROWS}")
    mariadb_db.execute("SET GLOBAL binlog_expire_logs_seconds = 3600")
    yield mariadb_db
    mariadb_db.execute("SET GLOBAL binlog_expire_logs_seconds = 0")


@pytest.mark.parametrize(
    ("limits", "level"),
    [
        (Limits(), Level.INFO),
        (Limits(rate=50), Level.WARNING),
        (Limits(rate=10), Level.ERROR),
        (Limits(hours=(parse_hours("22:00-06:00"),)), Level.ERROR),
    ],
    ids=["no limits", "slow", "slower", "at night"],
)
def test_the_log_must_be_kept_for_as_long_as_a_limited_copy_takes(
    kept_for_an_hour: Database, second_mariadb_db: Database, limits: Limits, level: Level
) -> None:
    report = check(kept_for_an_hour, second_mariadb_db, limits=limits)
    assert found(report, Subject.LOG, "binlog_expire_logs_seconds").level is level
    assert report.is_ready is (level is not Level.ERROR)
