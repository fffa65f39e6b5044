"""A cutover that is killed, told to stop, or under load: the program as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.cutting import Load, application, dump, fill, is_equal

STEPS = (
    "holding",
    "locked",
    "held",
    "drained",
    "verified",
    "numbered",
    "certified",
    "turned",
    "switching",
    "let in",
)

# Runs the program, and kills it right after a step was written down, or done where nothing is written down.
KILLED = """
import os, signal, sys
from truecopy.cli.main import main
from truecopy.transfer.cutover import cutover, state, writers

wanted = sys.argv.pop(1)

def killing(owner, name, at):
    done = getattr(owner, name)
    def and_die(self, *arguments, **named):
        result = done(self, *arguments, **named)
        if wanted == (at or arguments[0]):
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, and_die)

killing(state.Steps, "enter", None)
killing(state.Steps, "switch", "switching")
killing(writers.EngineWriters, "hold", "locked")
killing(cutover.Cutover, "_let_in", "let in")
main()
"""


@pytest.fixture
def task_file(mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path) -> Path:
    fill(mariadb_db)
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"task: shop\nsource: {mariadb_db.url}\ntarget: {second_mariadb_db.url}\n"
        "cutover: {max-lag: 20s, max-downtime: 30s}\n",
        encoding="utf-8",
    )
    ended = program("run", str(file), "--until-caught-up")
    assert ended.code == 0, ended.err
    return file


def killed_at(step: str, *arguments: str) -> int:
    command = [sys.executable, "-c", KILLED, step, *arguments]
    return subprocess.run(command, capture_output=True, timeout=180, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_killed_after_a_step(
    task_file: Path, mariadb_db: Database, second_mariadb_db: Database, step: str
) -> None:
    """Then the same command again: finished, or rolled back, and equal."""
    with application(mariadb_db) as app, Load(app, 50).running():
        assert killed_at(step, "cutover", str(task_file)) == -signal.SIGKILL
        if step != "holding":
            time.sleep(1)
            assert not app.can_write()
        refused = program("run", str(task_file), "--until-caught-up")
        assert refused.code == 2
        assert "under way" in refused.err
        again = program("cutover", str(task_file), "--json", "--no-wait")
        assert again.code == 0, again.err
        assert again.document["state"] == "switched"
        assert ("finishing it" if step in ("switching", "let in") else "let in again") in again.err
        assert not app.can_write()
    assert is_equal(mariadb_db, second_mariadb_db)
    with application(second_mariadb_db) as new:
        new.execute("DELETE FROM orders WHERE id < 20")
        back = program("switch-back", str(task_file), "--json", "--no-wait")
        assert back.code == 0, back.err
    assert is_equal(mariadb_db, second_mariadb_db)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["held", "turned", "switching", "let in"])
def test_a_switch_back_is_killed(
    task_file: Path, mariadb_db: Database, second_mariadb_db: Database, step: str
) -> None:
    with application(mariadb_db) as old, application(second_mariadb_db) as new:
        assert program("cutover", str(task_file)).code == 0
        new.execute("DELETE FROM orders WHERE id < 20")
        assert killed_at(step, "switch-back", str(task_file)) == -signal.SIGKILL
        assert program("run", str(task_file), "--until-caught-up").code == 2
        back = program("switch-back", str(task_file), "--json", "--no-wait")
        assert back.code == 0, back.err
        assert old.can_write()
        assert not new.can_write()
        old.execute("DELETE FROM orders WHERE id < 30")
        assert program("run", str(task_file), "--until-caught-up").code == 0
    assert is_equal(mariadb_db, second_mariadb_db)


@pytest.mark.slow
def test_under_load_with_a_run_that_steps_aside(
    task_file: Path, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    with application(mariadb_db) as app, Load(app, 300).running() as load:
        with ended_at_last(start("run", str(task_file))) as running:
            time.sleep(15)
            ended = program("cutover", str(task_file), "--json", "--no-wait", seconds=280)
            assert ended.code == 0, ended.err
            _, said = running.communicate(timeout=60)
        assert running.returncode == 3, said
        assert "has taken over" in said or "somebody newer" in said
        written, failures = load.written, list(load.failures)
        time.sleep(1)
        assert load.written == written, "the source stays read-only"
    assert all("read-only" in line for line in failures)
    downtime = ended.document["downtime_seconds"]
    print(f"write downtime {downtime:.2f} s; {written} writes before, {len(failures)} refused")  # noqa: T201
    assert downtime < 5
    assert is_equal(mariadb_db, second_mariadb_db)


@pytest.mark.slow
def test_signals_are_refused_and_a_rollback_replicates_on(
    task_file: Path, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """A command that takes its time holds the cutover up while it is told to stop."""
    text = task_file.read_text().replace(
        "max-lag", "commands: {switch: 'sleep 4; exit 1'}, max-lag"
    )
    task_file.write_text(text, encoding="utf-8")
    with (
        application(mariadb_db) as app,
        ended_at_last(start("cutover", str(task_file), "--json")) as running,
    ):
        wait_until(lambda: not app.can_write())
        time.sleep(1)
        for number in (signal.SIGTERM, signal.SIGINT):
            running.send_signal(number)
            time.sleep(0.5)
        assert running.stdout is not None
        report = json.loads(running.stdout.readline())
        assert report["state"] == "rolled-back"
        assert app.can_write()
        app.execute("DELETE FROM notes WHERE id < 50")
        wait_until(lambda: dump(mariadb_db) == dump(second_mariadb_db))
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
        assert running.returncode == 3
        assert "SIGTERM is refused" in said
        assert "SIGINT is refused" in said
    again = program("cutover", str(task_file), "--json", "--no-wait")
    assert (again.code, again.document["state"]) == (3, "rolled-back")


@contextmanager
def ended_at_last(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)
