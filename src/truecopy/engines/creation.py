"""Making a table here as another engine has it: what a column holds, read from its declaration.

Every engine names its own types for a `Shape`; what it cannot hold is refused with the column's
name, since a column left out or a type that rounds would be a loss in silence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from truecopy.engines.loading import is_single
from truecopy.engines.sql import Dialect, table_sql
from truecopy.model.errors import IncomparableTypes
from truecopy.model.table import Column, ForeignKey, Index, Table
from truecopy.model.types import (
    Array,
    Binary,
    Bits,
    Decimal,
    Float,
    Integer,
    Text,
    Time,
    Timestamp,
    Type,
    Unsupported,
    type_name,
)

_LONGEST_NAME = 63
_WIDTHS = {
    "tinyint": 8,
    "smallint": 16,
    "year": 16,
    "mediumint": 24,
    "int": 32,
    "integer": 32,
    "oid": 32,
    "bigint": 64,
    "hugeint": 128,
}


@dataclass(frozen=True)
class Shape:
    """What a column can hold, whatever engine declares it.

    Attributes:
        kind: The canonical type.
        bits: Width of a whole number; None where it has no bound.
        signed: Whether a whole number may be negative.
        precision: Digits of a decimal; None where it has no bound.
        single: A float of 32 bits.
        length: Characters or bytes at most; None where there is no bound to speak of.
        fixed: Text that is padded with spaces to its length.
        fraction: Digits after the second.
        span: A time that may be negative or longer than a day.
    """

    kind: Type
    bits: int | None = None
    signed: bool = True
    precision: int | None = None
    single: bool = False
    length: int | None = None
    fixed: bool = False
    fraction: int = 6
    span: bool = False


def shape_of(column: Column, engine: str) -> Shape:
    """What the declaration of another engine says; that of a weak one binds nothing but its kind."""
    kind = column.type
    native = column.native.lower()
    sizes = [int(size) for size in re.findall(r"\d+", _in_brackets(native))]
    match kind:
        case Integer():
            return _whole_number(kind, native, weak=column.weak)
        case Decimal():
            return Shape(kind, precision=sizes[0] if sizes else None)
        case Float():
            return Shape(kind, single=is_single(native) and not column.weak)
        case Text() | Binary():
            length = sizes[0] if len(sizes) == 1 and not _is_listed(native) else None
            return Shape(kind, length=length, fixed=column.padded)
        case Time() | Timestamp():
            span = engine in ("mysql", "mariadb") or native.startswith("interval")
            return Shape(kind, fraction=_fraction(column, native), span=span)
        case Array(element):
            inner = Column(column.name, element, re.sub(r"\[\d*\]$", "", column.native))
            held = shape_of(inner, engine)
            return Shape(kind, held.bits, held.signed, held.precision, held.single, held.length)
        case _:
            return Shape(kind)


def is_declared_by(engines: Sequence[str], table: Table, column: Column) -> bool:
    """Whether a column has a declaration of one of these engines, to be taken as it is."""
    return table.engine in engines and not column.computed


def element_of(shape: Shape, element: Type) -> Shape:
    """The shape of the items of an array."""
    return Shape(element, shape.bits, shape.signed, shape.precision, shape.single, shape.length)


def cannot_hold(table: Table, column: Column, where: str) -> IncomparableTypes:
    """The error for a type that has no faithful counterpart."""
    return IncomparableTypes(
        f"{table.name}.{column.name} ({column.native}) has no type on {where} that holds every"
        f" {type_name(column.type)}: leave the column out with drop{_as_text(column)}"
    )


def _as_text(column: Column) -> str:
    """What a task says instead; arrays and bits are text to expressions, and no cast takes them."""
    if isinstance(column.type, Unsupported):
        return ""
    if isinstance(column.type, Array | Bits):
        return (
            f", or carry it as text with sql: {{{column.name}: {{sql: {column.name}, type: text}}}}"
        )
    return f", or carry it as text with cast: {{{column.name}: text}}"


def key_of(table: Table) -> tuple[tuple[str, ...], bool]:
    """The key that a new table is made with, and whether it is a primary one.

    A table without a primary key gets its first unique key at once: rows are found by it.
    """
    if not table.keys:
        return (), False
    return table.keys[0], table.keys[0] == table.primary


def later_indexes(table: Table) -> list[Index]:
    """The indexes that are built when the rows are there."""
    key, is_primary = key_of(table)
    left = [i for i in table.indexes if is_primary or not (i.unique and i.columns == key)]
    if table.primary and not is_primary and table.primary != key:
        # A primary key that may hold NULL is no more than a unique index elsewhere.
        left.insert(0, Index(f"{table.name.table}_primary", table.primary, unique=True))
    return left


def index_names(
    table: Table, indexes: Sequence[Index], taken: Iterable[str], *, shared: bool
) -> list[str]:
    """A free name for each: none of those that are taken, in any case, and no other one's."""
    used = {name.lower() for name in taken}
    names = []
    for index in indexes:
        first = name = index_name(table, index, shared=shared)
        while name.lower() in used:
            name = _marked(first, name)
        used.add(name.lower())
        names.append(name)
    return names


def index_name(table: Table, index: Index, *, shared: bool) -> str:
    """The name that it should have: where indexes share a namespace, with that of their table."""
    name = index.name
    if name.startswith("sqlite_autoindex_"):
        name = "_".join((table.name.table, *index.columns, "key"))
    elif shared and not name.startswith(table.name.table):
        name = f"{table.name.table}_{name}"
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    return _marked(name, name)


def column_statements(dialect: Dialect, table: Table, columns: Sequence[str]) -> list[str]:
    """ALTER TABLE from the declarations of new columns, one by one."""
    name = table_sql(dialect, table.name)
    return [f"ALTER TABLE {name} ADD COLUMN {declared}" for declared in columns]


def table_statement(dialect: Dialect, table: Table, columns: Sequence[str]) -> str:
    """CREATE TABLE from the declarations of its columns, with its key."""
    key, is_primary = key_of(table)
    parts = list(columns)
    if key:
        names = ", ".join(map(dialect.quote, key))
        parts.append(f"{'PRIMARY KEY' if is_primary else 'UNIQUE'} ({names})")
    listed = ",\n  ".join(parts)
    return f"CREATE TABLE {table_sql(dialect, table.name)} (\n  {listed}\n)"


def index_statement(
    dialect: Dialect, table: Table, index: Index, name: str, parts: Sequence[str]
) -> str:
    """CREATE INDEX of that name over these parts."""
    kind = "UNIQUE INDEX" if index.unique else "INDEX"
    onto = table_sql(dialect, table.name)
    return f"CREATE {kind} {dialect.quote(name)} ON {onto} ({', '.join(parts)})"


def foreign_key_statements(dialect: Dialect, table: Table) -> list[str]:
    """ALTER TABLE for each reference."""
    found = []
    for reference in table.foreign_keys:
        own = ", ".join(map(dialect.quote, reference.columns))
        others = ", ".join(map(dialect.quote, reference.parent_columns))
        found.append(
            f"ALTER TABLE {table_sql(dialect, table.name)} ADD FOREIGN KEY ({own})"
            f" REFERENCES {table_sql(dialect, reference.parent)}"
            + (f" ({others})" if others else "")
            + f" ON DELETE {reference.on_delete} ON UPDATE {reference.on_update}"
        )
    return found


def referring(
    table: Table, reference: ForeignKey, parent: Table
) -> Iterator[tuple[Column, Column]]:
    """The columns of a reference with those that they refer to."""
    for name, other in zip(reference.columns, reference.parent_columns, strict=True):
        own, its = table.column(name), parent.column(other)
        if own is not None and its is not None:
            yield own, its


def shared_warnings(table: Table) -> list[str]:
    """What no engine gets from a description."""
    return [f"{table.name} is made without {thing}" for thing in table.uncarried]


def _marked(name: str, seed: str) -> str:
    """A name with a mark that another seed does not give, and no longer than names may be."""
    mark = hashlib.sha256(seed.encode()).hexdigest()[:8]
    return f"{name.encode()[: _LONGEST_NAME - 9].decode(errors='ignore')}_{mark}"


def _in_brackets(native: str) -> str:
    found = re.search(r"\(([^)]*)\)", native)
    return found[1] if found else ""


def _is_listed(native: str) -> bool:
    return native.startswith(("enum", "set"))


def _whole_number(kind: Type, native: str, *, weak: bool) -> Shape:
    if weak:
        return Shape(kind, bits=64)
    words = native.partition("(")[0].split()
    name = words[0].removeprefix("u") if words else ""
    unsigned = "unsigned" in native or words[:1] in (["oid"], ["year"]) or name != words[0]
    return Shape(kind, bits=_WIDTHS.get(name), signed=not unsigned)


def _fraction(column: Column, native: str) -> int:
    if column.fraction is not None:
        return column.fraction
    named = {"timestamp_s": 0, "timestamp_ms": 3}
    sized = re.search(r"\((\d)\)", native)
    return named.get(native, int(sized[1]) if sized else 6)
