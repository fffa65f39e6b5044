"""How long nobody could write is told right also where another process finishes a cutover."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.cutting import (
    Killed,
    application,
    cut_over,
    fill,
    is_equal,
    killed_before,
    started,
)
from truecopy.transfer.cutover import new_side
from truecopy.transfer.cutover.stage import Stage
from truecopy.transfer.cutover.state import SWITCHED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.parametrize("step", ["switching", "moved"])
def test_the_downtime_is_that_of_the_lock_whoever_finishes_it(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    said: list[str] = []
    with application(mariadb_db):
        if step == "moved":
            killed_before(SWITCHED, settings, said.append)
        else:
            with monkeypatch.context() as patch:
                patch.setattr(new_side, "let_in", _die)
                with pytest.raises(Killed):
                    cut_over(settings, said=said.append)
        time.sleep(3)
        report = cut_over(settings)
    assert report.state == "switched", report.reason
    before = float(re.findall(r"\((.*) s\)", said[-1])[0])
    if step == "switching":
        assert report.downtime_seconds > before + 3, "nobody could write all the while"
    else:
        assert report.downtime_seconds > 0
        assert report.downtime_seconds == pytest.approx(before, abs=0.02), "writers were in already"
    assert is_equal(mariadb_db, second_mariadb_db)


def _die(_: Stage) -> None:
    raise Killed
