"""When a check may tell errors: once validation has caught up, or has tried to for long enough."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.validate.test_standing import standing
from truecopy.metastore.validation_errors import Wishes
from truecopy.transfer.continuous.held import Held
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.continuous.rounds import Rounds
from truecopy.transfer.settings import Settings


@pytest.mark.parametrize(
    ("caught_up", "initial_delay", "marks"),
    [(False, 3600.0, False), (False, 0.0, True), (True, 3600.0, True)],
)
def test_errors_are_told_after_the_initial_delay_or_once_it_has_caught_up(
    caught_up: bool, initial_delay: float, marks: bool
) -> None:
    options = ContinuousOptions(initial_delay=initial_delay)
    settings = Settings("shop", "sqlite:///a.db", "sqlite:///b.db")
    nobody = cast(Any, None)  # is asked for rules
    rounds = Rounds(
        settings, options, replace(standing({}), caught_up=caught_up), nobody, nobody, nobody
    )
    assert rounds._rules(0, Wishes(), Held()).marks is marks
