"""Pause, resume, throttle and status: from outside, of tasks that run, that stand and that have not begun."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import truecopy
from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.load import fill
from tests.transfer.test_webhook import receiver
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.secret import Secret
from truecopy.tasks.file import load_task
from truecopy.tasks.transfer import transfer_settings
from truecopy.transfer.control import Control, Count, Wishes
from truecopy.transfer.limits import Limits
from truecopy.transfer.progress import Progress
from truecopy.transfer.run import Listener, Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.status import read_status
from truecopy.transfer.webhook import Hook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["mariadb_db", "postgres_db", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database that can be a target."""
    if request.param == "sqlite":
        (tmp_path / "target.db").touch()
        return f"sqlite:///{tmp_path}/target.db"
    database: Database = request.getfixturevalue(request.param)
    return database.url


def test_wishes_and_reports_are_kept_in_the_target(url: str) -> None:
    with connect(parse_endpoint(url)) as session:
        control, other = (Control(cast(Any, session), task) for task in ("move", "other"))
        control.create()
        control.create()
        assert (control.wishes(), control.report(), control.counts()) == (Wishes(), None, {})
        assert not control.resume()
        assert control.pause()
        assert not control.pause()
        control.throttle({"rate": 5, "hours": ["22:00-06:00"]})
        wishes = control.wishes()
        assert abs(wishes.paused_at / 1e6 - time.time()) < 60
        assert wishes.throttle == {"rate": 5, "hours": ["22:00-06:00"]}
        assert other.wishes() == Wishes()
        assert control.resume()
        assert control.wishes() == Wishes(0, wishes.throttle)

        control.expect({"a": 10, "b": 20})
        control.expect({"a": 99, "c": 30})
        control.say({"rate": 1}, {"a": 3}, epoch=2)
        control.say({"rate": 2}, {"a": 4, "c": 1}, epoch=2)
        control.say({"rate": 9}, {}, epoch=1)
        report = control.report()
        assert report is not None
        assert (report.epoch, report.document) == (2, {"rate": 2}), "an older driver is not heard"
        assert control.counts() == {"a": Count(10, 7), "b": Count(20, 0), "c": Count(30, 1)}


@pytest.mark.long
def test_a_task_that_has_not_begun(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    file = _file(tmp_path, mariadb_db, second_mariadb_db)
    found = _status(file)
    assert (found["state"], found["running"], found["tables"]) == ("not begun", False, {})
    assert not second_mariadb_db.execute("SHOW TABLES"), "asking leaves nothing behind"
    assert program("pause", file).out == "move: paused\n"
    assert program("pause", file).out == "move: was paused already\n"
    assert _status(file)["state"] == "paused"
    assert program("resume", file).out == "move: goes on\n"
    assert program("resume", file).out == "move: was not paused\n"
    people = program("status", file)
    assert people.code == 0
    assert people.out.startswith("move: not begun\n")
    assert "verifiers: inline\n" in people.out


@pytest.mark.long
def test_throttle_changes_what_the_task_file_says(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    file = _file(tmp_path, mariadb_db, second_mariadb_db, "throttle: {rate: 700}\n")
    assert program("throttle", file).out == "move: 700 rows/s\n"
    changed = program(
        "throttle", file, "--rate", "none", "--hours", "22:00-06:00", "--max-lag", "2s"
    )
    assert changed.code == 0, changed.err
    assert program("throttle", file, "--connections", "3").code == 0
    found = _status(file)["throttle"]
    assert (found["rate"], found["connections"], found["max_lag"]) == (0, 3, 2.0)
    assert found["hours"] == ["22:00-06:00"]
    assert found["changed"] == ["connections", "hours", "max_lag", "rate"]
    assert program("throttle", file, "--reset").out == "move: 700 rows/s\n"
    for wrong in (
        ("--rate", "-5"),
        ("--rate", "fast"),
        ("--hours", "9-5"),
        ("--max-lag", "x"),
        ("--timezone", "No/where"),
    ):
        refused = program("throttle", file, *wrong)
        assert refused.code == 2, wrong
        assert len(refused.err.splitlines()) == 1


@pytest.mark.slow
def test_a_copy_stands_while_it_is_paused_and_tells_so(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 9000)
    told = list[Progress]()
    with (
        receiver() as there,
        connect(parse_endpoint(second_mariadb_db.url)) as session,
        ThreadPoolExecutor(1) as beside,
    ):
        control = Control(cast(Any, session), "move")
        control.create()
        control.pause()
        asked = Settings(
            "move",
            mariadb_db.url,
            second_mariadb_db.url,
            limits=Limits(rate=1000, connections=1),
            hook=Hook(Secret(there.url)),
        )
        work = Transfer(asked, Listener(progress=told.append))
        run = beside.submit(work.run, until_caught_up=True)
        _soon(run, lambda: read_status(asked).progress.waits == "paused by hand")
        assert _rows(second_mariadb_db) == 0
        control.resume()
        _soon(run, lambda: _rows(second_mariadb_db) > 0)
        control.pause()
        _soon(run, lambda: read_status(asked).progress.waits == "paused by hand")
        stood = _rows(second_mariadb_db)
        assert 0 < stood < 9000, "between two chunks"
        time.sleep(2)
        assert _rows(second_mariadb_db) == stood
        assert read_status(asked).progress.rows_copied == stood
        control.resume()
        _soon(run, lambda: any(one.rate > 0 and one.seconds_left for one in told))
        control.throttle({"rate": 0})
        report = run.result(120)
    assert report.tables[f"{mariadb_db.name}.items"].rows_copied == 9000
    assert read_status(asked).progress.rows_about == 9000
    states = [one["state"] for one in there.got]
    assert [state for state in states if state != "waiting"] == [
        "snapshot",
        "snapshot",
        "snapshot",
        "replay",
        "replicate",
        "stopped",
    ], "it goes on in the same phase after each wait"
    assert states.count("waiting") == 2
    assert read_status(asked).state == "stopped"


def _is_planned(target: Database) -> bool:
    made = target.execute("SHOW TABLES LIKE 'truecopy_chunk'")
    return bool(made and target.execute("SELECT 1 FROM truecopy_chunk LIMIT 1"))


def test_a_run_keeps_to_its_connections(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 6000)
    mariadb_db.execute("CREATE USER narrow IDENTIFIED BY 'narrow'")
    mariadb_db.execute("GRANT ALL ON *.* TO narrow")
    login = mariadb_db.url.replace(f"root:{mariadb_db.server.password}", "narrow:narrow")
    assert "narrow" in login
    asked = Settings(
        "move", login, second_mariadb_db.url, limits=Limits(connections=1), chunk_rows=500
    )
    counts = list[int]()
    try:
        with ThreadPoolExecutor(1) as beside:
            run = beside.submit(Transfer(asked).run, snapshot_only=True)
            while not run.done():
                ((count,),) = mariadb_db.execute(
                    "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'narrow'"
                )
                # Before the chunks are planned, the stream is asked where it stands, by sessions of its own.
                if _is_planned(second_mariadb_db):
                    counts.append(count)
                time.sleep(0.02)
            run.result()
    finally:
        mariadb_db.execute("DROP USER narrow")
    assert max(counts) <= 2, "one that copies, and the driver's own"


@pytest.mark.slow
def test_pause_and_resume_in_the_middle_of_a_copy_and_of_replication(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    """The copy stands within seconds, goes on where it stood, and so do changes; status tells all the time."""
    fill(mariadb_db, 6000)
    name = f"{mariadb_db.name}.items"
    file = _file(tmp_path, mariadb_db, second_mariadb_db, "throttle: {rate: 500, connections: 1}\n")
    with _running(file) as run:
        _wait(run, lambda: 0 < _rows(second_mariadb_db) < 5000)
        during = _status(file)
        assert (during["state"], during["phase"], during["running"]) == (
            "running",
            "snapshot",
            True,
        )
        assert program("pause", file).code == 0
        _wait(run, lambda: _status(file)["waits"] == "paused by hand")
        stood = _rows(second_mariadb_db)
        assert 0 < stood < 6000
        time.sleep(3)
        assert _rows(second_mariadb_db) == stood
        paused = _status(file)
        assert (paused["state"], paused["tables"][name]["rows_copied"]) == ("paused", stood)
        assert program("throttle", file, "--rate", "none", "--connections", "none").code == 0
        assert program("resume", file).code == 0
        _wait(run, lambda: _status(file)["phase"] == "replicate")
        assert _rows(second_mariadb_db) == 6000

        assert program("pause", file).code == 0
        _wait(run, lambda: _status(file)["state"] == "paused")
        time.sleep(2)
        mariadb_db.execute("DELETE FROM items WHERE id <= 1000")
        _wait(run, lambda: _status(file)["waits"] == "paused by hand")
        time.sleep(2)
        assert _rows(second_mariadb_db) == 6000
        assert _status(file)["lag_seconds"] > 1, "what waits in hand counts"
        assert program("resume", file).code == 0
        _wait(run, lambda: _rows(second_mariadb_db) == 5000)
        _wait(run, lambda: _status(file)["changes_applied"] == 1000)
        found = program("status", file, "--json").document
        assert found["tables"][name]["version"]["position"]
        assert found["guarantee"]["delivery"] == "at-least-once"
        assert found["verifiers"] == ["inline"]
        assert program("pause", file).code == 0
        mariadb_db.execute("DELETE FROM items WHERE id <= 2000")
        _wait(run, lambda: _status(file)["waits"] == "paused by hand")
        begun = time.monotonic()
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 3, "a run that waits can be stopped"
        assert time.monotonic() - begun < 20
        said = cast(Any, run.stderr).read()
    assert "snapshot: " in said
    assert "(waits: paused by hand)" in said
    assert "Traceback" not in said, said
    found = _status(file)
    assert (found["state"], found["running"]) == ("paused", False)
    assert found["ended"].startswith("terminated")
    assert program("resume", file).code == 0
    ended = program("run", file, "--until-caught-up", "--json")
    assert ended.code == 0, ended.err
    assert ended.document["tables"][name]["changes_applied"] == 1000
    assert (
        truecopy.verify(mariadb_db.url, second_mariadb_db.url, tables=("items",)).verdict == "equal"
    )
    people = program("status", file)
    assert people.out.startswith("move: stopped, phase replicate\n")
    assert "having done what it was asked for" in people.out
    for text in (people.out, json.dumps(found), said):
        assert mariadb_db.server.password not in text


def _soon(run: Future[Any], condition: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if run.done():
            raise AssertionError(f"it ended with {run.result()}")
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _file(folder: Path, source: Database, target: Database, more: str = "") -> str:
    file = folder / "move.yaml"
    file.write_text(
        f"task: move\nsource: {source.url}\ntarget: {target.url}\n{more}", encoding="utf-8"
    )
    return str(file)


def _status(file: str) -> dict[str, Any]:
    return read_status(transfer_settings(load_task(file))).plain()


def _rows(database: Database) -> int:
    if not database.execute("SHOW TABLES LIKE 'items'"):
        return 0
    ((rows,),) = database.execute("SELECT COUNT(*) FROM items")
    return int(rows)


@contextmanager
def _running(file: str) -> Iterator[subprocess.Popen[str]]:
    with start("run", file) as run:
        try:
            yield run
        finally:
            run.kill()


def _wait(run: subprocess.Popen[str], condition: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert run.poll() is None, cast(Any, run.stderr).read()
        assert time.monotonic() < deadline
        time.sleep(0.2)
