"""Commands and addresses that hold writers off: which of them is asked, and how one that takes too long ends."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from truecopy.model.errors import CannotFinish
from truecopy.model.secret import Secret
from truecopy.transfer.cutover.settings import CALLBACK, COMMAND, Callback, Commands, How
from truecopy.transfer.cutover.writers import HOLD, Hooks

NOBODY = Callback(Secret("http://127.0.0.1:9/"), attempts=1, seconds=1.0)


def test_a_command_that_takes_too_long_ends_with_what_it_started(tmp_path: Path) -> None:
    """What it had begun would otherwise lock writers out after they were let in again."""
    late = tmp_path / "locked"
    hooks = Hooks(How(commands=Commands(hold=f"(sleep 2; touch {late}) & wait")), "cut", "forth")
    with pytest.raises(CannotFinish, match="took longer than 1 s"):
        hooks.order(COMMAND, HOLD, 1.0)
    time.sleep(2)
    assert not late.exists()


def test_the_lock_says_who_holds_writers_off(tmp_path: Path) -> None:
    """An address beside `lock: command` is not asked in its place."""
    heard = tmp_path / "heard"
    how = How(COMMAND, commands=Commands(hold=f"touch {heard}"), callback=NOBODY)
    Hooks(how, "cut", "forth").order(COMMAND, HOLD, 5.0)
    assert heard.exists()
    with pytest.raises(CannotFinish, match=r"cutover\.callback did not do hold"):
        Hooks(how, "cut", "forth").order(CALLBACK, HOLD, 5.0)
