"""The two ends of a task, open, with the tables that it carries: what every check looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from truecopy.engines.advice import Advisor
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.mapping.plan import Converted, Copied, Expressed, Masked, TableMapping, TargetColumn
from truecopy.model.errors import TruecopyError
from truecopy.model.finding import Finding, Level, Subject
from truecopy.model.table import Table, TableName
from truecopy.model.types import Unknown
from truecopy.transfer.plan import arriving, is_mapped, spelled
from truecopy.transfer.preflight.estimate import Estimate
from truecopy.transfer.settings import Settings

READ_WHOLE_ROWS = 1_000_000
"""Larger tables are not read to find out whether their rows fit."""

T = TypeVar("T")


@dataclass(frozen=True)
class Pair:
    """A table on its way; `target` is None where it is not there yet and will be made as `onto`.

    Attributes:
        readable: The most rows with which it may be read whole for a question.
    """

    source: Table
    mapping: TableMapping
    onto: TableName
    target: Table | None
    readable: int = READ_WHOLE_ROWS

    @property
    def name(self) -> str:
        return str(self.source.name)

    @property
    def is_small(self) -> bool:
        """Whether it may be read whole for a question."""
        return self.source.rows <= self.readable

    @property
    def tells(self) -> bool:
        """Whether its rows can be asked what will arrive: not where a filter, which Spark alone knows, drops some."""
        return self.is_small and not self.mapping.filter

    @cached_property
    def arrives(self) -> Table:
        """The source's table as it will be on the target, by the names that columns have there."""
        return replace(arriving(self.named, self.source), name=self.onto)

    @property
    def named(self) -> TableMapping:
        """The mapping, by the names of the target's table where that is there."""
        return self.mapping if self.target is None else spelled(self.mapping, self.target)

    @property
    def read(self) -> Table:
        """The source's table with the columns that are read of it."""
        if is_mapped(self.mapping):
            return self.source
        names = self.mapping.renames
        columns = tuple(column for column in self.source.columns if column.name in names)
        return replace(self.source, columns=columns)

    def origin(self, name: str) -> str | None:
        """The source column whose value, as it is or in another form, arrives in a column of the target."""
        column = self.arriving(name)
        if column is None or not isinstance(column.origin, Copied | Masked | Converted):
            return None
        return self.mapping.source_columns[column.origin.place].name

    def arriving(self, name: str) -> TargetColumn | None:
        """What the mapping says of a column of the target; None where nothing arrives there."""
        return next((c for c in self.mapping.columns if c.name.lower() == name.lower()), None)


def is_untyped(column: TargetColumn) -> bool:
    """Whether only Spark can tell the type of a column, which a check does not start."""
    return isinstance(column.origin, Expressed) and isinstance(column.type, Unknown)


@dataclass(frozen=True)
class Ends:
    """Both sessions, what they say of themselves, and the tables.

    Attributes:
        source, target: Sessions; checks ask for the capabilities that they need.
        begun: The source tables whose copy the ledger of this task knows already.
    """

    settings: Settings
    source: Any
    target: Any
    source_advisor: Advisor | None
    target_advisor: Advisor | None
    pairs: tuple[Pair, ...]
    begun: frozenset[str]
    estimate: Estimate

    @property
    def existing(self) -> list[tuple[Pair, Table]]:
        """The pairs whose target is there."""
        return [(pair, pair.target) for pair in self.pairs if pair.target is not None]


Check = Callable[[Ends], Iterable[Finding]]


def attempt(action: Callable[[], T], *sessions: Any) -> T | TruecopyError:
    """The answer, or why there is none; a connection that is gone ends the whole check."""
    try:
        return action()
    except TruecopyError as error:
        for session in sessions:
            session.fetch(Statement("SELECT 1"))
        return error


def told_apart(reason: TruecopyError) -> tuple[str, str]:
    """What happened, and what to do: behind the last semicolon, or a GRANT behind the last colon."""
    message, _, remedy = str(reason).rpartition(": ")
    if message and remedy.startswith("GRANT "):
        return message, remedy
    message, _, remedy = str(reason).rpartition("; ")
    return (message, remedy) if message else (remedy, "")


def has_row(session: Any, name: TableName, condition: str = "") -> bool:
    """Whether a table has a row (for which the condition holds)."""
    where = f" WHERE {condition}" if condition else ""
    table = table_sql(session.dialect, name)
    return bool(session.fetch(Statement(f"SELECT 1 FROM {table}{where} LIMIT 1")))


def statement(session: Any, text: str, **names: TableName | str) -> str:
    """A statement for people to run: `{name}` is replaced by that table or column, quoted."""
    quoted = {
        key: table_sql(session.dialect, name)
        if isinstance(name, TableName)
        else session.dialect.quote(name)
        for key, name in names.items()
    }
    return text.format(**{key: name.replace("%%", "%") for key, name in quoted.items()})


def error(subject: Subject, message: str, remedy: str = "", table: str = "") -> Finding:
    """A finding that must be mended."""
    return Finding(Level.ERROR, subject, message, remedy, table)


def warning(subject: Subject, message: str, remedy: str = "", table: str = "") -> Finding:
    """A finding that should be thought about."""
    return Finding(Level.WARNING, subject, message, remedy, table)


def info(subject: Subject, message: str, remedy: str = "", table: str = "") -> Finding:
    """A finding that is good to know."""
    return Finding(Level.INFO, subject, message, remedy, table)
