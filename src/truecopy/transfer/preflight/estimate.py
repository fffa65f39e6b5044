"""How long a copy takes, roughly: a cautious guess from what the source's catalog says of its tables."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from truecopy.model.errors import UsageError
from truecopy.model.hours import Hours
from truecopy.model.table import Table
from truecopy.transfer.limits import Limits

ROWS_PER_SECOND = 20_000
BYTES_PER_SECOND = 10 << 20

_DAY_MINUTES = 24 * 60


@dataclass(frozen=True)
class Estimate:
    """Rows and bytes to copy.

    Attributes:
        rows_per_second: What is guessed, or less where the task asks for that.
        hours: Parts of the day in which rows are copied; none for the whole day.
        seconds: From its beginning to its end, also where it begins when the hours are just over.
    """

    rows: int
    bytes: int
    rows_per_second: int
    hours: tuple[str, ...]
    seconds: float


def estimate(tables: Iterable[Table], limits: Limits) -> Estimate:
    """Of these tables together, as fast as a task may copy them."""
    listed = list(tables)
    rows = sum(table.rows for table in listed)
    size = sum(table.rows * table.row_bytes for table in listed)
    rate = min(limits.rate or ROWS_PER_SECOND, ROWS_PER_SECOND)
    busy = max(rows / rate, size / BYTES_PER_SECOND)
    hours = tuple(map(str, limits.hours))
    seconds = _elapsed(busy, limits.hours) if hours else busy
    return Estimate(rows, size, rate, hours, seconds)


def _elapsed(busy: float, hours: Sequence[Hours]) -> float:
    """From the worst moment on, which is the end of one of the hours: the log is held all the while."""
    times = [dt.time(minute // 60, minute % 60) for minute in range(_DAY_MINUTES)]
    copies = [any(part.contains(time) for part in hours) for time in times]
    if not any(copies):
        raise UsageError(
            "throttle.hours have no time in them: write for example 22:00-06:00, or leave them out"
        )
    days, rest = divmod(busy, 60 * sum(copies))
    ends = [at for at in range(_DAY_MINUTES) if copies[at - 1] and not copies[at]]
    waits = [60 * _minutes(copies, end, math.ceil(rest / 60)) for end in ends]
    return days * 60 * _DAY_MINUTES + max(waits, default=rest)


def _minutes(copies: Sequence[bool], start: int, needed: int) -> int:
    """After how many minutes so many have passed in which rows are copied."""
    passed = 0
    while needed > 0:
        needed -= copies[(start + passed) % _DAY_MINUTES]
        passed += 1
    return passed


def duration(seconds: float) -> str:
    """A time as people say it."""
    for size, word in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {word}"
    return f"{max(seconds, 1):,.0f} s"


def size(count: float) -> str:
    """Bytes as people say them."""
    for power, word in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):,.1f} {word}"
    return f"{count:,.0f} bytes"
