"""How a SQLite table is made: its columns, keys and references, from the pragmas."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.engines.sqlite_dialect import SQLiteDialect, affinity, canonical_type, is_padded
from truecopy.model.table import Column, ForeignKey, Index, Table, TableName
from truecopy.model.types import Binary, Text

Fetch = Callable[[Statement], list[tuple[Any, ...]]]


def describe_table(fetch: Fetch, name: TableName, definition: str, *, strict: bool) -> Table:
    """The table whose CREATE statement is `definition`."""
    columns, primary = read_columns(fetch, name, definition, strict)
    unique = _unique_keys(fetch, name)
    required = {column.name for column in columns if not column.nullable}
    candidates = [primary] if primary else []
    candidates += [key for key in unique if key != primary]
    keys = [key for key in candidates if required.issuperset(key)]
    if primary and primary not in keys and not _has_null(fetch, name, primary):
        keys.insert(0, primary)
    count, row_bytes = _size(fetch, name, columns)
    indexes, uncarried = _indexes(fetch, name)
    defaulted = _defaulted(fetch, name)
    return Table(
        name=name,
        columns=columns,
        keys=tuple(keys),
        unique=tuple(candidates),
        foreign_keys=_foreign_keys(fetch, name),
        rows=count,
        row_bytes=row_bytes,
        engine="sqlite",
        whole=True,
        primary=primary,
        indexes=indexes,
        numbered=primary if primary and _is_rowid(fetch, name) else (),
        defaulted=defaulted,
        uncarried=(*uncarried, *_uncarried(columns, defaulted)),
    )


def taken_names(fetch: Fetch) -> list[str]:
    """What no index may be called: tables, views and indexes of a file have one namespace."""
    return [name for (name,) in fetch(Statement("SELECT name FROM main.sqlite_schema"))]


def read_columns(
    fetch: Fetch, name: TableName, definition: str, strict: bool
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """The columns, and those of the primary key in its order."""
    rows = fetch(
        Statement(
            'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)'
            " WHERE hidden <> 1 ORDER BY cid",
            (name.table,),
        )
    )
    parts = sorted((pk, column) for column, _, _, pk, _ in rows if pk)
    numbered = bool(parts) and _is_rowid(fetch, name)
    ((encoding,),) = fetch(Statement("PRAGMA encoding"))
    # Where any column has a collation of its own, no order of text is relied upon.
    collated = re.search(r"\bCOLLATE\s+(?!\W?BINARY\b)", definition, re.IGNORECASE)
    found = []
    for column, declared, required, pk, hidden in rows:
        is_rowid = bool(pk) and numbered
        found.append(
            Column(
                name=column,
                type=canonical_type(declared),
                native=declared,
                nullable=not (required or is_rowid),
                weak=True,
                order=_order(declared, strict or is_rowid, encoding == "UTF-8" and not collated),
                padded=is_padded(declared),
                generated=hidden in (2, 3),
            )
        )
    return tuple(found), tuple(column for _, column in parts)


def _is_rowid(fetch: Fetch, name: TableName) -> bool:
    """Whether the primary key is the row's own number: only that has no index of its own."""
    indexed = "SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk'"
    return not fetch(Statement(indexed, (name.table,)))


def _defaulted(fetch: Fetch, name: TableName) -> tuple[str, ...]:
    rows = fetch(
        Statement(
            "SELECT name FROM pragma_table_xinfo(?) WHERE dflt_value <> 'NULL'", (name.table,)
        )
    )
    return tuple(column for (column,) in rows)


def _uncarried(columns: Sequence[Column], defaulted: Sequence[str]) -> Iterator[str]:
    yield from (f"the default of {column}" for column in defaulted)
    computed = [column.name for column in columns if column.generated]
    yield from (f"the expression of the computed column {column}" for column in computed)


def _order(declared: str, holds_type: bool, text_is_bytes: bool) -> str | None:
    """Numbers order as numbers only where the engine keeps other values out of the column."""
    kind = canonical_type(declared)
    if affinity(declared) == "INTEGER":
        return "number" if holds_type else None
    if isinstance(kind, Text):
        return "bytes" if text_is_bytes and not is_padded(declared) else None
    return "bytes" if isinstance(kind, Binary) and affinity(declared) == "BLOB" else None


def _unique_keys(fetch: Fetch, name: TableName) -> list[tuple[str, ...]]:
    """Unique indexes over whole columns and all rows, the narrowest first."""
    rows = fetch(
        Statement(
            "SELECT l.name, i.name FROM pragma_index_list(?) AS l"
            ' JOIN pragma_index_info(l.name) AS i WHERE l."unique" AND NOT l.partial'
            " ORDER BY l.name, i.seqno",
            (name.table,),
        )
    )
    found: dict[str, list[str]] = {}
    expressions = {index for index, column in rows if column is None}
    for index, column in rows:
        if index not in expressions:
            found.setdefault(index, []).append(column)
    return sorted(dict.fromkeys(map(tuple, found.values())), key=len)


def _indexes(fetch: Fetch, name: TableName) -> tuple[tuple[Index, ...], tuple[str, ...]]:
    """Those beside the primary key's, and the names of those that are over more than columns."""
    rows = fetch(
        Statement(
            'SELECT l.name, l."unique", l.partial, i.name FROM pragma_index_list(?) AS l'
            " JOIN pragma_index_info(l.name) AS i WHERE l.origin <> 'pk' ORDER BY l.name, i.seqno",
            (name.table,),
        )
    )
    parts: dict[str, list[tuple[Any, ...]]] = {}
    for index, *part in rows:
        parts.setdefault(index, []).append(tuple(part))
    found, uncarried = [], []
    for index, columns in parts.items():
        if columns[0][1] or any(column is None for *_, column in columns):
            uncarried.append(f"the index {index}")
        else:
            names = tuple(column for *_, column in columns)
            found.append(Index(index, names, bool(columns[0][0])))
    return tuple(sorted(found, key=lambda i: (not i.unique, i.name))), tuple(uncarried)


def _foreign_keys(fetch: Fetch, name: TableName) -> tuple[ForeignKey, ...]:
    rows = fetch(
        Statement(
            'SELECT id, "from", "table", "to", on_delete, on_update'
            " FROM pragma_foreign_key_list(?) ORDER BY id, seq",
            (name.table,),
        )
    )
    found: dict[int, list[tuple[Any, ...]]] = {}
    for number, *part in rows:
        found.setdefault(number, []).append(tuple(part))
    return tuple(
        ForeignKey(
            tuple(column for column, *_ in parts),
            TableName(None, parts[0][1]),
            # Not said where it is the parent's primary key.
            tuple(to for _, _, to, *_ in parts if to is not None),
            parts[0][3],
            parts[0][4],
        )
        for parts in found.values()
    )


def _has_null(fetch: Fetch, name: TableName, columns: Sequence[str]) -> bool:
    """A primary key may hold NULLs in SQLite, unless it says NOT NULL."""
    dialect = SQLiteDialect()
    condition = " OR ".join(f"{dialect.quote(column)} IS NULL" for column in columns)
    table = table_sql(dialect, name)
    return bool(fetch(Statement(f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1")))


def _size(fetch: Fetch, name: TableName, columns: Sequence[Column]) -> tuple[int, int]:
    """Rows, counted, and the bytes of an average one, from the first hundred."""
    dialect = SQLiteDialect()
    table = table_sql(dialect, name)
    ((count,),) = fetch(Statement(f"SELECT COUNT(*) FROM {table}"))
    quoted = [dialect.quote(column.name) for column in columns]
    sizes = " + ".join(f"COALESCE(LENGTH(CAST({column} AS BLOB)), 0)" for column in quoted)
    sample = f"SELECT {sizes} AS size FROM {table} LIMIT 100"
    ((average,),) = fetch(Statement(f"SELECT AVG(size) FROM ({sample})"))
    return count, int(average or 0) + 1
