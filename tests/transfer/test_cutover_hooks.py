"""Commands and addresses that hold writers off: which of them is asked, and how one that takes too long ends."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from truecopy.model.errors import CannotFinish
from truecopy.model.secret import Secret
from truecopy.transfer.cutover.settings import CALLBACK, COMMAND, Callback, Commands, How
from truecopy.transfer.cutover.writers import HOLD, RELEASE, SWITCH, Hooks

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


@pytest.mark.parametrize("step", [HOLD, RELEASE, SWITCH])
def test_what_a_command_says_may_be_in_any_encoding(step: str) -> None:
    """A step is done, or it is not: an error that nobody expects here would leave writers locked out."""
    said = r"printf 'gesperrt f\374r alle'"
    ordered(step, f"{said}; {said} >&2")
    with pytest.raises(CannotFinish, match=f"{step} ended with 3: gesperrt f\ufffdr alle"):
        ordered(step, f"{said} >&2; exit 3")


def test_a_command_that_fails_is_run_again(tmp_path: Path) -> None:
    """As often as is asked for: what it talks to may be away for a moment."""
    count = tmp_path / "count"
    ordered(HOLD, f"echo x >> {count}; test $(wc -l < {count}) -ge 3")
    assert len(count.read_text().splitlines()) == 3
    with pytest.raises(CannotFinish, match="hold ended with 7"):
        ordered(HOLD, f"echo x >> {count}; exit 7")
    assert len(count.read_text().splitlines()) == 6


def test_a_command_that_cannot_be_started_is_one_that_failed() -> None:
    with pytest.raises(
        CannotFinish, match=r"cutover\.commands\.release cannot be started: Argument"
    ):
        ordered(RELEASE, f": {'x' * 3_000_000}")


def ordered(step: str, command: str) -> None:
    commands = {HOLD: Commands(command), RELEASE: Commands("", command)}
    how = How(commands=commands.get(step, Commands(switch=command)))
    hooks = Hooks(how, "cut", "forth")
    if step == SWITCH:
        hooks.switch(5.0)
    else:
        hooks.order(COMMAND, step, 5.0)
