"""A run goes on at the target's progress only where that is the progress which the task left there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Database
from tests.transfer.load import fill
from truecopy.metastore.known_progress import Known, KnownProgress
from truecopy.transfer import run
from truecopy.transfer.joining import DoesNotJoin, Notes, gone_ahead, gone_back
from truecopy.transfer.ledger import Ledger, TaskLine
from truecopy.transfer.replicate import Replication
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK = "joined"
KEPT = "items", "truecopy_progress", "truecopy_task"


class Killed(Exception):
    """Nothing happens after it."""


class Task:
    """A task that has copied its rows and applied some changes."""

    def __init__(self, source: Database, target: Database) -> None:
        self.source, self.target = source, target
        self.settings = Settings(TASK, source.url, target.url, chunk_rows=500)

    def run(self) -> None:
        Transfer(self.settings).run(until_caught_up=True)

    def change(self, *ids: int) -> None:
        for one in ids:
            self.source.execute(f"UPDATE items SET price = price + 1 WHERE id = {one}")

    def position(self) -> str:
        ((position,),) = self.source.execute("SELECT @@gtid_current_pos")
        return str(position)

    def is_equal(self) -> bool:
        ask = "SELECT * FROM items ORDER BY id"
        return bool(self.source.execute(ask) == self.target.execute(ask))


@pytest.fixture
def task(spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database) -> Task:
    fill(mariadb_db, 50)
    made = Task(mariadb_db, second_mariadb_db)
    made.run()
    made.change(*range(1, 10))
    made.run()
    return made


def test_progress_that_somebody_moved_on_is_refused_until_it_is_put_back(task: Task) -> None:
    before = task.target.execute("SELECT part, position FROM truecopy_progress")
    task.change(11)
    task.target.execute(f"UPDATE truecopy_progress SET position = '{task.position()}'")
    for _ in range(2):  # being refused once makes it no better
        with pytest.raises(DoesNotJoin, match=r"which no run has done; bring back .* truecopy del"):
            task.run()
    task.target.executemany(
        "UPDATE truecopy_progress SET position = %s WHERE part = %s", [(at, p) for p, at in before]
    )
    task.run()
    assert task.is_equal()


def test_progress_that_somebody_moved_back_is_refused(task: Task) -> None:
    ((origin,),) = task.target.execute("SELECT origin FROM truecopy_task")
    (mark,) = json.loads(origin)["shards"].values()
    task.target.execute(f"UPDATE truecopy_progress SET position = '{mark['position']}'")
    with pytest.raises(DoesNotJoin, match=r"were applied up to .*, and it stands at"):
        task.run()


def test_coordinates_changed_in_the_metastore_are_refused(task: Task) -> None:
    notes = KnownProgress(TASK)
    known = notes.find()
    assert known is not None
    task.change(11)
    ahead = dict.fromkeys(known.applied, task.position())
    notes.begin(replace(known, applied=ahead))
    with pytest.raises(DoesNotJoin, match="were applied up to"):
        task.run()
    first = dict.fromkeys(known.applied, "0-1-1")
    notes.begin(replace(known, applied=first, reached={}))
    with pytest.raises(DoesNotJoin, match="which no run has done"):
        task.run()
    notes.begin(known)
    task.run()
    assert task.is_equal()


@pytest.mark.parametrize("runs_between", [0, 1], ids=["by the same run", "by a later run"])
def test_a_target_that_was_restored_is_refused(task: Task, runs_between: int) -> None:
    """Its rows and its progress agree with each other, and not with what the task has gone on to."""
    backup = {name: task.target.execute(f"SELECT * FROM {name}") for name in KEPT}
    task.change(11, 12)
    transfer = Transfer(task.settings)
    if runs_between:
        transfer.run(until_caught_up=True)
    else:  # a run that had begun when the backup was made
        with unclaimed(backup):
            transfer.run(until_caught_up=True)
    for name, rows in backup.items():
        task.target.execute(f"DELETE FROM {name}")
        marks = ", ".join(["%s"] * len(rows[0]))
        task.target.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    with pytest.raises(DoesNotJoin, match="has written there" if runs_between else "stands at"):
        task.run()


@contextmanager
def unclaimed(backup: dict[str, list[Any]]) -> Iterator[None]:
    """The backup is made after the task was taken over."""
    with pytest.MonkeyPatch.context() as patch:
        claim = Ledger.claim

        def claimed(ledger: Ledger, *given: Any) -> TaskLine:
            line = claim(ledger, *given)
            (kept,) = backup["truecopy_task"]
            backup["truecopy_task"] = [(*kept[:-1], line.epoch)]
            backup["truecopy_progress"] = [
                (*one[:-1], line.epoch) for one in backup["truecopy_progress"]
            ]
            return line

        patch.setattr(Ledger, "claim", claimed)
        yield


STEPS: dict[str, tuple[Any, str]] = {
    "the task is taken over": (Ledger, "claim"),
    "its progress is noted": (run, "begin_notes"),
    "the end of a batch is noted": (Notes, "begin"),
    "a batch is applied": (Replication, "_apply"),
    "what was applied is noted": (Notes, "end"),
    "parts are settled": (Replication, "settle"),
}


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_after_any_step_is_gone_on_from(
    task: Task, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    owner, name = STEPS[step]
    done = getattr(owner, name)
    deaths = []

    def and_die(*arguments: Any, **named: Any) -> None:
        done(*arguments, **named)
        deaths.append(step)
        raise Killed

    for times in (1, 2):
        task.change(*range(1, 20))
        with monkeypatch.context() as patch, suppress(Exception):
            patch.setattr(owner, name, and_die)
            task.run()
        assert len(deaths) == times
    task.run()
    assert task.is_equal()


def test_a_run_with_another_metastore_is_gone_on_from(task: Task) -> None:
    """This one knows nothing of it."""
    notes = KnownProgress(TASK)
    known = notes.find()
    assert known is not None
    task.change(21, 22)
    task.run()
    notes.begin(known)
    task.change(23)
    task.run()
    assert task.is_equal()


def test_a_task_that_runs_may_be_taken_over(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one goes on between the looks at its notes and at its progress."""
    looked = KnownProgress.find
    looks = []

    def find(notes: KnownProgress) -> Known | None:
        found = looked(notes)
        looks.append(found)
        if len(looks) == 1:
            task.change(31)
            other.run(until_caught_up=True)
        return found

    other = Transfer(task.settings)
    with monkeypatch.context() as patch:
        patch.setattr(other, "_claim", _keep_claim(other))
        patch.setattr(KnownProgress, "find", find)
        task.run()
    assert task.is_equal()


def _keep_claim(transfer: Transfer) -> Any:
    """Goes on as the one that has the task."""
    return lambda target, _: transfer._ledger(target).find()


def test_batches_that_were_begun_and_are_of_cursors_that_cannot_be_ordered() -> None:
    """Of text, nobody knows which is later: the end of a batch is known by itself."""
    line = TaskLine("replicate", {"shards": {"shop": {"position": '{"a":"b"}'}}}, 3)
    known = Known("target", line.origin, 3, {"shop": '{"a":"k"}'}, {"shop": ['{"a":"c"}']})
    assert not gone_back(known, line, {"shop": ('{"a":"c"}', 0)})
    assert not gone_ahead(known, {"shop": ('{"a":"c"}', 0)})
    assert gone_back(known, line, {"shop": ('{"a":"d"}', 0)})
    assert gone_ahead(known, {"shop": ('{"a":"d"}', 0)})


def test_a_part_without_a_line_stands_where_changes_began() -> None:
    """As after a way back was begun again, before it had anything to apply."""
    line = TaskLine("replicate", {"shards": {"shop": {"position": "0-1-7"}}}, 3)
    known = Known("target", line.origin, 2, {"shop": "0-1-7"}, {})
    assert not gone_back(known, line, {})
    assert gone_back(replace(known, applied={"shop": "0-1-8"}), line, {})
