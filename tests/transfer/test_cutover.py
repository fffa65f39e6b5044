"""Cutovers on real servers: rehearsed, rolled back, done, and back again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database, MariaDB
from tests.transfer.cutting import HOW, application, cut_over, fill, is_equal, started, switch_back
from truecopy.model.errors import UsageError
from truecopy.transfer.cutover.facts import CutoverReport
from truecopy.transfer.cutover.standing import settings_back, standing
from truecopy.transfer.cutover.state import HELD
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rehearse_cut_over_and_switch_back(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db)
    mariadb_db.execute("ALTER TABLE orders AUTO_INCREMENT = 5000")
    settings = started(mariadb_db, second_mariadb_db)
    with application(mariadb_db) as old, application(second_mariadb_db) as new:
        old.execute("UPDATE orders SET total = total + 1")
        rehearsed = cut_over(settings, rehearse=True)
        assert (rehearsed.state, rehearsed.exit_code) == ("rehearsed", 0)
        assert 0 < rehearsed.downtime_seconds < HOW.max_downtime
        assert old.can_write()

        old.execute("DELETE FROM notes WHERE id > 290")
        report = cut_over(settings)
        assert report.state == "switched", report.reason
        assert not old.can_write()
        assert any("stays read-only" in line for line in report.said)
        _check_certificate(report, mariadb_db, 300 + 290)
        assert is_equal(mariadb_db, second_mariadb_db)
        new.execute("INSERT INTO orders (code, total) VALUES ('first', 1)")
        ((number,),) = second_mariadb_db.execute("SELECT id FROM orders WHERE code = 'first'")
        assert number == 5000, "the numbers of the source go on"
        with pytest.raises(UsageError, match="cut over already"):
            cut_over(settings)
        with pytest.raises(UsageError, match="took over"):
            Transfer(settings).run(until_caught_up=True)

        new.execute("UPDATE notes SET body = 'from the new side' WHERE id = 7")
        Transfer(standing(settings)).run(until_caught_up=True)
        assert is_equal(mariadb_db, second_mariadb_db)
        new.execute("DELETE FROM orders WHERE id < 10")
        returned = switch_back(settings)
        assert returned.state == "switched", returned.reason
        assert is_equal(mariadb_db, second_mariadb_db)
        assert old.can_write()
        assert not new.can_write()

        old.execute("UPDATE notes SET body = 'forth again' WHERE id = 8")
        assert standing(settings) == settings
        Transfer(settings).run(until_caught_up=True)
        assert is_equal(mariadb_db, second_mariadb_db)


def _check_certificate(report: CutoverReport, source: Database, rows: int) -> None:
    certificate = json.loads(Path(report.certificate).read_text(encoding="utf-8"))
    assert certificate["verdict"] == "equal"
    assert certificate["source"]["position_after"] == report.position
    assert sum(table["rows_compared"] for table in certificate["tables"]) == rows
    for table in certificate["tables"]:
        assert table["source_digest"] == table["target_digest"] != {"count": 0, "sum": "0"}
    assert any("inline" in line for line in certificate["cutover"]["Verifiers"])
    page = Path(report.certificate).with_suffix(".html").read_text(encoding="utf-8")
    assert "How it was cut over" in page
    assert source.server.password not in page


@pytest.mark.long
def test_a_difference_lets_writers_in_again(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """Somebody writes to the target at the last moment, when nothing but the last verification can see it."""
    fill(mariadb_db)
    settings = started(mariadb_db, second_mariadb_db)

    def spoil(line: str) -> None:
        if HELD in line:
            second_mariadb_db.execute("UPDATE notes SET body = 'rogue' WHERE id = 3")

    with application(mariadb_db) as app:
        report = cut_over(settings, said=spoil)
        assert (report.state, report.exit_code) == ("rolled-back", 3)
        assert "notes" in report.reason
        assert app.can_write()
        # Before writers are locked out, it is found as well.
        again = cut_over(settings)
        assert (again.state, again.downtime_seconds) == ("rolled-back", 0.0)
        # The task goes on, and once the row is right again, so does the cutover.
        app.execute("UPDATE notes SET body = 'right' WHERE id = 3")
        Transfer(standing(settings)).run(until_caught_up=True)
        assert cut_over(settings).state == "switched"
        assert not app.can_write()


def test_a_write_that_passes_the_lock_is_found(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """A read-only MariaDB does not stop a superuser; its log tells."""
    fill(mariadb_db)
    settings = started(mariadb_db, second_mariadb_db)

    def write(line: str) -> None:
        if "verified" in line:
            mariadb_db.execute("DELETE FROM notes WHERE id = 5")

    with application(mariadb_db) as app:
        report = cut_over(settings, said=write)
        assert report.state == "rolled-back"
        assert "after writers were locked out" in report.reason
        assert app.can_write()


@pytest.mark.long
def test_what_refuses_a_cutover_refuses_its_rehearsal(
    spark: SparkSession, mariadb_db: Database
) -> None:
    fill(mariadb_db, 20)
    with MariaDB("--skip-log-bin") as server:
        settings = started(mariadb_db, server.create_database("unlogged"))
        for rehearse in (True, False):
            with pytest.raises(UsageError, match="there would be no way back"):
                cut_over(settings, rehearse=rehearse)
            with pytest.raises(UsageError, match=r"give cutover\.commands\.switch"):
                cut_over(settings, replace(HOW, lock="tables"), rehearse=rehearse)


@pytest.mark.slow
def test_a_rehearsal_leaves_nothing_that_looks_rogue(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """AUTO_INCREMENT is set by a statement that the target's log keeps, with our mark."""
    fill(mariadb_db, 50)
    verify = ("inline", "target")
    settings = Settings("cut", mariadb_db.url, second_mariadb_db.url, verify=verify)
    Transfer(settings).run(until_caught_up=True)
    how = replace(HOW, verify=verify)
    with application(mariadb_db) as app:
        assert cut_over(settings, how, rehearse=True).state == "rehearsed"
        app.execute("UPDATE notes SET body = 'later'")
        Transfer(settings).run(until_caught_up=True)
        report = cut_over(settings, how)
        assert report.state == "switched", report.reason
    assert is_equal(mariadb_db, second_mariadb_db)


def test_what_cannot_be_cut_over_is_refused(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 10)
    settings = Settings("cut", mariadb_db.url, second_mariadb_db.url)
    with pytest.raises(UsageError, match="truecopy run"):
        cut_over(settings)
    Transfer(settings).run(until_caught_up=True)
    epoch = second_mariadb_db.execute("SELECT epoch FROM truecopy_task")
    with pytest.raises(UsageError, match="table locks end with the cutover"):
        cut_over(settings, replace(HOW, lock="tables"))
    assert second_mariadb_db.execute("SELECT epoch FROM truecopy_task") == epoch, "a run goes on"
    late = cut_over(settings, replace(HOW, max_lag=0.0, max_wait=1.0))
    assert (late.state, late.downtime_seconds) == ("rolled-back", 0.0)
    assert "behind for 1 s" in late.reason
    assert settings_back(settings) is None
