"""Cutovers that fail where it is least convenient: nothing stays behind, and nobody stays locked out."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.program import truecopy
from tests.servers import Database, MariaDB
from tests.transfer.cutting import (
    HOW,
    Killed,
    application,
    cut_over,
    fill,
    is_equal,
    killed_before,
    slots,
    started,
)
from truecopy.engines import pool
from truecopy.model.errors import CannotFinish
from truecopy.transfer.cutover import new_side
from truecopy.transfer.cutover.after_kill import WrittenAfterwards
from truecopy.transfer.cutover.settings import Commands
from truecopy.transfer.cutover.stage import Stage
from truecopy.transfer.cutover.standing import standing
from truecopy.transfer.cutover.state import CERTIFIED, HELD, SWITCHED, TURNED
from truecopy.transfer.proof.shrinking import Shrunk
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOVED = replace(HOW, lock="tables", commands=Commands(switch="true"))
"""Table locks, which end with the cutover, and somebody who moves writers."""


def test_what_fails_before_the_lock_leaves_no_slot_of_the_way_back(
    spark: SparkSession,
    mariadb_db: Database,
    postgres_db: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target's log would be held for ever by a slot that nobody reads."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, postgres_db)
    monkeypatch.setattr(Shrunk, "fits", lambda *_: False)
    report = cut_over(settings)
    assert (report.state, report.downtime_seconds) == ("rolled-back", 0.0)
    assert "would keep writers out" in report.reason
    assert not slots(postgres_db)


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


@pytest.mark.long
@pytest.mark.parametrize("step", [HELD, CERTIFIED])
def test_a_target_that_stands_still_lets_writers_in_again_in_time(
    spark: SparkSession, mariadb_db: Database, step: str
) -> None:
    """It answers nothing and breaks no connection: only the clock tells."""
    fill(mariadb_db, 20)
    machine = MariaDB()
    with machine as server, application(mariadb_db) as app:
        settings = started(mariadb_db, server.create_database("still"))
        waited: list[float] = []

        def until_writers_are_in() -> None:
            began = time.monotonic()
            while not app.can_write() and time.monotonic() - began < 60:
                time.sleep(0.1)
            waited.append(time.monotonic() - began)
            _signal(machine, signal.SIGCONT)

        thread = threading.Thread(target=until_writers_are_in)

        def stand_still() -> None:
            _signal(machine, signal.SIGSTOP)
            thread.start()

        report = cut_over(settings, replace(HOW, max_downtime=5.0), said=_at(step, stand_still))
        thread.join()
        assert report.state == "rolled-back"
        assert waited[0] < 5 + 5 + 2, "max-downtime, and a while in which the target was asked"
        assert cut_over(settings).state == "switched"


@pytest.mark.long
def test_the_program_ends_though_the_target_stands_still(
    spark: SparkSession, mariadb_db: Database, tmp_path: Path
) -> None:
    """And says why: whoever waits for it has more to do than to wait for that server."""
    fill(mariadb_db, 20)
    machine = MariaDB()
    with machine as server:
        target = server.create_database("still")
        started(mariadb_db, target, "shop")
        assert machine._process is not None
        # A change that is on its way when the target stops is what the replication waits for.
        hold = f"kill -STOP {machine._process.pid}; {_writing(mariadb_db, tmp_path)}; sleep 1"
        commands = {"hold": hold, "release": "true", "switch": "true"}
        how = {"lock": "command", "max-downtime": "8s", "commands": commands}
        file = tmp_path / "shop.yaml"
        ends = f"source: {mariadb_db.url}\ntarget: {target.url}"
        file.write_text(f"task: shop\n{ends}\ncutover: {json.dumps(how)}\n", encoding="utf-8")
        try:
            ended = truecopy("cutover", str(file), "--no-wait", seconds=120)
        finally:
            _signal(machine, signal.SIGCONT)
        assert ended.code == 3, ended.err
        assert "shop: rolled-back: " in ended.out


@pytest.mark.long
def test_the_old_side_is_gone_once_writers_were_moved(
    spark: SparkSession, mariadb_db: Database
) -> None:
    machine = MariaDB()
    with machine as server:
        source = server.create_database("old")
        fill(source, 20)
        settings = started(source, mariadb_db)
        killed_before(SWITCHED, settings)
        time.sleep(2)  # the server of tests writes its log once a second
        _end(machine)
        pool.close_idle()
        report = cut_over(settings)
        assert report.state == "switched"
        assert any("nothing more was done on" in line for line in report.said)
        mariadb_db.execute("UPDATE notes SET body = 'new' WHERE id = 3")
        machine._start()
        Transfer(standing(settings)).run(until_caught_up=True)
        assert is_equal(source, mariadb_db)


@pytest.mark.long
def test_table_locks_whose_session_is_lost(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """Nobody is held off any more: before the decision it is undone, afterwards the log is asked."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    with application(mariadb_db) as app:
        report = cut_over(settings, MOVED, said=_at(TURNED, lambda: _kill_sessions(mariadb_db)))
        assert report.state == "rolled-back", report
        assert app.can_write()
        let_in = new_side.let_in

        def lost(stage: Stage) -> None:
            let_in(stage)
            _kill_sessions(mariadb_db)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(new_side, "let_in", lost)
            with pytest.raises(CannotFinish, match="cannot be asked whether it kept others off"):
                cut_over(settings, MOVED)
        pool.close_idle()  # they were killed as well
        assert cut_over(settings, MOVED).state == "switched"
    assert is_equal(mariadb_db, second_mariadb_db)


@pytest.mark.long
def test_what_the_old_side_wrote_after_a_kill_arrives(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """Table locks end with the process; nobody was let into the new side, so that it begins anew."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    with application(mariadb_db) as app, application(second_mariadb_db) as new:
        _killed_at_the_switch(settings)
        app.execute("UPDATE notes SET body = 'late' WHERE id = 3")
        said: list[str] = []
        report = cut_over(settings, MOVED, said=said.append)
        assert new.can_write(), "what was locked while it was undone is open again"
    assert report.state == "switched", report.reason
    assert any("writers were let in again" in line for line in said)
    assert is_equal(mariadb_db, second_mariadb_db)
    assert second_mariadb_db.execute("SELECT body FROM notes WHERE id = 3") == [("late",)]


@pytest.mark.long
def test_rows_that_both_sides_wrote_after_a_kill_are_named(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    with application(mariadb_db) as app:
        _killed_at_the_switch(settings)
        app.execute("UPDATE notes SET body = 'late' WHERE id = 3")
        second_mariadb_db.execute("UPDATE notes SET body = 'new' WHERE id = 4")
        with pytest.raises(
            WrittenAfterwards, match=r"1 changes .*\(1 of .*notes\).* NOT on"
        ) as refused:
            cut_over(settings, MOVED)
        assert refused.value.exit_code == 1
        second_mariadb_db.execute("UPDATE notes SET body = 'late' WHERE id = 3")
        app.execute("UPDATE notes SET body = 'new' WHERE id = 4")
    assert cut_over(settings, MOVED).state == "switched"
    assert is_equal(mariadb_db, second_mariadb_db)


@pytest.mark.long
def test_a_failed_switch_without_a_way_back(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    """It is undone as long as both sides are equal, and finished later where they are not."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    how = replace(HOW, reverse=False)
    with application(mariadb_db) as app:
        report = cut_over(settings, replace(how, commands=Commands(switch="exit 4")))
        assert report.state == "rolled-back"
        assert app.can_write()
        writes = replace(how, commands=Commands(switch=_writing(second_mariadb_db, tmp_path)))
        with pytest.raises(CannotFinish, match="STILL LOCKED OUT"):
            cut_over(settings, writes)
        assert not app.can_write()
        report = cut_over(settings, replace(how, commands=Commands(switch="true")))
        assert (report.state, report.over) == ("switched", True)
    assert second_mariadb_db.execute("SELECT body FROM notes WHERE id = 3") == [("new",)]


def _killed_at_the_switch(settings: Settings) -> None:
    """Ends after the decision for the new side, and before anybody was let in there."""

    def die(_: Stage) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new_side, "let_in", die)
        with pytest.raises(Killed):
            cut_over(settings, MOVED)


def _writing(database: Database, folder: Path) -> str:
    """A command that lets somebody write, and then fails."""
    server, file = database.server, folder / "writing.py"
    where = {"host": server.host, "port": server.port, "database": database.name}
    who = {"user": server.user, "password": server.password, "autocommit": True}
    file.write_text(
        f"import pymysql\nconnection = pymysql.connect(**{where | who!r})\n"
        "connection.cursor().execute(\"UPDATE notes SET body = 'new' WHERE id = 3\")\n"
        "raise SystemExit(4)\n",
        encoding="utf-8",
    )
    return f"{sys.executable} {file}"


def _at(step: str, act: Callable[[], object]) -> Callable[[str], None]:
    """Does something once, when a step is told."""
    left = [act]

    def said(line: str) -> None:
        if f": {step} (" in line and left:
            left.pop()()

    return said


def _signal(machine: MariaDB, number: signal.Signals) -> None:
    assert machine._process is not None
    machine._process.send_signal(number)


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
