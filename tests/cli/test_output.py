"""What the terminal shows."""

from __future__ import annotations

import sqlite3
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import truecopy
from tests.program import truecopy as program
from truecopy.cli.output import print_report, visible


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "NULL"),
        ("", "(empty)"),
        ("a  ", "a··"),
        ("a\tb", "a\\x09b"),
        ("x" * 500, "x" * 117 + "…"),
    ],
)
def test_what_the_eye_would_miss_is_shown(value: str | None, shown: str) -> None:
    assert visible(value) == shown


def test_values_are_not_taken_for_markup(tmp_path: Path) -> None:
    for name, value in (("a.db", "[red]x[/red]"), ("b.db", "[/]")):
        with sqlite3.connect(tmp_path / name) as connection:
            connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
            connection.execute("INSERT INTO t VALUES (1, ?)", (value,))
    report = truecopy.verify(f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db")
    out = StringIO()
    print_report(report, Console(file=out, width=100))
    assert "[red]x[/red]" in out.getvalue()
    assert "[/]" in out.getvalue()


def test_standard_output_carries_the_result_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a.db", "b.db"):
        with sqlite3.connect(tmp_path / name) as connection:
            connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
            connection.execute("INSERT INTO t VALUES (1)")
    ends = [f"sqlite:///{tmp_path}/{name}" for name in ("a.db", "b.db")]
    ended = program("verify", *ends, "--json", "--report", str(tmp_path / "page.html"))
    assert ended.document["verdict"] == "equal"
    assert "page.html" in ended.err


def test_help_has_examples_and_exit_codes() -> None:
    ended = program("verify", "--help")
    assert ended.code == 0
    assert "Examples:" in ended.out
    assert "Exit codes:" in ended.out
