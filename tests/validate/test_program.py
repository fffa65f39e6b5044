"""`truecopy validate` and `truecopy delete` as a user runs them, killed and started again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.program import start, truecopy
from tests.servers import Database
from tests.validate.scraping import free_port, scraped
from tests.validate.watching import beside, wait_for
from truecopy.metastore.validations import Validations
from truecopy.transfer.continuous.entries import from_bytes, name_of
from truecopy.transfer.continuous.rounds import FOREVER
from truecopy.transfer.continuous.standing import read_validation

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def file(mariadb_db: Database, second_mariadb_db: Database, task: str, tmp_path: Path) -> Path:
    """A task that has copied one table and replicated; 30 changes of it are wrong on the target."""
    written = tmp_path / "task.yaml"
    written.write_text(
        f"""
task: {task}
source: {mariadb_db.url}
target: {second_mariadb_db.url}
verify:
  inline: false # it would end a run that comes upon the damage
  continuous: {{validate-interval: 1s, row-error-delay: 2s}}
"""
    )
    mariadb_db.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(80))")
    mariadb_db.executemany(
        "INSERT INTO items VALUES (%s, %s)", [(n, f"name {n}") for n in range(200)]
    )
    assert truecopy("run", str(written), "--until-caught-up").code == 0
    return written


def spoiled(source: Database, target: Database, file: Path) -> None:
    """Changes 60 rows; 10 are then missing, 10 wrong and 10 not deleted on the target."""
    source.execute("UPDATE items SET name = CONCAT('new ', id) WHERE id < 50")
    source.execute("DELETE FROM items WHERE id BETWEEN 50 AND 59")
    assert truecopy("run", str(file), "--until-caught-up").code == 0
    target.execute("DELETE FROM items WHERE id < 10")
    target.execute("UPDATE items SET name = 'wrong' WHERE id BETWEEN 10 AND 19")
    target.executemany("INSERT INTO items VALUES (%s, 'left')", [(n,) for n in range(50, 60)])


def status(file: Path) -> dict[str, Any]:
    return truecopy("validate", "status", str(file), "--json").document


def errors(file: Path, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        truecopy("validate", "errors", str(file), "--json", *more).out
    )
    return found


def told(task: str) -> dict[str, Any]:
    """The same without a process of its own, for those who wait."""
    return read_validation(task).plain() if Validations().find(task) else {"state": "none"}


def ended(process: subprocess.Popen[str]) -> int:
    """Waits for a process; its exit code."""
    process.communicate(timeout=120)
    return process.returncode


def begin(file: Path, task: str) -> None:
    """Starts a validation from now on, and stops it again."""
    process = start("validate", "start", str(file))
    wait_for(lambda: told(task)["state"] == "running", 180)
    stopped = truecopy("validate", "stop", str(file))
    assert stopped.code == 0, stopped.err
    assert ended(process) == 0


@pytest.mark.long
def test_the_life_of_a_validation(
    mariadb_db: Database, second_mariadb_db: Database, file: Path, tmp_path: Path, task: str
) -> None:
    unknown = truecopy("validate", "status", str(file))
    assert (unknown.code, unknown.err.count("\n")) == (2, 1)
    begin(file, task)
    assert status(file)["state"] == "stopped"
    spoiled(mariadb_db, second_mariadb_db, file)
    port = free_port()
    process = start("validate", "start", str(file), "--metrics-port", str(port), "--json")
    wait_for(lambda: told(task)["errors"]["new"] == 30, 180)
    shown = status(file)
    assert shown["state"] == "running"
    assert shown["processed"] == {"insert": 0, "update": 50, "delete": 10}
    assert shown["pending"] == {"insert": 0, "update": 0, "delete": 0}
    assert shown["tables"] == {f"{mariadb_db.name}.items": {"stage": "running", "message": ""}}
    listed = truecopy("validate", "errors", str(file), "--json")
    assert listed.code == 1
    wrong = next(e for e in json.loads(listed.out) if e["key"] == {"id": "10"})
    assert wrong["kind"] == "differs"
    assert (wrong["columns"], wrong["source"], wrong["target"]) == (
        ["name"],
        {"name": "new 10"},
        {"name": "wrong"},
    )
    assert wrong["first_failed_at"] <= wrong["last_failed_at"]
    kinds = [e["kind"] for e in errors(file)]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "missing": 10,
        "differs": 10,
        "extra": 10,
    }
    assert "wrong" in truecopy("validate", "errors", str(file)).out
    figures = truecopy("validate", "status", str(file), "--prometheus").out
    count = f'truecopy_validate_errors{{task="{task}",status="new"}}'
    assert f"{count} 30\n" in figures
    assert scraped(port)[count] == 30

    refused = truecopy("validate", "start", str(file), "--from", "current")
    assert refused.code == 2
    assert "are open" in refused.err
    assert status(file)["state"] == "running"

    some = [str(e["id"]) for e in errors(file)[:3]]
    assert truecopy("validate", "ignore", str(file), some[0]).code == 0
    assert truecopy("validate", "resolve", str(file), some[1]).code == 0
    assert truecopy("validate", "clear", str(file), some[2]).code == 0
    assert truecopy("validate", "ignore", str(file), "999999").code == 2
    assert truecopy("validate", "ignore", str(file)).code == 2
    assert status(file)["errors"] == {"new": 27, "ignored": 1, "resolved": 1}
    script = tmp_path / "repair.sql"
    assert truecopy("validate", "repair", str(file), "-o", str(script)).code == 0
    assert script.read_text().count("items") >= 27
    assert truecopy("validate", "repair", str(file), "999999").code == 2
    assert truecopy("validate", "repair", str(file), "--apply", "-o", str(script)).code == 2
    assert truecopy("validate", "repair", str(file), "--all", "--apply").code == 0
    wait_for(lambda: told(task)["errors"]["new"] == 0, 120)
    wait_for(lambda: told(task)["errors"]["ignored"] == 0, 120)
    assert status(file)["errors"]["resolved"] == 29
    assert truecopy("validate", "errors", str(file), "--json").code == 0

    assert truecopy("delete", str(file)).code != 0  # nobody answers
    assert status(file)["state"] == "running"
    assert truecopy("delete", str(file), "--yes").code == 0
    ended(process)
    assert truecopy("validate", "status", str(file)).code == 2
    lines = second_mariadb_db.execute("SELECT COUNT(*) FROM truecopy_task WHERE task = %s", (task,))
    assert lines == [(0,)]


def _epoch(task: str) -> int:
    standing = Validations().find(task)
    return standing.epoch if standing else 0


def _processed(task: str) -> int:
    return sum(read_validation(task).standing.processed.values())


class _Load:
    """Changes of rows that nobody spoils, about 200 a second, and how many there were."""

    def __init__(self, source: Database) -> None:
        self._source = source
        self._over = threading.Event()
        self.changes = 0

    def write(self) -> None:
        with closing(self._source.connect()) as connection, connection.cursor() as cursor:
            while not self._over.wait(0.1):
                cursor.execute(
                    "UPDATE items SET name = CONCAT('load ', %s) WHERE id BETWEEN 100 AND 119",
                    (self.changes,),
                )
                self.changes += cursor.rowcount

    def stop(self) -> None:
        self._over.set()


def _under_watch(task: str) -> dict[str, int]:
    """Rows that are pending or errors, and since when they fail (0 for not so far); none may be there twice."""
    blobs = Validations().parts(task, (), FOREVER)
    rows = [row for _, blob in blobs for row in from_bytes(blob).to_pylist()]
    names = [name_of(row["shard"], row["table"], row["key"]) for row in rows]
    assert len(names) == len(set(names))
    watched = {name: row["first_failed_at"] for name, row in zip(names, rows, strict=True)}
    told = list(Validations().errors.of(task))
    assert len({error.name for error in told}) == len(told)
    for error in told:
        assert watched[error.name] == error.first_failed_at, "an error stays under watch"
    return watched


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, 20], ids=["a few times", "20 times"])
def test_killed_at_any_instant_it_loses_nothing_and_doubles_nothing(
    mariadb_db: Database, second_mariadb_db: Database, file: Path, task: str, kills: int
) -> None:
    source, target = mariadb_db, second_mariadb_db
    begin(file, task)
    replication = start("run", str(file))
    load, chance = _Load(source), random.Random(7)
    wrong = dict[str, int]()
    with beside(load.write, load.stop):
        for number in range(kills):
            # Wrong before anybody has looked at it, and from then on.
            source.execute("UPDATE items SET name = 'right' WHERE id = %s", (number,))
            here = "SELECT name FROM items WHERE id = %s"
            wait_for(lambda: target.execute(here, (number,)) == [("right",)])  # noqa: B023 - waited for here
            target.execute("UPDATE items SET name = 'wrong' WHERE id = %s", (number,))
            epoch, checked = _epoch(task), _processed(task)
            process = start("validate", "start", str(file))
            # Most of the time goes into starting: half of the kills come between and in checks.
            if number % 2:
                wait_for(lambda: _epoch(task) > epoch, 120)  # noqa: B023 - waited for here
                time.sleep(chance.uniform(0, 12))
            else:
                wait_for(lambda: _processed(task) > checked, 120)  # noqa: B023 - waited for here
                time.sleep(chance.uniform(0, 4))
            os.killpg(process.pid, signal.SIGKILL)
            ended(process)
            watched = _under_watch(task)
            for name, since in wrong.items():
                assert name in watched, "a wrong row is under watch for good"
                assert since in (0, watched[name]), "and since it failed first"
            wrong |= {name: at for name, at in watched.items() if int(json.loads(name)[-1]) < kills}
        process = start("validate", "start", str(file))
        wait_for(lambda: told(task)["errors"]["new"] >= kills, 180)
    changes = kills + load.changes
    wait_for(lambda: _processed(task) >= changes, 120)
    wait_for(lambda: sum(told(task)["pending"].values()) == 0, 120)
    found = list(Validations().errors.of(task))
    assert sorted(int(error.key["id"] or 0) for error in found) == list(range(kills))
    for error in found:
        assert wrong.get(error.name, 0) in (0, error.first_failed_at)
    assert _processed(task) == changes
    assert any(wrong.values()), "some had failed before a kill"
    for each in (process, replication):
        each.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 3
    assert said.strip().count("\n") <= 1, said
    ended(replication)


@pytest.mark.long
def test_validate_only_needs_nothing_but_reading(
    mariadb_db: Database, second_mariadb_db: Database, task: str, tmp_path: Path
) -> None:
    file = tmp_path / "task.yaml"
    file.write_text(
        f"""
task: {task}
source: {mariadb_db.url}
target: {second_mariadb_db.url}
validate-only: true
verify:
  continuous: {{validate-interval: 1s, row-error-delay: 1s, lag: 1s}}
"""
    )
    for database in (mariadb_db, second_mariadb_db):
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    refused = truecopy("run", str(file))
    assert refused.code == 2
    assert "validate-only" in refused.err
    begin(file, task)
    mariadb_db.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    second_mariadb_db.execute("INSERT INTO t VALUES (1, 1)")
    process = start("validate", "start", str(file))
    wait_for(lambda: told(task)["errors"]["new"] == 1, 120)
    assert errors(file)[0]["kind"] == "missing"
    assert status(file)["applied_by"] == "lag"
    second_mariadb_db.execute("INSERT INTO t VALUES (2, 2)")
    assert truecopy("validate", "recheck", str(file), "--all").code == 0
    wait_for(lambda: told(task)["errors"] == {"new": 0, "ignored": 0, "resolved": 1}, 60)
    assert second_mariadb_db.execute("SHOW TABLES") == [("t",)]
    truecopy("validate", "stop", str(file))
    assert ended(process) == 0

    before = told(task)
    mariadb_db.execute("INSERT INTO t VALUES (3, 3)")  # which is passed over
    process = start("validate", "start", str(file), "--from", "current")
    wait_for(lambda: told(task)["state"] == "running" and told(task)["applied_by"] == "lag", 120)
    second_mariadb_db.execute("INSERT INTO t VALUES (4, 4)")
    mariadb_db.execute("INSERT INTO t VALUES (4, 4)")
    wait_for(lambda: told(task)["processed"]["insert"] > before["processed"]["insert"], 120)
    assert told(task)["processed"]["insert"] == before["processed"]["insert"] + 1
    assert told(task)["errors"]["new"] == 0
    truecopy("validate", "stop", str(file))
    assert ended(process) == 0


@pytest.mark.long
def test_it_runs_with_the_task_that_asks_for_it(
    mariadb_db: Database, second_mariadb_db: Database, file: Path, task: str
) -> None:
    process = start("run", str(file))
    wait_for(lambda: told(task)["state"] == "running", 180)
    mariadb_db.execute("UPDATE items SET name = 'changed' WHERE id < 20")
    wait_for(lambda: told(task)["processed"]["update"] == 20, 180)
    assert status(file)["errors"] == {"new": 0, "ignored": 0, "resolved": 0}
    assert truecopy("validate", "stop", str(file)).code == 0
    mariadb_db.execute("UPDATE items SET name = 'again' WHERE id < 20")
    again = "SELECT COUNT(*) FROM items WHERE name = 'again'"
    wait_for(lambda: second_mariadb_db.execute(again) == [(20,)], 60)
    assert status(file)["state"] == "stopped"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=180)
