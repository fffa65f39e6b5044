"""Where a stream enters the log of a shard that filtered replication fed."""

from __future__ import annotations

import pytest

from truecopy.stream.log import LogGone, Mark
from truecopy.stream.origins import Applied, hop_point


def enter(log: str, given: int, is_complete: bool = False) -> int:
    """The number of the transaction to enter behind.

    Args:
        log: A letter a transaction: `w` written by others, `B` the first record of replication, `o` one more.
        given: How many records of the source the stream has given.
        is_complete: Whether nothing was removed from the log.
    """
    transactions, records = [], 0
    for number, kind in enumerate(log, 1):
        records += kind != "w"
        origin = ("a", f"0-1-{records}") if kind != "w" else ("", "")
        transactions.append(Applied(Mark(str(number)), *origin, begins=kind == "B"))
    applied = {"a": f"0-1-{records}"} if records else {}
    point = hop_point(
        transactions, {"a": f"0-1-{given}"}, applied, Mark("0"), is_complete, where="b"
    )
    return int(point.position)


def test_behind_what_was_given() -> None:
    assert enter("wwBooo", given=3, is_complete=True) == 5


def test_before_the_first_own_write() -> None:
    assert enter("wwBowo", given=3, is_complete=True) == 4


def test_half_a_copy_is_still_a_copy() -> None:
    assert enter("wBoo", given=2) == 3


def test_a_log_that_begins_with_own_writes_has_lost_some() -> None:
    with pytest.raises(LogGone, match=r"starts after it was first written to.* keep logs longer"):
        enter("wwo", given=1)


def test_a_log_that_starts_behind_what_was_given() -> None:
    with pytest.raises(LogGone, match="starts after what was replicated"):
        enter("oo", given=0)
