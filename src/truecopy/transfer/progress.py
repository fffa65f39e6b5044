"""How far a transfer is: rows, rate, time left, lag, table by table."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

WINDOW_SECONDS = 10.0
"""A rate is that of the last few seconds."""


@dataclass(frozen=True)
class Version:
    """What a table is complete up to: a position of the source, and its commit time in microseconds."""

    position: str
    committed_at: int

    def plain(self) -> dict[str, object]:
        return {"position": self.position, "committed_at": moment(self.committed_at)}


@dataclass(frozen=True)
class TableProgress:
    """One source table.

    Attributes:
        rows_about: The rows that it had when the copy began, as the source guessed.
        chunks, chunks_copied: How it was cut, and what of that is in.
        changes_applied: Since the copy, as the drivers counted.
        version: None before a change of it was applied.
        rate: Rows per second while it is copied, else changes, lately.
    """

    rows_copied: int = 0
    rows_about: int = 0
    chunks: int = 0
    chunks_copied: int = 0
    changes_applied: int = 0
    version: Version | None = None
    rate: float = 0.0

    @property
    def is_copied(self) -> bool:
        return self.chunks > 0 and self.chunks == self.chunks_copied

    @property
    def seconds_left(self) -> float | None:
        """Of its copy; None when that is not known or over."""
        left = self.rows_about - self.rows_copied
        return left / self.rate if self.rate and left > 0 and not self.is_copied else None

    def plain(self) -> dict[str, object]:
        return {
            **asdict(self),
            "version": self.version.plain() if self.version else None,
            "rate": round(self.rate, 1),
            "seconds_left": _rounded(self.seconds_left),
        }


@dataclass(frozen=True)
class Progress:
    """A whole task.

    Attributes:
        phase: `snapshot`, `replay`, `replicate`, …
        waits: Why the work stands; empty when it goes on.
        rate: Rows per second while rows are copied, else changes, lately.
        seconds_left: Of the copy; None when that is not known or over.
        lag_seconds: How far the target is behind the source; None where no driver tells.
    """

    task: str
    phase: str
    epoch: int
    waits: str = ""
    rate: float = 0.0
    seconds_left: float | None = None
    lag_seconds: float | None = None
    tables: Mapping[str, TableProgress] = field(default_factory=dict)

    @property
    def rows_copied(self) -> int:
        return sum(table.rows_copied for table in self.tables.values())

    @property
    def rows_about(self) -> int:
        """No less than what is copied: the source's guess may be short."""
        return sum(
            table.rows_copied if table.is_copied else max(table.rows_about, table.rows_copied)
            for table in self.tables.values()
        )

    @property
    def changes_applied(self) -> int:
        return sum(table.changes_applied for table in self.tables.values())

    @property
    def newest(self) -> int:
        """When the last change that is in was committed, in microseconds; 0 where none is."""
        versions = (table.version for table in self.tables.values())
        return max((one.committed_at for one in versions if one), default=0)

    def lag_of(self, table: str) -> float | None:
        """How far one table is behind: as far as the whole, and farther where others have come farther."""
        version = self.tables[table].version
        if self.lag_seconds is None or version is None:
            return self.lag_seconds
        return self.lag_seconds + max(self.newest - version.committed_at, 0) / 1e6

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "task": self.task,
            "phase": self.phase,
            "epoch": self.epoch,
            "waits": self.waits or None,
            "rows_copied": self.rows_copied,
            "rows_about": self.rows_about,
            "changes_applied": self.changes_applied,
            "rate": round(self.rate, 1),
            "seconds_left": _rounded(self.seconds_left),
            "lag_seconds": _rounded(self.lag_seconds),
            "tables": {
                name: {**table.plain(), "lag_seconds": _rounded(self.lag_of(name))}
                for name, table in self.tables.items()
            },
        }


class Meter:
    """Counts, and says how fast lately.

    Args:
        clock: For tests.
        since: When nothing was counted yet; by default now.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, since: float | None = None
    ) -> None:
        self._clock = clock
        self._total = 0
        now = clock()
        self._seen = deque([(now if since is None else max(since, now - WINDOW_SECONDS), 0)])

    def add(self, count: int) -> None:
        self._total += count
        self._seen.append((self._clock(), self._total))

    def rate(self) -> float:
        """Of the last seconds."""
        now = self._clock()
        while len(self._seen) > 1 and self._seen[1][0] < now - WINDOW_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        return (self._total - before) / (now - since) if now > since else 0.0


def version_of(table: str, parts: Mapping[str, tuple[str, int]]) -> Version | None:
    """Up to where a table is complete, by the lines of the ledger: its own, else those that it shares.

    Of 64 slices it is the one that is furthest behind.
    """
    within = [(part.partition("/")[2], at) for part, at in parts.items()]
    own = [at for part, at in within if part == f"t/{table}"]
    shared = own or [at for part, at in within if not part.startswith("t/")]
    return Version(*min(shared, key=lambda at: at[1])) if shared else None


def moment(microseconds: int) -> str | None:
    """An instant as text; None where it is not known."""
    if not microseconds:
        return None
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="milliseconds")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
