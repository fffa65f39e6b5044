"""Suites are kept and steered by commands as by the pages, with a server and without one."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.program import truecopy
from tests.server.support import serving, wait_until

_SUITE = """
control: sqlite:///{folder}/old.db
test: sqlite:///{folder}/new.db
queries:
  - {{name: same, query: SELECT id FROM goods}}
  - {{name: other, query: SELECT name FROM goods}}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for name in ("old", "new"):
        with sqlite3.connect(tmp_path / f"{name}.db") as database:
            database.execute("CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT)")
            database.execute("INSERT INTO goods VALUES (1, ?)", (name,))
        database.close()
    file = tmp_path / "reports.yaml"
    file.write_text(_SUITE.format(folder=tmp_path))
    return file


def _last(*server: str) -> dict[str, Any]:
    shown = truecopy("suite", "show", "reports", *server)
    assert shown.code == 0, shown.err
    return json.loads(shown.out)["last"] or {}


def _tell_a_story(suite: Path, *server: str) -> None:
    added = truecopy("suite", "add", "reports", str(suite), *server)
    assert (added.code, added.out) == (0, "reports: is there; suite run runs it\n"), added.err
    assert "not run so far" in truecopy("suite", "list", *server).out
    run = truecopy("suite", "run", "reports", *server)
    assert run.code == 0, run.err
    ended = wait_until(lambda: (one := _last(*server))["state"] == "ended" and one, 120)
    assert ended["result"]["statuses"] == {"SUCCEEDED": 1, "FAILED": 1}, ended
    listed = truecopy("suite", "list", *server).out
    assert "differences" in listed
    assert "1 failed, 1 succeeded" in listed
    late = truecopy("task", "stop-run", str(ended["id"]), *server)
    assert late.code != 0
    assert late.err.count("\n") == 1
    assert f"run {ended['id']} has ended" in late.err
    removed = truecopy("suite", "remove", "reports", "--yes", *server)
    assert (removed.code, removed.out) == (0, "removed: the suite reports\n"), removed.err
    assert json.loads(truecopy("suite", "list", "--json", *server).out) == []


@pytest.mark.long
def test_without_a_server(suite: Path) -> None:
    _tell_a_story(suite)


@pytest.mark.long
def test_with_a_server(suite: Path) -> None:
    with serving() as ask:
        _tell_a_story(suite, "--server", f"http://127.0.0.1:{ask.port}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "a b", "FILE"), "the suite's name: at most 64 letters"),
        (("add", "a", "nowhere.yaml"), "cannot read the suite file nowhere.yaml"),
        (("run", "none"), "there is no suite none"),
        (("show", "none"), "there is no suite none"),
        (("remove", "none", "--yes"), "there is no suite none"),
    ],
)
def test_what_is_wrong_is_one_line(suite: Path, words: tuple[str, ...], said: str) -> None:
    ended = truecopy("suite", *(str(suite) if word == "FILE" else word for word in words))
    assert ended.code == 2
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_a_run_is_ended_by_its_number(suite: Path) -> None:
    with serving(program=("/bin/sh", "-c", "exec sleep 600")) as ask:
        server = "--server", f"http://127.0.0.1:{ask.port}"
        assert truecopy("suite", "add", "reports", str(suite), *server).code == 0
        assert truecopy("suite", "run", "reports", *server).code == 0
        run = wait_until(lambda: (one := _last(*server))["state"] == "running" and one)
        assert truecopy("suite", "remove", "reports", "--yes", *server).code != 0
        stopped = truecopy("task", "stop-run", str(run["id"]), *server)
        assert (stopped.code, stopped.out) == (0, f"run {run['id']}: ends\n"), stopped.err
        wait_until(lambda: _last(*server)["state"] == "ended")
