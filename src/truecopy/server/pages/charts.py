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
_Point = tuple[int, float]
"""A moment in microseconds, and a value."""


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
    span = max(end - start, 1)
    points = _thinned(known, start, span)
    top = max(found for _, found in points)
    scale = HEIGHT / top if top else 0.0
    placed = [
        [((at - start) * WIDTH / span, HEIGHT - found * scale) for at, found in line]
        for line in _unbroken(points, span)
    ]
    return Chart(
        title,
        tuple(" ".join(f"{x:.1f},{y:.1f}" for x, y in line) for line in placed),
        unit(top),
        unit(known[-1][1]),
        _clock(start),
        _clock(end),
    )


def _unbroken(points: Sequence[_Point], span: int) -> list[list[_Point]]:
    """The lines between which the task stood; one that has a single point begins and ends there, as a dot."""
    gap = max(_GAP_SECONDS * _MICROSECONDS, 3 * span // POINTS)
    lines = [[points[0]]]
    for before, point in pairwise(points):
        if point[0] - before[0] > gap:
            lines.append([])
        lines[-1].append(point)
    return [line if len(line) > 1 else line * 2 for line in lines]


def _thinned(known: Sequence[_Point], start: int, span: int) -> list[_Point]:
    """At most so many points: of those that share a place, the largest, so that no peak is lost."""
    kept: dict[int, _Point] = {}
    for at, found in known:
        place = (at - start) * POINTS // (span + 1)
        if place not in kept or kept[place][1] < found:
            kept[place] = at, found
    return [kept[place] for place in sorted(kept)]


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / _MICROSECONDS, UTC).strftime("%H:%M:%S")
