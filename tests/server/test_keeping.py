"""Tasks are kept: they outlive servers, are started again, and never run twice."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from tests.program import PROGRAM, truecopy
from tests.server.support import SHOP, Caller, count, make_shop, serving, wait_until
from tests.transfer.test_webhook import receiver
from truecopy.metastore import database
from truecopy.metastore.control import event, now
from truecopy.metastore.events import Events
from truecopy.metastore.leases import Leases
from truecopy.metastore.task_runs import Run, TaskRuns
from truecopy.metastore.tasks import FAILED, RUNNING, STOPPED, TaskLine, Tasks
from truecopy.tasks.processes import ProcessId
from truecopy.tasks.supervisor import Supervisor

_STAND_IN = """
import fcntl, os, sys, time
from pathlib import Path
name = Path(sys.argv[2]).name.partition(".")[0]
folder = Path(os.environ["STAND_IN"])
if sys.argv[1] == "cutover":
    print('{"state": "switched", "over": true}')
    sys.exit(0)
with (folder / f"{name}.lines").open("a") as lines, (folder / f"{name}.lock").open("w") as lock:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lines.write("twice\\n")
        sys.exit(3)
    lines.write("once\\n")
    lines.flush()
    if "fails" in name:
        sys.stderr.write("truecopy: cannot reach the database\\n")
        sys.exit(int(name.rpartition("-")[2]))
    time.sleep(600)
"""
"""A task that runs until it is stopped, and says when another one runs beside it."""

_SERVER = """
import json, sys
from tests.server.support import make_server, ServerSettings
make_server(ServerSettings(port=0, **json.loads(sys.argv[1]))).run()
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command in the place of a task that would take long to start."""
    folder = tmp_path / "stand-in"
    folder.mkdir()
    monkeypatch.setenv("STAND_IN", str(folder))
    program = folder / "program.py"
    program.write_text(_STAND_IN)
    return [sys.executable, str(program)]


def lines(folder: Path, name: str) -> list[str]:
    path = folder / "stand-in" / f"{name}.lines"
    return path.read_text().split() if path.exists() else []


def running(name: str, after: int = 0) -> Run | None:
    """The run of a task whose process is there, and which is later than another one."""
    found = [run for run in TaskRuns().open(name, "task") if run.started_at and run.id > after]
    alive = [run for run in found if ProcessId(run.host, run.pid, run.process_began).is_alive]
    return alive[0] if alive else None


def _is_gone(process: ProcessId) -> bool:
    return not process.is_alive


def add(name: str, wanted: str = RUNNING, hook: dict[str, Any] | None = None) -> None:
    text = f"task: {name}\nsource: sqlite:///a.db\ntarget: sqlite:///b.db\n"
    Tasks().add(TaskLine(name, "task", text, wanted=wanted, hook=hook or {}))


@contextmanager
def server_process(**settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", _SERVER, json.dumps(settings)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_tasks_outlive_a_killed_server_and_are_found_again(
    tmp_path: Path, stand_in: list[str]
) -> None:
    names = ["one", "two", "three"]
    for name in names:
        add(name)
    with server_process(program=stand_in) as server:
        before = {name: wait_until(partial(running, name)) for name in names}
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
    time.sleep(1)
    with serving(program=stand_in) as ask:
        began = time.monotonic()
        found = {one["name"]: one for one in ask("GET", "/api/tasks").document}
        assert {name: found[name]["state"] for name in names} == dict.fromkeys(names, "running")
        assert time.monotonic() - began < 10
        after = {name: running(name) for name in names}
        assert {name: run.pid for name, run in after.items() if run} == {
            name: run.pid for name, run in before.items()
        }
        for name in names:
            wait_until(partial(lines, tmp_path, name))
            assert ask("POST", f"/api/tasks/{name}/stop").status == 200
        wait_until(
            lambda: {one["state"] for one in ask("GET", "/api/tasks").document} == {"stopped"}
        )
    assert [lines(tmp_path, name) for name in names] == [["once"]] * 3


@pytest.mark.long
def test_a_keeper_that_is_killed_takes_its_command_along_and_is_replaced(
    tmp_path: Path, stand_in: list[str]
) -> None:
    add("shop")
    with serving(program=stand_in):
        first = wait_until(lambda: running("shop"))
        wait_until(lambda: lines(tmp_path, "shop") == ["once"])
        holder = ProcessId.parse(Leases().lines()["task:shop"].holder)
        assert holder is not None
        holder.signal(signal.SIGKILL)
        second = wait_until(partial(running, "shop", first.id))
        assert second.pid != first.pid
        ended = TaskRuns().find(first.id)
        assert ended is not None
        assert ended.ended_at
        wait_until(lambda: lines(tmp_path, "shop") == ["once", "once"])


def test_a_task_that_is_over_stops(tmp_path: Path, stand_in: list[str]) -> None:
    add("shop")
    with serving(program=stand_in) as ask:
        before = wait_until(partial(running, "shop"))
        asked = {"kind": "cutover", "confirm": "shop"}
        assert ask("POST", "/api/tasks/shop/runs", asked).status == 202
        wait_until(lambda: ask("GET", "/api/tasks/shop").document["state"] == "stopped")
        wait_until(lambda: not TaskRuns().open("shop", "task"))
    line = Tasks().find("shop")
    assert line is not None
    assert (line.wanted, line.state, line.message) == (
        STOPPED,
        STOPPED,
        "cut over, without a way back",
    )
    assert [run.kind for run in TaskRuns().latest("shop", "task")] == ["cutover", "run"]
    assert not running("shop", before.id)
    assert lines(tmp_path, "shop") == ["once"]


def _fail_over(tmp_path: Path, stand_in: list[str], times: int) -> None:
    """Two servers on one metastore that are killed, and keepers that are killed, or paused past their leases."""
    add("shop")
    chosen = random.Random(8)
    with ExitStack() as stack:

        def serve() -> subprocess.Popen[bytes]:
            given = server_process(program=stand_in, lease_seconds=2.0)
            return stack.enter_context(given)

        servers = [serve(), serve()]
        last = 0
        for _ in range(times):
            run = wait_until(partial(running, "shop", last))
            last = run.id
            holder = ProcessId.parse(Leases().lines()["task:shop"].holder)
            assert holder is not None
            how = chosen.choice(["kill", "server", "pause", "child"])
            if how == "kill":
                holder.signal(signal.SIGKILL)
            elif how == "server":
                killed = servers.pop(chosen.randrange(2))
                killed.kill()
                killed.wait()
                holder.signal(signal.SIGKILL)
                servers.append(serve())
            elif how == "child":
                os.kill(run.pid, signal.SIGKILL)
            else:
                _pause(holder)
                wait_until(partial(running, "shop", last))
                holder.signal(signal.SIGCONT)
                wait_until(partial(_is_gone, holder))
        wait_until(partial(running, "shop", last))
    assert "twice" not in lines(tmp_path, "shop")
    assert len(TaskRuns().latest("shop", "task", limit=1000)) > times


def _pause(process: ProcessId) -> None:
    """Stops a process, not while it writes: SQLite would have everybody wait for it."""
    file = Path(os.environ["TRUECOPY_STATE"]) / database.FILE
    while True:
        process.signal(signal.SIGSTOP)
        connection = sqlite3.connect(file, timeout=2, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError:
            process.signal(signal.SIGCONT)
            time.sleep(0.05)
        finally:
            connection.close()


@pytest.mark.long
def test_two_servers_never_run_a_task_twice(tmp_path: Path, stand_in: list[str]) -> None:
    _fail_over(tmp_path, stand_in, 6)


@pytest.mark.slow
def test_two_servers_never_run_a_task_twice_over_a_hundred_fail_overs(
    tmp_path: Path, stand_in: list[str]
) -> None:
    _fail_over(tmp_path, stand_in, 100)


def test_what_fails_is_tried_again_later_and_what_is_wrong_is_not(
    tmp_path: Path, stand_in: list[str]
) -> None:
    add("fails-3")
    add("fails-2")
    with serving(program=stand_in) as ask:
        wait_until(lambda: len(lines(tmp_path, "fails-3")) >= 3)
        said = wait_until(
            lambda: (one := ask("GET", "/api/tasks/fails-3").document)["message"] and one
        )
        assert "cannot reach the database; tried again in" in said["message"]
        assert said["state"] in ("restarting", "running")
        failed = wait_until(
            lambda: (one := ask("GET", "/api/tasks/fails-2").document)["state"] == FAILED and one
        )
        assert failed["message"] == "cannot reach the database"
        assert lines(tmp_path, "fails-2") == ["once"]
        ask("POST", "/api/tasks/fails-3/stop")
        wait_until(lambda: ask("GET", "/api/tasks/fails-3").document["state"] == STOPPED)
        events = [one["message"] for one in ask("GET", "/api/events?task=fails-2").document]
        assert any(one.startswith("failed: cannot reach") for one in events)


@pytest.mark.long
def test_a_real_task_outlives_the_program_that_served_it(tmp_path: Path) -> None:
    make_shop(tmp_path, 10)
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP.format(name="shop", folder=tmp_path) + "spark: {master: 'local[1]'}\n")
    with served_by_the_program(tmp_path) as (server, url):
        added = truecopy("task", "add", str(file), "--start", "--server", url)
        assert added.code == 0, added.err
        wait_until(lambda: count(tmp_path) == 10, 120)
        os.kill(server.pid, signal.SIGKILL)
    with serving() as ask:
        url = f"http://127.0.0.1:{ask.port}"
        shown = wait_until(lambda: _progressing(ask), 60)
        assert shown["tables"]["goods"]["rows_copied"] == 10
        listed = truecopy("task", "list", "--server", url, "--json")
        assert [one["state"] for one in json.loads(listed.out)] == ["running"]
        assert len(ask("GET", "/api/tasks/shop/runs").document) == 1
        number = ask("POST", "/api/tasks/shop/runs", {"kind": "verify"}).document["id"]
        verified = wait_until(lambda: _ended(ask, number), 120)
        assert verified["result"]["verdict"] == "equal", verified
        certificate = verified["result"]["certificate"]
        assert ask("GET", f"/api/certificates/{certificate}").document["verdict"] == "equal"
        assert truecopy("task", "stop", "shop", "--server", url).code == 0
        wait_until(lambda: ask("GET", "/api/tasks/shop").document["state"] == STOPPED)
        assert ask("GET", "/api/tasks/shop/samples").document
        run = ask("GET", "/api/tasks/shop/runs?kind=run").document[0]
        assert "snapshot" in ask("GET", f"/api/runs/{run['id']}/log").document["text"]


def test_a_server_removes_events_that_are_too_old() -> None:
    with database.open_metastore().begin() as connection:
        old = {"at": now() - 2 * 86_400_000_000, "task": "shop", "kind": "state"}
        connection.execute(insert(event).values(message="old", detail="{}", **old))
    Events().tell("shop", "state", "new")
    with serving(events_days=1.0) as ask:
        wait_until(lambda: len(ask("GET", "/api/events").document) == 1)
        assert ask("GET", "/api/events").document[0]["message"] == "new"


@contextmanager
def served_by_the_program(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`truecopy serve`, and its address, which its log tells."""
    log = folder / "serve.log"
    with log.open("w") as errors:
        process = subprocess.Popen([PROGRAM, "serve", "--port", "0"], stderr=errors, text=True)
    try:
        found = wait_until(lambda: re.search(r"http://127\.0\.0\.1:[1-9]\d*", log.read_text()))
        yield process, found[0]
    finally:
        process.kill()
        process.wait()


def _progressing(ask: Caller) -> dict[str, Any] | None:
    shown: dict[str, Any] = ask("GET", "/api/tasks/shop").document
    return shown if shown["tables"].get("goods", {}).get("rows_copied") else None


def _ended(ask: Caller, number: int) -> dict[str, Any] | None:
    run: dict[str, Any] = ask("GET", f"/api/runs/{number}").document
    return run if run["state"] == "ended" else None


def test_a_task_is_kept_without_a_server_and_a_webhook_hears_of_it(
    tmp_path: Path, stand_in: list[str]
) -> None:
    with receiver() as hook:
        _keep_and_stop(tmp_path, stand_in, hook.url)
        wait_until(lambda: len(hook.got) == 4)
    states = [(one["event"], one["task"], one["state"]) for one in hook.got]
    words = ("starting", "running", "stopping", "stopped")
    assert states == [("state", "shop", word) for word in words]


def _keep_and_stop(tmp_path: Path, stand_in: list[str], url: str) -> None:
    add("shop", STOPPED, {"url": url, "events": ["state"]})
    Tasks().want("shop", RUNNING)
    Supervisor(stand_in).look()
    run = wait_until(lambda: running("shop"))
    wait_until(lambda: lines(tmp_path, "shop") == ["once"])
    Supervisor(stand_in).look()
    Tasks().want("shop", STOPPED)
    wait_until(lambda: running("shop") is None)
    assert wait_until(lambda: (r := TaskRuns().find(run.id)) and r.ended_at and r)
    assert lines(tmp_path, "shop") == ["once"]
