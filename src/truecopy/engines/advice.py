"""What a database says of itself before rows move, as plain values. Asking changes nothing there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from truecopy.model.finding import Finding
from truecopy.model.guarantees import TargetLevel
from truecopy.model.table import Column, Table, TableName

CASE, ACCENTS, SPACES = "case", "accents", "trailing spaces"
"""What a comparison of texts may pass over."""

ZERO_DATES = "zero dates"
FAR_TIMES = "infinite times, or years that are not from 1 to 9999"
NO_NUMBERS = "numbers that are infinite, or none at all"
"""Values that some engines have, and others not."""


@dataclass(frozen=True)
class Arrival:
    """What a target is going to be given.

    Attributes:
        existing: The tables that are there already.
        made: Those that will be made, under the names that they get here.
        unfinished: Those of the existing ones that still lack indexes or references of the source.
        references: Whether a table of any kind refers to another one.
    """

    existing: Sequence[Table]
    made: Sequence[Table]
    unfinished: Sequence[Table]
    references: bool


@dataclass(frozen=True)
class Retention:
    """How long a log is kept.

    Attributes:
        setting: What says so, as the server calls it.
        remedy: What keeps it longer.
        seconds: None where time does not end it.
        bytes: What may be written before the oldest part goes; None where size does not end it.
        bytes_per_second: How fast it grows, on the average; None where that is not known.
    """

    setting: str
    remedy: str
    seconds: float | None = None
    bytes: int | None = None
    bytes_per_second: float | None = None


@dataclass(frozen=True)
class RowLimit:
    """The largest row that passes, and what makes it larger."""

    bytes: int
    setting: str
    remedy: str


@dataclass(frozen=True)
class Trigger:
    """A trigger.

    Attributes:
        fires: Whether writes of a transfer set it off.
        removal: The statement that ends that.
    """

    table: TableName
    name: str
    event: str
    fires: bool
    removal: str


@dataclass(frozen=True)
class Uncarried:
    """Things of one kind that a transfer leaves behind; `note` says what becomes of them."""

    kind: str
    names: tuple[str, ...]
    note: str = ""


class Advisor(Protocol):
    """Answers the questions of a preflight check.

    What cannot be found out raises a `TruecopyError`, which is then told as such.
    """

    target_level: TargetLevel
    holds: frozenset[str]
    """Which odd values it has a place for."""

    def as_source(self, tables: Sequence[Table]) -> Iterable[Finding]:
        """What is in the way of reading these tables."""
        ...

    def as_target(self, arrival: Arrival) -> Iterable[Finding]:
        """What is in the way of writing, other than rights."""
        ...

    def missing_rights(self, arrival: Arrival) -> Iterable[Finding]:
        """What the user may not do and has to."""
        ...

    def retention(self) -> Retention | None:
        """How long the log is kept; None for ever."""
        ...

    def triggers(self) -> list[Trigger]:
        """Those of all tables."""
        ...

    def passed_over(self, table: Table) -> Mapping[str, frozenset[str]]:
        """By column of text: what its unique keys take for equal though it is not the same."""
        ...

    def time_zone(self) -> str | None:
        """The zone that sessions have which do not ask for one; None where there is no such thing."""
        ...

    def set_time_zone(self, zone: str) -> str:
        """The statement that gives later sessions this zone; empty where there is none."""
        ...

    def free_bytes(self) -> int | None:
        """The space that is left; None where the database does not show it."""
        ...

    def sql_mode(self) -> frozenset[str] | None:
        """The modes that sessions have which do not ask for others; None where there are no modes."""
        ...

    def set_sql_mode(self, modes: frozenset[str]) -> str:
        """The statement that gives later sessions these modes; empty where there are none."""
        ...

    def row_limit(self) -> RowLimit | None:
        """How large a row may be on its way; None where nothing but memory bounds it."""
        ...

    def largest_row(self, table: Table) -> int:
        """Bytes of the texts of the largest row; reads the whole table."""
        ...

    def odd_values(self, table: Table) -> Iterable[tuple[str, str]]:
        """Columns with values that not every engine has a place for, and what they are; reads the whole table."""
        ...

    def space_hint(self) -> str:
        """How to find out, where it does not."""
        ...

    def alter_column(self, name: TableName, column: Column, like: Column, of: Table) -> str:
        """The statement that lets a column hold what a column of another table holds; empty where there is none."""
        ...

    def change_key(self, table: Table, key: Sequence[str]) -> str:
        """The statement that gives a table another primary key; empty where there is none."""
        ...

    def inventory(self) -> list[Uncarried]:
        """What there is beside tables with their columns, keys and indexes."""
        ...
