"""The target is watched until right before writers are let in: whoever else writes there is named, and it is undone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.cutting import HOW, application, cut_over, fill, is_equal, slots
from truecopy.spark import state_folder
from truecopy.transfer.cutover.state import CERTIFIED, NUMBERED, TURNED, VERIFIED
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERIFY = ("inline", "target")


@pytest.mark.long
@pytest.mark.parametrize("target_fixture", ["second_mariadb_db", "postgres_db"])
def test_a_rogue_write_after_the_last_look_at_rows(
    spark: SparkSession,
    mariadb_db: Database,
    target_fixture: str,
    request: pytest.FixtureRequest,
) -> None:
    target: Database = request.getfixturevalue(target_fixture)
    fill(mariadb_db, 50)
    mariadb_db.execute("ALTER TABLE orders AUTO_INCREMENT = 500")
    settings = Settings("cut", mariadb_db.url, target.url, verify=VERIFY)
    Transfer(settings).run(until_caught_up=True)
    how, before = replace(HOW, verify=VERIFY), certificates()

    with application(mariadb_db) as app:
        for step, rehearse in (
            (VERIFIED, False),
            (NUMBERED, False),
            (TURNED, False),
            (CERTIFIED, True),
        ):
            report = cut_over(settings, how, rehearse=rehearse, said=_spoiling(target, step))
            assert report.state == "rolled-back", step
            assert "id=3 of" in report.reason, step
            assert "by somebody else" in report.reason, step
            assert app.can_write()
            assert is_spoilt(target)
            assert (report.certificate, certificates()) == ("", before), "none of what was undone"
            target.execute("UPDATE notes SET body = 'note 3' WHERE id = 3")

        report = cut_over(settings, how)
        assert report.state == "switched", report.reason
        assert is_equal(mariadb_db, target)
        if target_fixture == "postgres_db":
            assert len(slots(target)) == 1, "that of the way back"


def certificates() -> set[Path]:
    return set((state_folder() / "certificates").glob("*"))


def is_spoilt(target: Database) -> bool:
    return target.execute("SELECT body FROM notes WHERE id = 3") == [("rogue",)]


def _spoiling(target: Database, step: str) -> Callable[[str], None]:
    def said(line: str) -> None:
        if f": {step} " in line:
            target.execute("UPDATE notes SET body = 'rogue' WHERE id = 3")

    return said
