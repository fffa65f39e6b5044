"""What a cutover that was killed or has failed leaves on either side: no slot, no lock that is of no use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.cutting import (
    HOW,
    application,
    cut_over,
    fill,
    is_equal,
    killed_before,
    slots,
    started,
    switch_back,
)
from truecopy.transfer.cutover.settings import Commands
from truecopy.transfer.cutover.standing import standing
from truecopy.transfer.cutover.state import CERTIFIED, SWITCHED
from truecopy.transfer.proof.shrinking import Shrunk
from truecopy.transfer.run import Transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_killed_after_the_slot_of_the_old_side_is_gone(
    spark: SparkSession,
    postgres_db: Database,
    mariadb_db: Database,
) -> None:
    """Writers are in the new side by then: what is left must not need the old one's log."""
    fill(postgres_db, 20)
    settings = started(postgres_db, mariadb_db)
    with application(postgres_db) as old, application(mariadb_db) as new:
        killed_before(SWITCHED, settings)
        new.execute("UPDATE notes SET body = 'new' WHERE id = 3")
        report = cut_over(settings)
        assert report.state == "switched", report.reason
        assert any("stay revoked" in line for line in report.said)
        assert not old.can_write()
        assert not slots(postgres_db)
        Transfer(standing(settings)).run(until_caught_up=True)
        assert is_equal(postgres_db, mariadb_db)


@pytest.mark.long
def test_a_switch_back_that_fails_leaves_no_slot_on_the_old_side(
    spark: SparkSession,
    postgres_db: Database,
    mariadb_db: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(postgres_db, 20)
    settings = started(postgres_db, mariadb_db)
    with application(postgres_db) as old, application(mariadb_db) as new:
        assert cut_over(settings).state == "switched"
        with monkeypatch.context() as patch:
            patch.setattr(Shrunk, "fits", lambda *_: False)
            assert switch_back(settings).state == "rolled-back"
        assert not slots(postgres_db)
        assert (old.can_write(), new.can_write()) == (False, True)
        assert switch_back(settings).state == "switched"
        assert (old.can_write(), new.can_write()) == (True, False)


@pytest.mark.long
def test_a_rehearsal_after_a_kill_removes_the_slot_of_the_way_back(
    spark: SparkSession,
    mariadb_db: Database,
    postgres_db: Database,
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, postgres_db)
    with application(mariadb_db) as old:
        killed_before(CERTIFIED, settings)
        assert slots(postgres_db)
        assert not old.can_write()
        assert cut_over(settings, rehearse=True).state == "rehearsed"
        assert not slots(postgres_db)
        assert old.can_write()


@pytest.mark.long
def test_who_was_moved_by_a_switch_that_failed_cannot_write_to_the_new_side(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """A row that one of them wrote there would be on no other side, and would be lost at the next switch."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    with application(mariadb_db) as old, application(second_mariadb_db) as new:
        report = cut_over(settings, replace(HOW, commands=Commands(switch="exit 4")))
        assert report.state == "rolled-back"
        assert (old.can_write(), new.can_write()) == (True, False)
        assert any("read-only" in line for line in report.said)
        old.execute("UPDATE notes SET body = 'on' WHERE id = 3")
        Transfer(settings).run(until_caught_up=True)
        assert is_equal(mariadb_db, second_mariadb_db)
        assert cut_over(settings, rehearse=True).state == "rehearsed"
        assert cut_over(settings).state == "switched"
        assert (old.can_write(), new.can_write()) == (False, True)
