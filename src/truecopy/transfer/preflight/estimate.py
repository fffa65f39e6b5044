"""How long a copy takes, roughly: a cautious guess from what the source's catalog says of its tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from truecopy.model.table import Table

ROWS_PER_SECOND = 20_000
BYTES_PER_SECOND = 10 << 20


@dataclass(frozen=True)
class Estimate:
    """Rows and bytes to copy."""

    rows: int
    bytes: int

    @property
    def seconds(self) -> float:
        return max(self.rows / ROWS_PER_SECOND, self.bytes / BYTES_PER_SECOND)


def estimate(tables: Iterable[Table]) -> Estimate:
    """Of these tables together."""
    listed = list(tables)
    return Estimate(
        sum(table.rows for table in listed), sum(table.rows * table.row_bytes for table in listed)
    )


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
