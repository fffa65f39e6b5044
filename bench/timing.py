"""Times that may be divided by each other: taken in turns, so that a busy moment hits them all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

ROUNDS = 3

Work = Callable[[], object]


def seconds_of(work: Work) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def side_by_side(works: Mapping[str, Work], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each, over rounds in which all take their turn, after one that warms up."""
    for work in works.values():
        work()
    taken = [{name: seconds_of(work) for name, work in works.items()} for _ in range(rounds)]
    return {name: statistics.median(times[name] for times in taken) for name in works}
