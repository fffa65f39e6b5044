"""Tables in DuckDB as other engines have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from truecopy.engines import creation
from truecopy.engines.creation import Shape
from truecopy.engines.duckdb_dialect import DuckDBDialect
from truecopy.model.table import Column, Table
from truecopy.model.types import (
    Array,
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

ENGINE = "duckdb"
_MOST_DIGITS = 38
_UNBOUND = "DECIMAL(38,10)"


def create_table(dialect: DuckDBDialect, table: Table) -> list[str]:
    """The table with its key."""
    columns = [_declaration(dialect, table, column) for column in table.columns]
    return [creation.table_statement(dialect, table, columns)]


def add_columns(dialect: DuckDBDialect, table: Table, columns: Sequence[Column]) -> list[str]:
    """Columns that a table gets later."""
    declared = [_declaration(dialect, table, column) for column in columns]
    return creation.column_statements(dialect, table, declared)


def _declaration(dialect: DuckDBDialect, table: Table, column: Column) -> str:
    declared = f"{dialect.quote(column.name)} {type_of(table, column)}"
    return declared if column.nullable else f"{declared} NOT NULL"


def create_indexes(dialect: DuckDBDialect, table: Table, taken: Iterable[str]) -> list[str]:
    """The other indexes, over whole columns."""
    indexes = [i for i in creation.later_indexes(table) if not (i.unique and i.prefixes)]
    names = creation.index_names(table, indexes, taken, shared=table.engine != ENGINE)
    return [
        creation.index_statement(
            dialect, table, index, free, [dialect.quote(name) for name in index.columns]
        )
        for index, free in zip(indexes, names, strict=True)
    ]


def warnings(table: Table) -> list[str]:
    """What will be otherwise."""
    found = creation.shared_warnings(table)
    found += [f"{table.name}.{name} does not number its rows" for name in table.numbered]
    found += [
        f"{table.name} is made without the unique index {index.name}: it is over parts of columns"
        for index in creation.later_indexes(table)
        if index.unique and index.prefixes
    ]
    if table.foreign_keys:
        found.append(f"{table.name} is made without foreign keys: DuckDB cannot add them later")
    found += [
        f"{table.name}.{column.name} has no bound: it holds {_UNBOUND}, and no more"
        for column in table.columns
        if isinstance(column.type, Decimal) and type_of(table, column) == _UNBOUND
    ]
    return found


def type_of(table: Table, column: Column) -> str:
    """The declaration that holds every value of the column."""
    if creation.is_declared_by((ENGINE,), table, column):
        return column.native
    found = _declare(creation.shape_of(column, table.engine))
    if found is None:
        raise creation.cannot_hold(table, column, "DuckDB")
    return found


def _declare(shape: Shape) -> str | None:
    match shape.kind:
        case Integer():
            return _whole_number(shape)
        case Boolean():
            return "BOOLEAN"
        case Decimal(scale):
            if shape.precision is None or scale is None:
                return _UNBOUND
            fits = max(shape.precision, scale) <= _MOST_DIGITS
            return f"DECIMAL({max(shape.precision, scale)},{scale})" if fits else None
        case Float():
            return "FLOAT" if shape.single else "DOUBLE"
        case Date():
            return "DATE"
        case Time():
            return "INTERVAL" if shape.span else "TIME"
        case Timestamp(zone):
            return "TIMESTAMPTZ" if zone else "TIMESTAMP"
        case Text() | Unknown():
            return "VARCHAR"
        case Binary():
            return "BLOB"
        case Json():
            return "JSON"
        case Uuid():
            return "UUID"
        case Bits():
            return "BIT"
        case Array(element):
            inner = _declare(creation.element_of(shape, element))
            return f"{inner}[]" if inner else None
        case _:
            return None


def _whole_number(shape: Shape) -> str:
    if shape.bits is None:
        return "HUGEINT"
    names = ((8, "TINYINT"), (16, "SMALLINT"), (32, "INTEGER"), (64, "BIGINT"), (128, "HUGEINT"))
    name = next(name for limit, name in names if shape.bits <= limit)
    return name if shape.signed else f"U{name}"
