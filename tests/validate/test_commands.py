"""What the commands about errors print and refuse; what they do to the errors of a task is in its metastore."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.program import truecopy
from truecopy.metastore.validation_errors import Found
from truecopy.metastore.validations import Validations

_AT = 1_700_000_000_000_000


@pytest.fixture
def file(task: str, tmp_path: Path) -> Path:
    """A task that stands still; three of its rows are wrong, in three ways."""
    for name, rows in (("a", "(1, 'one'), (2, 'two')"), ("b", "(2, 'TWO'), (3, 'three')")):
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as database, database:
            database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
            database.execute(f"INSERT INTO t VALUES {rows}")
    written = tmp_path / "task.yaml"
    written.write_text(
        f"task: {task}\nsource: sqlite:///{tmp_path}/a.db\ntarget: sqlite:///{tmp_path}/b.db\n"
    )
    store = Validations()
    epoch = store.claim(task, "full", {}).epoch
    whole = {"1": {"id": "1", "v": "one"}, "3": {"id": "3", "v": "three"}}
    found = [
        Found("1", "t", kind="missing", key={"id": "1"}, source=whole["1"]),
        Found(
            "2",
            "t",
            kind="differs",
            key={"id": "2"},
            columns=["v"],
            source={"v": "two"},
            target={"v": "TWO"},
            first_failed_at=_AT,
            last_failed_at=_AT + 60_000_000,
        ),
        Found("3", "t", kind="extra", key={"id": "3"}, target=whole["3"]),
    ]
    store.store(task, epoch, {}, {}, (), (), found, caught_up=True)
    store.stop(task)
    return written


def numbers(task: str) -> list[str]:
    return [str(error.id) for error in Validations().errors.of(task)]


def statuses(task: str) -> list[str]:
    return [error.status for error in Validations().errors.of(task)]


def test_errors_are_listed_with_what_there_is_and_when_they_failed(file: Path) -> None:
    listed = truecopy("validate", "errors", str(file))
    assert listed.code == 1
    missing, differs, extra = listed.out.splitlines()[1:]
    assert "id=1, v=one" in missing
    assert "no row" in missing
    assert "2023-11-14T22:13:20+00:00" in differs
    assert "2023-11-14T22:14:20+00:00" in differs
    assert "id=3, v=three" in extra


def test_errors_are_listed_by_status(file: Path, task: str) -> None:
    one, two, _ = numbers(task)
    assert truecopy("validate", "ignore", str(file), one).code == 0
    assert truecopy("validate", "resolve", str(file), two).code == 0

    def listed(*more: str) -> tuple[int, list[str]]:
        ended = truecopy("validate", "errors", str(file), "--json", *more)
        return ended.code, [error["kind"] for error in json.loads(ended.out)]

    assert listed("--status", "ignored") == (0, ["missing"])
    assert listed("--status", "ignored", "--status", "new") == (1, ["missing", "extra"])
    refused = truecopy("validate", "errors", str(file), "--status", "old")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("command", "left"),
    [("ignore", ["ignored"] * 3), ("resolve", ["resolved"] * 3), ("clear", [])],
)
def test_all_errors_at_once(file: Path, task: str, command: str, left: list[str]) -> None:
    assert truecopy("validate", command, str(file), "--all").out.startswith("3 ")
    assert statuses(task) == left


def test_programs_get_one_document(file: Path, task: str) -> None:
    one, *_ = numbers(task)

    def document(command: str, *more: str) -> dict[str, Any]:
        return truecopy("validate", command, str(file), *more, "--json").document

    for command in ("recheck", "ignore", "resolve", "clear"):
        assert document(command, one) == {"task": task, "errors": 1}
    stopped = document("stop")
    assert (stopped["task"], stopped["state"]) == (task, "stopped")


def test_a_number_that_no_error_has_is_refused_before_anything_is_done(
    file: Path, task: str
) -> None:
    refused = truecopy("validate", "ignore", str(file), numbers(task)[0], "999999")
    assert refused.code == 2
    assert "999999" in refused.err
    assert numbers(task)[0] not in refused.err.split(":")[-1]
    assert statuses(task) == ["new"] * 3


def test_a_repair_is_printed(file: Path, task: str) -> None:
    script = truecopy("validate", "repair", str(file))
    assert script.code == 0, script.err
    assert set(script.out.split()) >= {"DELETE", "INSERT", "UPDATE"}
    found = truecopy("validate", "repair", str(file), "--json").document
    assert (found["statements"], found["applied"], found["script"]) == (3, False, script.out)
    assert statuses(task) == ["new"] * 3


def test_a_task_is_deleted_with_one_document(file: Path, task: str) -> None:
    deleted = truecopy("delete", str(file), "--yes", "--json")
    assert deleted.code == 0, deleted.err
    assert deleted.document["task"] == task
    assert any("validation" in line for line in deleted.document["removed"])
    assert Validations().find(task) is None
