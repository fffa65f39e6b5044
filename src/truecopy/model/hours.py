"""Parts of the day."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

PATTERN = r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)"


@dataclass(frozen=True)
class Hours:
    """A part of the day; one that ends before it begins goes over midnight."""

    start: dt.time
    end: dt.time

    def contains(self, at: dt.time) -> bool:
        if self.start <= self.end:
            return self.start <= at < self.end
        return at >= self.start or at < self.end

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M}"


def parse_hours(text: str) -> Hours:
    """Reads `22:00-06:00`; anything else is a `ValueError`."""
    found = re.fullmatch(PATTERN, text.strip())
    if found is None:
        raise ValueError("not a part of the day; write for example 22:00-06:00")
    a, b, c, d = map(int, found.groups())
    return Hours(dt.time(a, b), dt.time(c, d))
