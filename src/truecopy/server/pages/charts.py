"""Lag and throughput over time, as lines that the template draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from truecopy.metastore.tasks import Sample

WIDTH, HEIGHT = 600, 120
POINTS = 240
_MICROSECONDS = 1_000_000
_GAP_SECONDS = 60
"""Without a word for so long, the task stood: the line is broken."""


@dataclass(frozen=True)
class Chart:
    """One figure of a task.

    Attributes:
        lines: Points of each unbroken line, as SVG has them.
        top, last: The largest and the newest value, as people read them.
        since, until: The ends of the axis of time.
    """

    title: str
    lines: tuple[str, ...]
    top: str
    last: str
    since: str
    until: str
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def words(self) -> str:
        """The same for those who do not see it."""
        return (
            f"{self.title} from {self.since} to {self.until}: now {self.last}, at most {self.top}"
        )


def chart(
    title: str,
    samples: Sequence[Sample],
    value: Callable[[Sample], float | None],
    unit: Callable[[float], str],
) -> Chart | None:
    """A chart of samples in their order; None where there are too few to draw."""
    known = [(one.at, found) for one in samples if (found := value(one)) is not None]
    if len(known) < 2:
        return None
    start, end = known[0][0], known[-1][0]
    points = _thinned(known, start, max(end - start, 1))
    top = max(found for _, found in points)
    scale = HEIGHT / top if top else 0.0
    lines, line = [], [points[0]]
    for before, point in pairwise(points):
        step = max(_GAP_SECONDS * _MICROSECONDS, 3 * (end - start) // POINTS)
        if point[0] - before[0] > step:
            lines.append(line)
            line = []
        line.append(point)
    lines.append(line)
    return Chart(
        title,
        tuple(
            " ".join(
                f"{(at - start) * WIDTH / max(end - start, 1):.1f},{HEIGHT - found * scale:.1f}"
                for at, found in one
            )
            for one in lines
            if len(one) > 1
        ),
        unit(top),
        unit(known[-1][1]),
        _clock(start),
        _clock(end),
    )


def _thinned(known: Sequence[tuple[int, float]], start: int, span: int) -> list[tuple[int, float]]:
    """At most so many points: of those that share a place, the largest, so that no peak is lost."""
    kept: dict[int, tuple[int, float]] = {}
    for at, found in known:
        place = (at - start) * POINTS // (span + 1)
        if place not in kept or kept[place][1] < found:
            kept[place] = at, found
    return [kept[place] for place in sorted(kept)]


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / _MICROSECONDS, UTC).strftime("%H:%M:%S")
