"""The demo, as a newcomer runs it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.program import truecopy


def test_demo_finds_exactly_the_damage_and_repairs_it(tmp_path: Path) -> None:
    start = time.monotonic()
    ended = truecopy("demo", "--folder", str(tmp_path))
    seconds = time.monotonic() - start
    assert ended.code == 0, ended.err
    for line in ("id=2718", "id=15001", "missing", "extra", "(empty)", "DELETE FROM", "equal:"):
        assert line in ended.out
    assert (tmp_path / "report.html").exists()
    assert "INSERT INTO" in (tmp_path / "repair.sql").read_text()
    assert seconds < 60


@pytest.mark.long
def test_demo_as_json() -> None:
    ended = truecopy("demo", "--json")
    assert ended.code == 0, ended.err
    assert ended.document["damaged"]["verdict"] == "different"
    assert sum(len(t["differences"]) for t in ended.document["damaged"]["tables"]) == 7
    assert ended.document["repaired"]["verdict"] == "equal"
