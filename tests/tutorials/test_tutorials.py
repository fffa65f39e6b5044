"""Each tutorial, done as its page says."""

from __future__ import annotations

from pathlib import Path

from tests.tutorials.page import read_page
from tests.tutorials.terminal import follow

PAGES = ("first-verify",)


def test_first_verify(tmp_path: Path) -> None:
    follow(read_page("first-verify"), tmp_path, {})
