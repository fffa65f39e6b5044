"""Everything that a user may choose about a verification, as one value."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.model.types import Type, parse_type

_SAME_ANSWER_WHATEVER = {
    "limit", "max_time", "connections", "chunk_seconds", "replica", "max_lag",
}  # fmt: skip
"""Options that change the pace of the work and not its answer: a run may be resumed under others."""


@dataclass(frozen=True)
class Options:
    """What to compare, how, and how hard; defaults suit a production database.

    Attributes:
        tables: `NAME` or `SOURCE=TARGET`; `*` in SOURCE merges many tables into one. Empty: all common tables.
        ignore_columns: `COLUMN` or `TABLE.COLUMN`, by the source's name.
        casts: `COLUMN=TYPE`, with an optional `TABLE.` before it.
        renames: `SOURCE_COLUMN=TARGET_COLUMN`, with an optional `TABLE.` before it.
        key: Columns that identify a row, where the tables do not say.
        where: A condition for both sides.
        float_tolerance: Relative difference up to which floats count as equal.
        limit: Stop after this many differing rows.
        max_time: Stop after this many seconds.
        sample: Compare this share of the chunks only.
        connections: Connections to each side at the same time; None for one per core.
        chunk_rows: Rows of a chunk; None lets the size of a row decide.
        chunk_seconds: What one statement should take at most; statements shrink to it.
        replica: A replica whose lag pauses the work.
        max_lag: Seconds of lag above which it pauses.
        live: Both sides are written to meanwhile.
        delay: Seconds for which a source row must stand still before a difference counts (`live`).
        settle_time: Seconds after which rows that never stood still are counted as unsettled.
        match_case, match_order: Column names and order must agree to the letter.
        strict_structure: Every difference of structure makes the tables different.
    """

    tables: tuple[str, ...] = ()
    ignore_columns: tuple[str, ...] = ()
    casts: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    where: str | None = None
    float_tolerance: float = 0.0
    limit: int | None = None
    max_time: float | None = None
    sample: float | None = None
    sample_seed: int = 0
    connections: int | None = None
    chunk_rows: int | None = None
    chunk_seconds: float = 1.0
    replica: Endpoint | None = None
    max_lag: float = 1.0
    live: bool = False
    delay: float = 5.0
    settle_time: float = 60.0
    match_case: bool = False
    match_order: bool = False
    strict_structure: bool = False

    def __post_init__(self) -> None:
        _require(self.sample is None or 0 < self.sample <= 1, "--sample is a share between 0 and 1")
        _require(self.limit is None or self.limit > 0, "--limit must be at least 1")
        _require(
            self.max_time is None or self.max_time > 0, "--max-time must be more than 0 seconds"
        )
        _require(
            self.connections is None or self.connections > 0, "--connections must be at least 1"
        )
        _require(self.chunk_rows is None or self.chunk_rows > 0, "--chunk-rows must be at least 1")
        _require(self.chunk_seconds > 0, "--chunk-seconds must be more than 0")
        _require(0 <= self.float_tolerance < 1, "--float-tolerance is relative, between 0 and 1")
        _require(
            self.delay > 0 and self.settle_time > 0, "--delay and --settle-time must be more than 0"
        )
        for cast in self.casts:
            _split(cast, "--cast COLUMN=TYPE")
            parse_type(cast.partition("=")[2])
        for rename in self.renames:
            _split(rename, "--rename SOURCE=TARGET")

    def ignores(self, table: str, column: str) -> bool:
        """Whether a column of a source table is left out."""
        return any(_names(pattern, table, column) for pattern in self.ignore_columns)

    def cast_of(self, table: str, column: str) -> Type | None:
        """The type that the user wants a column compared as."""
        for cast in self.casts:
            name, kind = _split(cast, "--cast COLUMN=TYPE")
            if _names(name, table, column):
                return parse_type(kind)
        return None

    def renamed(self, table: str, column: str) -> str:
        """The name on the target of a column of a source table."""
        for rename in self.renames:
            name, new = _split(rename, "--rename SOURCE=TARGET")
            if _names(name, table, column):
                return new
        return column

    def fingerprint(self, source: Endpoint, target: Endpoint) -> str:
        """Names the work: a run is resumed only under the same one."""
        chosen = [
            (f.name, getattr(self, f.name))
            for f in fields(self)
            if f.name not in _SAME_ANSWER_WHATEVER
        ]
        text = repr((source.identity, target.identity, chosen))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _names(pattern: str, table: str, column: str) -> bool:
    of_table, _, name = pattern.rpartition(".")
    if name.lower() != column.lower():
        return False
    return not of_table or of_table == table or table.endswith(f".{of_table}")


def _split(text: str, form: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    _require(bool(left and equals and right), f"{text!r} is not of the form {form}")
    return left, right


def _require(fine: bool, message: str) -> None:
    if not fine:
        raise UsageError(message)
