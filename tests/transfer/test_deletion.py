"""`truecopy delete` of a task that was cut over: its way back goes as well, and nothing holds a log for ever."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.cutting import (
    Killed,
    application,
    cut_over,
    dump,
    fill,
    killed_before,
    slots,
    started,
    wait_until,
)
from truecopy.model.errors import UsageError
from truecopy.transfer import deletion
from truecopy.transfer.cutover.standing import standing
from truecopy.transfer.cutover.state import CERTIFIED
from truecopy.transfer.deletion import NoSuchTask, delete_task
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lines(database: Database) -> int:
    """Those of any task, on the old side or the new one."""
    tables = ("task", "chunk", "progress", "source", "cutover", "control", "report", "count")
    is_there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = %s"
    schema = "DATABASE()" if database.server.scheme == "mariadb" else "current_schema()"
    found = 0
    for table in (f"truecopy_{one}" for one in tables):
        ((there,),) = database.execute(f"{is_there} AND table_schema = {schema}", (table,))
        found += database.execute(f"SELECT COUNT(*) FROM {table}")[0][0] if there else 0
    return found


@pytest.mark.long
def test_the_way_back_goes_as_well(
    spark: SparkSession,
    mariadb_db: Database,
    postgres_db: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, postgres_db)
    with application(mariadb_db):
        assert cut_over(settings).state == "switched"
        rows = dump(postgres_db)
        assert slots(postgres_db), "of the way back"
        assert lines(mariadb_db)

        run = Transfer(standing(settings))
        thread = threading.Thread(target=run.run)
        thread.start()
        try:
            wait_until(lambda: read_status(standing(settings)).running)
            with pytest.raises(UsageError, match="cut/back runs: end it first"):
                delete_task(settings)
        finally:
            run.stop()
            thread.join()

        with monkeypatch.context() as patch:  # killed on its way, it is known still
            patch.setattr(deletion, "_forget_proof", _die)
            with pytest.raises(Killed):
                delete_task(settings)
        said = "\n".join(delete_task(settings))
        assert "the lines of cut/back" in said
        assert "the lines of cut " in said
        assert not slots(postgres_db)
        assert (lines(mariadb_db), lines(postgres_db)) == (0, 0)
        assert dump(postgres_db) == rows, "rows stay"
        with pytest.raises(NoSuchTask):
            delete_task(settings)


@pytest.mark.long
def test_a_cutover_under_way_is_not_deleted(
    spark: SparkSession,
    mariadb_db: Database,
    postgres_db: Database,
) -> None:
    """What is needed to let writers in again is in its line."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, postgres_db)
    with application(mariadb_db) as old:
        killed_before(CERTIFIED, settings)
        with pytest.raises(UsageError, match="a cutover of cut is under way"):
            delete_task(settings)
        assert cut_over(settings, rehearse=True).state == "rehearsed"
        assert old.can_write()
        delete_task(settings)
        assert not slots(postgres_db)


@pytest.mark.long
def test_the_old_side_may_be_gone(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, postgres_db)
    with application(mariadb_db):
        assert cut_over(settings).state == "switched"
    nowhere = Settings(settings.task, mariadb_db.url + "_gone", settings.target)
    said = "\n".join(delete_task(nowhere))
    assert "does not answer, and keeps lines of cut/back" in said
    assert not slots(postgres_db)
    assert not lines(postgres_db)


def _die(_: Settings) -> list[str]:
    raise Killed
