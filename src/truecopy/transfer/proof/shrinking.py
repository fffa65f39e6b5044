"""When the rows that are left are few enough for a cutover: the rules alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ShrinkRules:
    """How long to go on looking before writers are locked out.

    Attributes:
        rounds: The most rounds; each looks at every row that was left when it began.
        enough: No more rounds are needed when no more rows than this are left.
        max_downtime: Seconds that the rest may take while writers wait; None for any.
    """

    rounds: int = 30
    enough: int = 1000
    max_downtime: float | None = None


@dataclass(frozen=True)
class Shrunk:
    """What the rounds came to.

    Attributes:
        stopped: Why: `enough`, `rounds` or `no progress`.
        rate: Rows that were looked at per second; 0 where there were none.
    """

    rounds: int
    left: int
    stopped: str
    rate: float

    @property
    def expected_downtime(self) -> float | None:
        """Seconds that the rest takes at the measured rate; None where no row was looked at that tells it."""
        if not self.left:
            return 0.0
        return self.left / self.rate if self.rate else None

    def fits(self, rules: ShrinkRules) -> bool:
        """Whether the rest may wait for the cutover.

        Rows that are being applied, or that the source does not show yet, cannot be looked at: on a quiet source they
        may be all that there are. A few of them are as good as none.
        """
        if rules.max_downtime is None:
            return True
        expected = self.expected_downtime
        return self.left <= rules.enough if expected is None else expected <= rules.max_downtime


def shrink(
    left: Callable[[], int],
    look_at_all: Callable[[], int],
    rules: ShrinkRules,
    clock: Callable[[], float] = time.monotonic,
) -> Shrunk:
    """Rounds until few are left, or no fewer.

    Args:
        left: How many rows are left now.
        look_at_all: Looks at each of them once; gives how many it looked at.
        rules: When to stop.
        clock: For tests.
    """
    looked, seconds = 0, 0.0
    before = left()
    for number in range(rules.rounds):
        if number and before <= rules.enough:
            return Shrunk(number, before, "enough", _rate(looked, seconds))
        began = clock()
        looked += look_at_all()
        seconds += clock() - began
        after = left()
        if after >= before and after > rules.enough:
            return Shrunk(number + 1, after, "no progress", _rate(looked, seconds))
        before = after
    stopped = "enough" if before <= rules.enough else "rounds"
    return Shrunk(rules.rounds, before, stopped, _rate(looked, seconds))


def _rate(looked: int, seconds: float) -> float:
    return looked / max(seconds, 1e-6) if looked else 0.0
