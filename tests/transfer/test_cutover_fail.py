"""Cutovers that fail where it is least convenient: nothing stays behind, and nobody stays locked out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database, MariaDB
from tests.transfer.cutting import HOW, application, cut_over, fill, is_equal, started
from truecopy.model.errors import CannotFinish
from truecopy.transfer.cutover.state import HELD, TURNED
from truecopy.transfer.run import Transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_replication_that_fails_leaves_no_slot_of_the_way_back(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    """The target's log would be held for ever by a slot that nobody reads."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, postgres_db)
    postgres_db.execute("ALTER TABLE notes ADD CHECK (id < 1000)")
    mariadb_db.execute("INSERT INTO notes VALUES (1000, 'refused')")
    report = cut_over(settings)
    assert (report.state, report.downtime_seconds) == ("rolled-back", 0.0)
    assert "notes" in report.reason
    assert not postgres_db.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    )


def test_a_lost_connection_at_the_decision_lets_writers_in_again(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)

    def cut_connections(line: str) -> None:
        if TURNED in line:
            _kill_sessions(second_mariadb_db)

    with application(mariadb_db) as app:
        report = cut_over(settings, said=cut_connections)
        assert (report.state, report.exit_code) == ("rolled-back", 3)
        assert app.can_write()
        Transfer(settings).run(until_caught_up=True)
        assert is_equal(mariadb_db, second_mariadb_db)


@pytest.mark.long
def test_a_target_that_is_gone(spark: SparkSession, mariadb_db: Database) -> None:
    """Before the decision writers are let in again; after it nobody knows, and that is said."""
    fill(mariadb_db, 20)
    machine = MariaDB()
    with machine as server, application(mariadb_db) as app:
        target = server.create_database("gone")
        settings = started(mariadb_db, target)
        report = cut_over(settings, said=_at(HELD, lambda: _end(machine)))
        assert report.state == "rolled-back"
        assert any("under way" in line for line in report.said)
        assert app.can_write()
        machine._start()
        with pytest.raises(CannotFinish, match="finishes it, or lets them in"):
            cut_over(settings, said=_at(TURNED, lambda: _end(machine)))
        assert not app.can_write(), "they are STILL LOCKED OUT, as was said"
        machine._start()
        assert cut_over(settings, HOW).state == "switched"
        assert is_equal(mariadb_db, target)


def _at(step: str, act: Callable[[], object]) -> Callable[[str], None]:
    """Does something once, when a step is told."""
    left = [act]

    def said(line: str) -> None:
        if f": {step} (" in line and left:
            left.pop()()

    return said


def _end(machine: MariaDB) -> None:
    assert machine._process is not None
    machine._process.kill()
    machine._process.wait()


def _kill_sessions(database: Database) -> None:
    sessions = database.execute(
        "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    )
    for (number,) in sessions:
        database.execute(f"KILL {number}")
