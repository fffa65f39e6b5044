"""How a DuckDB table is made: its columns, keys and references, from the catalog functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from truecopy.engines.duckdb_dialect import DuckDBDialect, canonical_type, order_of
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.model.table import Column, ForeignKey, Index, Table, TableName
from truecopy.model.types import Decimal, Text

Fetch = Callable[[Statement], list[tuple[Any, ...]]]

_DEFAULT_SCHEMA = "main"
_OURS = "database_name = current_database() AND NOT internal AND NOT temporary"
_SAMPLE = 1000


def list_tables(fetch: Fetch) -> list[TableName]:
    """Every table of the file."""
    rows = fetch(
        Statement(f"SELECT schema_name, table_name FROM duckdb_tables() WHERE {_OURS} ORDER BY ALL")
    )
    return [_name(*row) for row in rows]


def find_table(fetch: Fetch, name: str) -> TableName | None:
    """The table or view of that name in any case, as DuckDB itself finds it."""
    cuts = [at for at, character in enumerate(name) if character == "."]
    for schema, table in [(_DEFAULT_SCHEMA, name), *((name[:at], name[at + 1 :]) for at in cuts)]:
        rows = fetch(
            Statement(
                "SELECT schema_name, name FROM"
                f" (SELECT schema_name, table_name AS name FROM duckdb_tables() WHERE {_OURS}"
                f" UNION ALL SELECT schema_name, view_name FROM duckdb_views() WHERE {_OURS})"
                " WHERE lower(schema_name) = lower(?) AND lower(name) = lower(?)",
                (schema, table),
            )
        )
        if rows:
            return _name(*rows[0])
    return None


def describe_table(
    fetch: Fetch, dialect: DuckDBDialect, endpoint: Endpoint, name: TableName
) -> Table:
    """The definition of a table; a view is refused with the reason."""
    place = (name.schema or _DEFAULT_SCHEMA, name.table)
    rows = fetch(
        Statement(
            "SELECT estimated_size, sql FROM duckdb_tables()"
            f" WHERE {_OURS} AND schema_name = ? AND table_name = ?",
            place,
        )
    )
    if not rows:
        views = f"SELECT 1 FROM duckdb_views() WHERE {_OURS} AND schema_name = ? AND view_name = ?"
        if fetch(Statement(views, place)):
            raise UsageError(
                f"{name} on {endpoint} is a view: verify the tables that it reads from"
            )
        raise UsageError(f"there is no table {name} on {endpoint}")
    ((count, definition),) = rows
    columns = _columns(fetch, place, definition)
    required = {column.name for column in columns if not column.nullable}
    unique = _unique_keys(fetch, place, [column.name for column in columns])
    if not count:
        ((count,),) = fetch(Statement(f"SELECT count(*) FROM {table_sql(dialect, name)}"))
    indexes, uncarried = _indexes(fetch, place, [column.name for column in columns])
    return Table(
        name=name,
        columns=columns,
        keys=tuple(key for key in unique if required.issuperset(key)),
        unique=unique,
        foreign_keys=_foreign_keys(fetch, place),
        rows=int(count),
        row_bytes=_row_bytes(fetch, dialect, name),
        engine="duckdb",
        whole=True,
        primary=_primary(fetch, place),
        indexes=indexes,
        uncarried=uncarried,
    )


def taken_names(fetch: Fetch, schema: str | None) -> list[str]:
    """What no other index of a schema may be called."""
    rows = fetch(
        Statement(
            "SELECT index_name FROM duckdb_indexes()"
            " WHERE database_name = current_database() AND schema_name = ?",
            (schema or _DEFAULT_SCHEMA,),
        )
    )
    return [name for (name,) in rows]


def _name(schema: str, table: str) -> TableName:
    return TableName(None if schema == _DEFAULT_SCHEMA else schema, table)


def _columns(fetch: Fetch, place: tuple[str, str], definition: str) -> tuple[Column, ...]:
    rows = fetch(
        Statement(
            "SELECT column_name, data_type, is_nullable = 'YES', is_generated = 'ALWAYS'"
            " FROM information_schema.columns WHERE table_catalog = current_database()"
            " AND table_schema = ? AND table_name = ? ORDER BY ordinal_position",
            place,
        )
    )
    # Only the definition tells a collation; where it has one, no text is taken to be in byte order.
    collated = re.search(r"\bCOLLATE\b", definition, re.IGNORECASE) is not None
    found = []
    for column, native, nullable, generated in rows:
        kind = canonical_type(native)
        found.append(
            Column(
                name=column,
                type=kind,
                native=native,
                nullable=nullable,
                order=None if collated and isinstance(kind, Text) else order_of(native, kind),
                fraction=kind.scale if isinstance(kind, Decimal) else None,
                generated=generated,
            )
        )
    return tuple(found)


def _unique_keys(
    fetch: Fetch, place: tuple[str, str], columns: list[str]
) -> tuple[tuple[str, ...], ...]:
    """Constraints and unique indexes over columns, the primary key first, then the narrowest."""
    rows = fetch(
        Statement(
            "SELECT constraint_type, constraint_column_names FROM duckdb_constraints()"
            " WHERE database_name = current_database() AND schema_name = ? AND table_name = ?"
            " AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
            place,
        )
    )
    keys = {tuple(key): kind != "PRIMARY KEY" for kind, key in rows}
    indexes = fetch(
        Statement(
            "SELECT expressions FROM duckdb_indexes() WHERE database_name = current_database()"
            " AND schema_name = ? AND table_name = ? AND is_unique",
            place,
        )
    )
    for (expressions,) in indexes:
        # `[a, b]`; names that would need quotes are printed otherwise and left out.
        names = tuple(str(expressions)[1:-1].split(", "))
        if set(columns).issuperset(names):
            keys.setdefault(names, True)
    return tuple(sorted(keys, key=lambda key: (keys[key], len(key), key)))


def _foreign_keys(fetch: Fetch, place: tuple[str, str]) -> tuple[ForeignKey, ...]:
    rows = fetch(
        Statement(
            "SELECT constraint_column_names, referenced_table, referenced_column_names"
            " FROM duckdb_constraints()"
            " WHERE database_name = current_database() AND schema_name = ? AND table_name = ?"
            " AND constraint_type = 'FOREIGN KEY'",
            place,
        )
    )
    # A reference never leaves its schema.
    return tuple(
        ForeignKey(tuple(own), _name(place[0], parent), tuple(others))
        for own, parent, others in rows
    )


def _primary(fetch: Fetch, place: tuple[str, str]) -> tuple[str, ...]:
    rows = fetch(
        Statement(
            "SELECT constraint_column_names FROM duckdb_constraints()"
            " WHERE database_name = current_database() AND schema_name = ? AND table_name = ?"
            " AND constraint_type = 'PRIMARY KEY'",
            place,
        )
    )
    return tuple(rows[0][0]) if rows else ()


def _indexes(
    fetch: Fetch, place: tuple[str, str], columns: list[str]
) -> tuple[tuple[Index, ...], tuple[str, ...]]:
    """Indexes over columns and unique constraints, and the names of the other indexes."""
    constraints = fetch(
        Statement(
            "SELECT constraint_column_names FROM duckdb_constraints()"
            " WHERE database_name = current_database() AND schema_name = ? AND table_name = ?"
            " AND constraint_type = 'UNIQUE'",
            place,
        )
    )
    found = [
        Index("_".join((place[1], *names, "key")), tuple(names), True) for (names,) in constraints
    ]
    rows = fetch(
        Statement(
            "SELECT index_name, is_unique, expressions FROM duckdb_indexes()"
            " WHERE database_name = current_database() AND schema_name = ? AND table_name = ?",
            place,
        )
    )
    uncarried = []
    for index, unique, expressions in rows:
        names = tuple(str(expressions)[1:-1].split(", "))
        if set(columns).issuperset(names):
            found.append(Index(index, names, unique))
        else:
            uncarried.append(f"the index {index}")
    return tuple(sorted(found, key=lambda i: (not i.unique, i.name))), tuple(uncarried)


def _row_bytes(fetch: Fetch, dialect: DuckDBDialect, name: TableName) -> int:
    """From the text of the first rows: the file is compressed and tells nothing."""
    sample = f"SELECT t FROM {table_sql(dialect, name)} AS t LIMIT {_SAMPLE}"
    ((size,),) = fetch(Statement(f"SELECT avg(strlen(CAST(t AS VARCHAR))) FROM ({sample})"))
    return max(16, int(size or 100))
