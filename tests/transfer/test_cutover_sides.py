"""Writers end up on one side: not on none, not locked out by whom nobody knows, and no slot stays that nobody reads."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Database, Server
from tests.transfer.cutting import (
    HOW,
    application,
    cut_over,
    fill,
    killed_before,
    slots,
    started,
    switch_back,
)
from truecopy.engines.mysql_writers import MySQLWriters
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.transfer.cutover.settings import Commands
from truecopy.transfer.cutover.state import HOLDING, Steps
from truecopy.transfer.deletion import delete_task
from truecopy.transfer.ledger import Overtaken
from truecopy.transfer.run import Transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_a_lock_that_comes_after_another_cutover_has_undone_it(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy server becomes read-only minutes after it was asked; somebody calls the command again meanwhile."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    hold, calls = MySQLWriters.hold, list[str]()

    def late(gate: MySQLWriters, *how: Any) -> None:
        calls.append("asked")
        if len(calls) == 1:
            calls.append(cut_over(settings, rehearse=True).state)
        hold(gate, *how)

    with application(mariadb_db) as app:
        with monkeypatch.context() as patch:
            patch.setattr(MySQLWriters, "hold", late)
            with pytest.raises(Overtaken):
                cut_over(settings)
        assert calls == ["asked", "asked", "rehearsed"]
        assert app.can_write()
        mariadb_db.execute("SET GLOBAL read_only = 1")
        said: list[str] = []
        assert cut_over(settings, rehearse=True, said=said.append).state == "rehearsed"
        assert any("lets no other user write already" in line for line in said)
        mariadb_db.execute("SET GLOBAL read_only = 0")


@pytest.mark.long
def test_a_lock_that_comes_after_another_cutover_has_switched(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Writers are in the new side: whoever locked late must not open the old one to them again."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    hold, asked = MySQLWriters.hold, list[str]()

    def late(gate: MySQLWriters, *how: Any) -> None:
        asked.append("hold")
        if len(asked) == 1:
            assert cut_over(settings).state == "switched"
        hold(gate, *how)

    with application(mariadb_db) as old, application(second_mariadb_db) as new:
        with monkeypatch.context() as patch:
            patch.setattr(MySQLWriters, "hold", late)
            with pytest.raises(CannotFinish, match=r"is at switched, so that .* stays locked"):
                cut_over(settings)
        assert asked == ["hold", "hold"]
        assert not old.can_write()
        assert new.can_write()


@pytest.mark.long
def test_a_run_that_is_started_as_a_cutover_locks(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looked just before: what the cutover keeps for its rollback stays the cutover's."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    killed_before(HOLDING, settings)
    steps = Steps(parse_endpoint(settings.target), settings.task)
    left = steps.find()
    assert left is not None
    take = Steps.take_given_up

    def just_before(self: Steps, epoch: int) -> bool:
        self.enter(HOLDING, left.epoch, left.detail)
        return take(self, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(Steps, "take_given_up", just_before)
        Transfer(settings).run(until_caught_up=True)
    found = steps.find()
    assert found is not None
    assert (found.name, found.epoch) == (HOLDING, left.epoch)


@pytest.mark.long
def test_two_databases_of_one_server(spark: SparkSession, mariadb_server: Server) -> None:
    ends = [mariadb_server.create_database(f"{name}_{secrets.token_hex(3)}") for name in "ab"]
    fill(ends[0], 20)
    settings = started(ends[0], ends[1], "same")
    with application(ends[0]) as old, application(ends[1]) as new:
        whose = "SELECT epoch FROM truecopy_task"
        before = ends[1].execute(whose)
        with pytest.raises(UsageError, match="are on one server, and lock: read-only would close"):
            cut_over(settings)
        assert old.can_write()
        assert ends[1].execute(whose) == before, "what is refused keeps nobody from replicating"
        tables = replace(HOW, lock="tables", commands=Commands(switch="true"))
        report = cut_over(settings, replace(tables, commands=Commands(switch="exit 1")))
        assert report.state == "rolled-back"
        assert any("could not be locked" in line for line in report.said)
        assert old.can_write(), "what would have closed the new side would have closed this one"
        assert new.can_write()
        assert cut_over(settings, tables).state == "switched"
        assert new.can_write()
    for end in ends:
        end.server.drop_database(end.name)


@pytest.mark.long
def test_a_new_side_that_takes_no_writes(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    second_mariadb_db.execute("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(UsageError, match="is read-only, and nobody could be let in there"):
            cut_over(settings)
    finally:
        second_mariadb_db.execute("SET GLOBAL read_only = 0")
    assert cut_over(settings).state == "switched"
    assert switch_back(settings).state == "switched", "the old one is opened by it"
    assert cut_over(settings).state == "switched"
    said = delete_task(settings)
    try:
        assert "SET GLOBAL read_only = 0" in said
        assert any("keeps writers off still (read-only)" in line for line in said)
    finally:
        mariadb_db.execute("SET GLOBAL read_only = 0")


@pytest.mark.long
def test_a_task_is_deleted_after_a_failed_switch(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    """What opens the new side again is known by nobody else."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, postgres_db)
    with application(mariadb_db), application(postgres_db) as new:
        report = cut_over(settings, replace(HOW, commands=Commands(switch="exit 1")))
        assert report.state == "rolled-back"
        assert not new.can_write()
        said = delete_task(settings)
        assert any("keeps writers off still (revoke)" in line for line in said)
        for line in said:
            if "GRANT " in line:
                postgres_db.execute(line)
        assert new.can_write()


@pytest.mark.long
def test_no_slot_stays_that_nobody_reads(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, postgres_db)
    killed_before(HOLDING, settings)
    assert slots(postgres_db), "that of the way back"
    Transfer(settings).run(until_caught_up=True)
    assert not slots(postgres_db)
    watched = replace(settings, verify=("inline", "target"))
    Transfer(watched).run(until_caught_up=True)
    assert slots(postgres_db)
    Transfer(settings).run(until_caught_up=True)
    assert not slots(postgres_db)
    Transfer(watched).run(until_caught_up=True)
    Transfer(replace(settings, verify=())).run(until_caught_up=True)
    assert not slots(postgres_db)
