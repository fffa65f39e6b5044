"""A cutover that is killed, told to stop, or under load: the program as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.cutting import (
    Load,
    application,
    cut_over,
    dump,
    fill,
    is_equal,
    started,
    switch_back,
    wait_until,
)
from truecopy.model.errors import UsageError
from truecopy.transfer.cutover.standing import standing
from truecopy.transfer.run import Transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    "moved",
)

# Runs the program, and kills it right after a step was written down, or done where nothing is written down.
KILLED = """
import os, signal, sys
from truecopy.cli.main import main
from truecopy.transfer.cutover import new_side, state, writers

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
killing(new_side, "let_in", "let in")
main()
"""


def write_task(folder: Path, source: Database, target: Database, more: str = "") -> Path:
    file = folder / "shop.yaml"
    file.write_text(
        f"task: shop\nsource: {source.url}\ntarget: {target.url}\n"
        f"cutover: {{{more}max-lag: 20s, max-downtime: 60s}}\n",
        encoding="utf-8",
    )
    return file


def killed_at(step: str, *arguments: str) -> int:
    command = [sys.executable, "-c", KILLED, step, *arguments]
    return subprocess.run(command, capture_output=True, timeout=180, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_killed_after_a_step(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    tmp_path: Path,
    step: str,
) -> None:
    """Then the same command again: writers were let in and it began anew, or it finished; and both are equal."""
    fill(mariadb_db)
    settings = started(mariadb_db, second_mariadb_db, "shop")
    said: list[str] = []
    with application(mariadb_db) as app, Load(app, 50).running():
        file = write_task(tmp_path, mariadb_db, second_mariadb_db)
        assert killed_at(step, "cutover", str(file)) == -signal.SIGKILL
        assert app.can_write() == (step == "holding")
        with pytest.raises(UsageError, match="under way"):
            standing(settings)
        with pytest.raises(UsageError, match="under way"):
            Transfer(settings).run(until_caught_up=True)
        report = cut_over(settings, said=said.append)
        assert report.state == "switched", report.reason
        assert not app.can_write()
    finished = ("switching", "let in", "moved")
    expected = "finishing it" if step in finished else "writers were let in again"
    assert any(expected in line for line in said)
    assert is_equal(mariadb_db, second_mariadb_db)
    Transfer(standing(settings)).run(until_caught_up=True)
    assert is_equal(mariadb_db, second_mariadb_db)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["held", "turned", "switching", "let in", "moved"])
def test_a_switch_back_is_killed(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    tmp_path: Path,
    step: str,
) -> None:
    fill(mariadb_db)
    settings = started(mariadb_db, second_mariadb_db, "shop")
    with application(mariadb_db) as old, application(second_mariadb_db) as new:
        assert cut_over(settings).state == "switched"
        new.execute("DELETE FROM orders WHERE id < 20")
        file = write_task(tmp_path, mariadb_db, second_mariadb_db)
        assert killed_at(step, "switch-back", str(file)) == -signal.SIGKILL
        with pytest.raises(UsageError, match="under way"):
            standing(settings)
        report = switch_back(settings)
        assert report.state == "switched", report.reason
        assert old.can_write()
        assert not new.can_write()
        old.execute("DELETE FROM orders WHERE id < 30")
        Transfer(standing(settings)).run(until_caught_up=True)
    assert is_equal(mariadb_db, second_mariadb_db)


@pytest.mark.slow
def test_under_load_with_a_run_that_steps_aside(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    fill(mariadb_db)
    started(mariadb_db, second_mariadb_db, "shop")
    task_file = write_task(tmp_path, mariadb_db, second_mariadb_db)
    with application(mariadb_db) as app, Load(app, 300).running() as load:
        with ended_at_last(start("run", str(task_file))) as running:
            time.sleep(15)
            ended = program("cutover", str(task_file), "--json", "--no-wait", seconds=280)
            assert ended.code == 0, ended.err
            _, said = running.communicate(timeout=180)
        assert running.returncode == 3, said
        assert "has taken over" in said
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
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    """A command that takes its time holds the cutover up while it is told to stop."""
    fill(mariadb_db)
    started(mariadb_db, second_mariadb_db, "shop")
    failing = "commands: {switch: 'sleep 4; exit 1'}, "
    task_file = write_task(tmp_path, mariadb_db, second_mariadb_db, failing)
    with (
        application(mariadb_db) as app,
        application(second_mariadb_db) as new,
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
        _, said = running.communicate(timeout=180)
        assert running.returncode == 3
        assert "SIGTERM is refused" in said
        assert "SIGINT is refused" in said
        again = program("cutover", str(task_file), "--json", "--no-wait")
        assert (again.code, again.document["state"]) == (3, "rolled-back")
        assert not new.can_write(), "some writers may have been moved there"


@contextmanager
def ended_at_last(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
