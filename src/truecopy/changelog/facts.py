"""What a log notes of itself: its files of events, its bases, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import quote

NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""Of events whose commit time the source does not tell, as Hive, Spark and DuckDB write it."""


@dataclass(frozen=True)
class EventFile:
    """Events of one table that are together: a file of one day, or rows of one batch in a database.

    Attributes:
        name: Below `changes/`.
        first, last: The batches that its events are of.
        left_out: Whether some event leaves out values that did not change.
        truncates: How often the table was emptied.
        staged: Where the file is as long as it is not published; then empty.
    """

    name: str
    table: str
    day: str
    first: int
    last: int
    rows: int
    bytes: int
    left_out: bool
    truncates: int
    schema_ids: tuple[str, ...]
    staged: str = ""

    @property
    def trait(self) -> Trait:
        return Trait(self.table, self.schema_ids, self.left_out, self.truncates > 0)


@dataclass(frozen=True)
class Trait:
    """What readers have to know of some events before they can read them; see `EventFile`."""

    table: str
    schema_ids: tuple[str, ...]
    left_out: bool
    is_emptied: bool


@dataclass(frozen=True)
class Base:
    """A base snapshot: what events with a larger batch than its own are put upon.

    Attributes:
        batch: The last one whose events are in it.
        ready: The batch after which the events have overtaken the copy; None while they have not.
        ready_at: When that was, in microseconds.
    """

    number: int
    batch: int
    ready: int | None
    ready_at: int


@dataclass(frozen=True)
class BaseTable:
    """A table of a base: its definition, whose declarations those are, and the position of a copy without a key."""

    era: int
    table: str
    schema_id: str
    engine: str
    position: str | None


@dataclass(frozen=True)
class BaseChunk:
    """A chunk of a base; `rows` is None while it is not in."""

    era: int
    table: str
    number: int
    bounds: str
    rows: int | None
    name: str


def bare_name(table: str) -> str:
    """A table's name without its schema."""
    return table.rpartition(".")[2]


def partition(value: str) -> str:
    """A value in the name of a folder, as Hive escapes it."""
    return quote(value, safe=" ._-+$@()") or NO_DAY


def event_name(table: str, day: date | None, stem: str) -> str:
    """Where a file of events is, below `changes/`."""
    when = day.isoformat() if day else NO_DAY
    return f"table={partition(table)}/day={when}/{stem}.parquet"


def chunk_name(base: int, table: str, era: int, number: int) -> str:
    """Where the file of a chunk is, below `base/`."""
    return f"{base}/table={partition(table)}/{era:04d}-{number:06d}.parquet"


def files_by_folder(files: Sequence[EventFile]) -> Mapping[str, list[EventFile]]:
    """Files by the folder that they are in."""
    found: dict[str, list[EventFile]] = {}
    for file in files:
        found.setdefault(file.name.rpartition("/")[0], []).append(file)
    return found
