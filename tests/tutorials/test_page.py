"""The runner itself: a page that shows what does not come out must fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tutorials.page import Command, File, Page, first_missing, read_page
from tests.tutorials.terminal import follow


@pytest.mark.parametrize(
    ("shown", "output", "missing"),
    [
        (("equal: 3 rows in 1.4 s",), "noise\nequal: 3 rows in 22.0 s\n", None),
        (("equal: 3 rows in 1.4 s",), "equal: 4 rows in 1.4 s\n", "equal: 3 rows in 1.4 s"),
        (("a … c",), "a b c\n", None),
        (("a", "…", "z"), "a\nb\nz\n", None),
        (("b", "a"), "a\nb\n", "a"),
        (("at 0-1-7",), "at 0-4711-12\n", None),
        (("a  b",), "a    b   \n", None),
    ],
)
def test_lines_are_found_in_their_order(
    shown: tuple[str, ...], output: str, missing: str | None
) -> None:
    assert first_missing(shown, output) == missing


def _page(*steps: File | Command) -> Page:
    return Page("made up", steps, frozenset({"NAME"}))


def test_a_page_is_typed_into_one_shell(tmp_path: Path) -> None:
    page = _page(
        File("a/greeting.txt", "good day\n"),
        Command("cd a && other=$NAME", ()),
        Command("cat greeting.txt; echo $other", ("good day", "reader")),
        Command("false", ()),
        Command("echo $?", ("1",)),
        Command("cat", ()),  # nobody types anything into it
    )
    follow(page, tmp_path, {"NAME": "reader"})


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (Command("echo other", ("this",)), "the page shows: this"),
        (Command("false", ()), "ended with 1"),
        (Command("exit 0", ()), "ended the shell"),
    ],
)
def test_what_comes_out_otherwise_fails(tmp_path: Path, command: Command, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        follow(_page(command), tmp_path, {"NAME": ""})


def test_variables_that_the_page_does_not_name_fail(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="other variables"):
        follow(_page(Command("true", ())), tmp_path, {})


def test_every_tutorial_is_tried() -> None:
    """A page without a test would grow old."""
    from tests.tutorials.page import DOCS
    from tests.tutorials.test_tutorials import PAGES

    pages = {file.stem for file in (DOCS / "tutorials").glob("*.md")} - {"index"}
    assert pages == set(PAGES)
    for name in pages:
        assert any(isinstance(step, Command) and step.shown for step in read_page(name).steps)
