"""Tables in SQLite as other engines have them.

A declaration is chosen for its affinity: one that would make a double of a long number, or a number
of a text, is not used for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from truecopy.engines import creation
from truecopy.engines.creation import Shape
from truecopy.engines.sqlite_dialect import SQLiteDialect
from truecopy.model.table import Column, Table
from truecopy.model.types import (
    Binary,
    Bits,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Time,
    Timestamp,
    Unknown,
    Uuid,
)

ENGINE = "sqlite"
_EXACT_DIGITS = 15
"""Of a decimal that a double gives back."""


def create_table(dialect: SQLiteDialect, table: Table) -> list[str]:
    """The table with its key."""
    columns = [_declaration(dialect, table, column) for column in table.columns]
    return [creation.table_statement(dialect, table, columns)]


def add_columns(dialect: SQLiteDialect, table: Table, columns: Sequence[Column]) -> list[str]:
    """Columns that a table gets later."""
    declared = [_declaration(dialect, table, column) for column in columns]
    return creation.column_statements(dialect, table, declared)


def _declaration(dialect: SQLiteDialect, table: Table, column: Column) -> str:
    declared = f"{dialect.quote(column.name)} {type_of(table, column)}".rstrip()
    return declared if column.nullable else f"{declared} NOT NULL"


def create_indexes(dialect: SQLiteDialect, table: Table, taken: Iterable[str]) -> list[str]:
    """The other indexes; a prefix is indexed as what it is, the first characters."""
    found = []
    indexes = creation.later_indexes(table)
    names = creation.index_names(table, indexes, taken, shared=table.engine != ENGINE)
    for index, free in zip(indexes, names, strict=True):
        prefixes = index.prefixes or (None,) * len(index.columns)
        parts = [
            dialect.quote(name) if size is None else f"substr({dialect.quote(name)}, 1, {size})"
            for name, size in zip(index.columns, prefixes, strict=True)
        ]
        found.append(creation.index_statement(dialect, table, index, free, parts))
    return found


def warnings(table: Table) -> list[str]:
    """What will be otherwise."""
    found = creation.shared_warnings(table)
    if table.foreign_keys:
        found.append(f"{table.name} is made without foreign keys: SQLite cannot add them later")
    return found


def type_of(table: Table, column: Column) -> str:
    """The declaration under which every value is kept as it is."""
    if creation.is_declared_by((ENGINE,), table, column):
        return column.native
    key, _ = creation.key_of(table)
    found = _declare(creation.shape_of(column, table.engine), alone=key == (column.name,))
    if found is None:
        raise creation.cannot_hold(table, column, "SQLite")
    return found


def _declare(shape: Shape, *, alone: bool) -> str | None:
    match shape.kind:
        case Integer():
            held = shape.bits is not None and shape.bits + (not shape.signed) <= 64
            # A key of that very name is the row's own number.
            return "TEXT" if not held else "INTEGER" if alone else "BIGINT"
        case Boolean():
            return "BOOLEAN"
        case Decimal(scale):
            exact = scale is not None and (shape.precision or _EXACT_DIGITS + 1) <= _EXACT_DIGITS
            return f"DECIMAL({shape.precision},{scale})" if exact else "TEXT"
        case Float():
            return "DOUBLE"
        case Date():
            return "DATE"
        case Time():
            return "TIME"
        case Timestamp(zone):
            return "TIMESTAMPTZ" if zone else "TIMESTAMP"
        case Text() if shape.length is not None:
            return f"{'CHAR' if shape.fixed else 'VARCHAR'}({shape.length})"
        case Text() | Unknown():
            return "TEXT"
        case Binary():
            return "BLOB"
        case Json():
            return "JSON"
        case Uuid():
            return "UUID"
        case Bits(width):
            return f"BIT({width})" if width else "TEXT"
        case _:
            return None
