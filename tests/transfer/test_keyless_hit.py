"""Rows without a key on a relational target, whatever hits the run: each once, or as its delivery promises."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.killing import kill, phase, wait_until, workers_hit
from tests.transfer.test_keyless import dump, inserting, make

pytestmark = pytest.mark.timeout(900)
TARGETS = ["second_mariadb_db", "postgres_db"]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


def task(folder: Path, source: Database, target: Database, more: str = "") -> str:
    file = folder / "move.yaml"
    file.write_text(f"task: move\nsource: {source.url}\ntarget: {target.url}\n{more}")
    return str(file)


def go_on(file: str) -> None:
    ended = program("run", file, "--until-caught-up")
    assert ended.code == 0, ended.err


def insert(database: Database, what: str, rows: int = 40) -> None:
    database.executemany("INSERT INTO seen VALUES (%s, %s)", [(n % 7, what) for n in range(rows)])


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["copy", "replication"])
def test_a_paused_attempt_does_not_win(
    mariadb_db: Database, target: Database, tmp_path: Path, moment: str
) -> None:
    """A worker stands still inside its transaction; another run takes the task over; then the worker goes on."""
    make(mariadb_db, 300)
    # A verifier would hear that its run was replaced, and end that with all of its workers.
    more = "delivery: exactly-once\nverify: {inline: false}\n"
    file = task(tmp_path, mariadb_db, target, more)
    at = "note_copied" if moment == "copy" else "advance"
    with workers_hit(tmp_path / "hook", signal.SIGSTOP, at) as hit:
        run = start("run", file)
        if moment == "replication":
            wait_until(lambda: phase(target) == "replicate", run)
            insert(mariadb_db, "new")
        wait_until(hit.exists, run)
    before = dump(target)
    go_on(file)
    assert before != dump(target) == dump(mariadb_db)
    os.kill(int(hit.read_text()), signal.SIGCONT)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 3, said
    assert "taken over" in said
    assert dump(target) == dump(mariadb_db)


@pytest.mark.slow
def test_exactly_once_whenever_it_is_killed(
    mariadb_db: Database,
    target: Database,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    record_property("seed", seed)
    dice = random.Random(seed)
    make(mariadb_db, 5000)
    file = task(tmp_path, mariadb_db, target, "delivery: exactly-once\n")
    with inserting(mariadb_db):
        for _ in range(6):
            run = start("run", file)
            time.sleep(dice.uniform(4, 20))
            assert run.poll() is None, run.communicate()
            kill(run, dice)
    go_on(file)
    assert dump(target) == dump(mariadb_db)


@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_what_a_kill_in_the_middle_of_a_batch_costs(
    mariadb_db: Database, target: Database, tmp_path: Path, delivery: str
) -> None:
    """At most once: the batch that was being written, and no row twice. At least once: nothing."""
    make(mariadb_db, 50)
    file = task(tmp_path, mariadb_db, target, f"delivery: {delivery}\nconsistency: row\n")
    go_on(file)
    old = dump(mariadb_db)
    insert(mariadb_db, "in flight")
    at = "require_at" if delivery == "at-most-once" else "advance"
    with workers_hit(tmp_path / "hook", signal.SIGKILL, at) as hit:
        program("run", file, "--until-caught-up")
    assert hit.exists()
    insert(mariadb_db, "later")
    go_on(file)
    if delivery == "at-least-once":
        assert dump(target) == dump(mariadb_db), "on a target with transactions not even twice"
    else:
        lost = dump(mariadb_db) - dump(target)
        assert {what for _, what in lost} == {"in flight"}
        assert lost.total() == 40
        assert dump(target) + lost == dump(mariadb_db), "no row twice"
        assert old <= dump(target)
