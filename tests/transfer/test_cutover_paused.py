"""A paused task is not cut over; but writers never stay locked out for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.servers import Database
from tests.transfer.cutting import application, cut_over, fill, killed_before, started
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.transfer.control import Control
from truecopy.transfer.cutover.state import CATCHING_UP, CERTIFIED
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_a_paused_task_is_not_cut_over(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    epoch = second_mariadb_db.execute("SELECT epoch FROM truecopy_task")
    with application(mariadb_db) as app:
        _ask(settings, Control.pause)
        with pytest.raises(UsageError, match="cut is paused: truecopy resume"):
            cut_over(settings)
        assert second_mariadb_db.execute("SELECT epoch FROM truecopy_task") == epoch, (
            "a run goes on"
        )
        _ask(settings, Control.resume)

        def pause(line: str) -> None:
            if CATCHING_UP in line:
                _ask(settings, Control.pause)

        report = cut_over(settings, said=pause)
        assert (report.state, report.downtime_seconds) == ("rolled-back", 0.0)
        assert "truecopy resume" in report.reason
        _ask(settings, Control.resume)

        killed_before(CERTIFIED, settings)
        assert not app.can_write()
        _ask(settings, Control.pause)
        with pytest.raises(UsageError, match="truecopy resume"):
            cut_over(settings)
        assert app.can_write(), "paused or not, writers do not stay locked out"
        _ask(settings, Control.resume)
        assert cut_over(settings).state == "switched"


def _ask(settings: Settings, wish: Callable[[Control], bool]) -> None:
    with connect(parse_endpoint(settings.target)) as session:
        assert wish(Control(cast(Any, session), settings.task))
