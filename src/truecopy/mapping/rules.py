"""What a task says about the rows and columns of its tables, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TypeVar

from truecopy.mapping.choice import is_pattern, matches, nearest
from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret
from truecopy.model.table import Table, TableName
from truecopy.model.types import Type

_T = TypeVar("_T")

WHOLE_HASH = 64
"""Hex digits of a SHA-256."""


@dataclass(frozen=True)
class Mask:
    """Replace a value by a keyed hash of it.

    Attributes:
        key: Who knows it can find out which value a hash stands for, by trying; nobody else can.
        length: Hex digits to keep, for a column that is narrower than a hash.
    """

    key: Secret
    length: int = WHOLE_HASH


@dataclass(frozen=True)
class Computed:
    """A Spark SQL expression over the source's columns; without a type, Spark says which it has."""

    sql: str
    type: Type | None = None


@dataclass(frozen=True)
class Fixed:
    """The same value in every row, as canonical text."""

    text: str | None
    type: Type


@dataclass(frozen=True)
class Rules:
    """What happens to the rows of a table. Columns go by the source's names, except in `key`.

    Attributes:
        filter: Conditions in Spark SQL on the source row; all must be true, as NULL is not.
        include: Names or patterns of columns; empty for all.
        exclude: Columns that stay behind.
        key: Columns of the target that identify a row, where the source's key does not survive.
        rename: New names.
        mask, cast, sql: New values of columns, by name.
        add: New columns, by name, after the others.
    """

    filter: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    mask: Mapping[str, Mask] = field(default_factory=dict)
    cast: Mapping[str, Type] = field(default_factory=dict)
    sql: Mapping[str, Computed] = field(default_factory=dict)
    add: Mapping[str, Computed | Fixed] = field(default_factory=dict)


NO_RULES = Rules()


@dataclass(frozen=True)
class Rule:
    """Rules of the tables that a pattern means; `where` is their path in the task file."""

    pattern: str
    rules: Rules
    where: str = "transformers"


def rules_of(table: Table, entries: Sequence[Rule]) -> Rules:
    """All rules that mean a table, as one, by the names that its columns really have.

    A rule for many tables takes hold where a table has the column; a rule for this one must name
    columns that it has.
    """
    found = [entry for entry in entries if matches(entry.pattern, table.name)]
    whole = NO_RULES
    for entry in found:
        whole = _join(table.name, whole, _by_real_names(table, entry))
    return whole


def require_tables(names: Iterable[TableName], entries: Sequence[Rule]) -> None:
    """Refuses rules for tables that the source does not have: most likely a slip of the pen."""
    tables = list(names)
    for entry in entries:
        if not any(matches(entry.pattern, name) for name in tables):
            known = [name.table for name in tables] + [str(name) for name in tables]
            hint = "" if is_pattern(entry.pattern) else nearest(entry.pattern, known)
            raise UsageError(f"{entry.where}.{entry.pattern}: no chosen table is meant{hint}")


def _by_real_names(table: Table, entry: Rule) -> Rules:
    rules, loose = entry.rules, is_pattern(entry.pattern)
    names = [column.name for column in table.columns]

    def real(name: str, rule: str) -> str | None:
        column = table.column(name)
        if column is not None or loose:
            return column.name if column else None
        raise UsageError(
            f"{table.name}: {rule} names {name}, which is no column of it{nearest(name, names)}"
        )

    def renamed(values: Mapping[str, _T], rule: str) -> dict[str, _T]:
        pairs = [(real(name, rule), value) for name, value in values.items()]
        return {name: value for name, value in pairs if name is not None}

    def all_of(patterns: Sequence[str], rule: str) -> tuple[str, ...]:
        chosen: list[str] = []
        for pattern in patterns:
            if is_pattern(pattern):
                chosen += [name for name in names if fnmatchcase(name, pattern)]
            elif (name := real(pattern, rule)) is not None:
                chosen.append(name)
        return tuple(dict.fromkeys(chosen))

    include = all_of(rules.include, "columns.include")
    if rules.include and not include:
        raise UsageError(
            f"{table.name}: columns.include leaves no column{nearest(rules.include[0], names)}"
        )
    return replace(
        rules,
        include=include,
        exclude=all_of(rules.exclude, "columns.exclude or drop"),
        rename=renamed(rules.rename, "rename"),
        mask=renamed(rules.mask, "mask"),
        cast=renamed(rules.cast, "cast"),
        sql=renamed(rules.sql, "sql"),
    )


def _join(table: TableName, one: Rules, other: Rules) -> Rules:
    if one.key and other.key and one.key != other.key:
        raise UsageError(f"{table}: two rules give it different keys")
    if one.include and other.include:
        include = tuple(name for name in one.include if name in other.include)
    else:
        include = one.include or other.include
    return Rules(
        filter=one.filter + other.filter,
        include=include,
        exclude=tuple(dict.fromkeys(one.exclude + other.exclude)),
        key=one.key or other.key,
        rename=join_by_column(table, "rename", one.rename, other.rename),
        mask=join_by_column(table, "mask", one.mask, other.mask),
        cast=join_by_column(table, "cast", one.cast, other.cast),
        sql=join_by_column(table, "sql", one.sql, other.sql),
        add=join_by_column(table, "add", one.add, other.add),
    )


def join_by_column(
    table: TableName, rule: str, one: Mapping[str, _T], other: Mapping[str, _T]
) -> dict[str, _T]:
    """Both; a column that they treat differently is an error, since nothing says which goes first."""
    for name, value in other.items():
        if name in one and one[name] != value:
            raise UsageError(f"{table}.{name}: two rules {rule} it differently")
    return {**one, **other}
