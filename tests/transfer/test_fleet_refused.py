"""Rows that are in the way of a leg: waited for while others move, and told when they stay."""

from __future__ import annotations

from typing import cast

import pytest

from truecopy.model.errors import KeyTaken
from truecopy.transfer import fleet
from truecopy.transfer.run import RunReport, Transfer


class Refusing:
    """A leg that is refused these rows, one in each run, and then replicates to its end.

    Args:
        rows: What is in the way; `go on` is a batch that went in.
        others: How many runs the others go on for.
    """

    def __init__(self, *rows: str, others: int = 0) -> None:
        self.rows = list(rows)
        self.place = self.runs = 0
        self._others = others

    def run(self) -> RunReport:
        self.runs += 1
        while self.rows:
            row = self.rows.pop(0)
            if row != "go on":
                raise KeyTaken(row)
            self.place += 1
        return RunReport("move", "replicate", None, {})

    def keep_up(self) -> RunReport:
        transfer = cast(Transfer, self)
        return fleet._keep_up(
            transfer, lambda: [self.place], lambda: [min(self.runs, self._others)]
        )


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_TURN_SECONDS", 0.0)


def test_a_leg_waits_while_other_rows_are_in_the_way() -> None:
    assert Refusing(*"aaaabbbbcccc").keep_up().state == "replicate"


def test_a_row_may_be_in_the_way_again_once_the_leg_has_gone_on() -> None:
    assert Refusing(*["row a", "go on"] * 20).keep_up().state == "replicate"


def test_a_leg_waits_for_others_that_are_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Refusing(*["row a"] * 50, others=46).keep_up().state == "replicate"
    monkeypatch.setattr(fleet, "_PATIENCE_SECONDS", -1.0)
    with pytest.raises(KeyTaken, match="row a"):
        Refusing(*["row a"] * 50, others=46).keep_up()


def test_a_row_that_stays_in_the_way_ends_it() -> None:
    stuck = Refusing("b", *["row a"] * 100)
    with pytest.raises(KeyTaken, match="row a"):
        stuck.keep_up()
    assert len(stuck.rows) == 95
