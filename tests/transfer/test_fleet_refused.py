"""Rows that are in the way of a leg: waited for while others move, and told when they stay."""

from __future__ import annotations

from typing import cast

import pytest

from truecopy.model.errors import KeyTaken
from truecopy.transfer import fleet
from truecopy.transfer.run import RunReport, Transfer


class Refusing:
    """A leg that is refused these rows, one in each run, and then replicates to its end."""

    def __init__(self, *rows: str) -> None:
        self.rows = list(rows)

    def run(self) -> RunReport:
        if self.rows:
            raise KeyTaken(self.rows.pop(0))
        return RunReport("move", "replicate", None, {})


def test_a_leg_waits_while_other_rows_are_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_TURN_SECONDS", 0.0)
    moving = Refusing(*"aaaabbbbcccc")
    assert fleet._keep_up(cast(Transfer, moving)).state == "replicate"


def test_a_row_that_stays_in_the_way_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_TURN_SECONDS", 0.0)
    stuck = Refusing("b", *["row a"] * 100)
    with pytest.raises(KeyTaken, match="row a"):
        fleet._keep_up(cast(Transfer, stuck))
    assert len(stuck.rows) == 95
