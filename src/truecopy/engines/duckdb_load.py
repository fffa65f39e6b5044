"""Many rows into DuckDB at once: it reads Arrow, and casts while it inserts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
import pyarrow as pa

from truecopy.engines import loading
from truecopy.engines.duckdb_dialect import DuckDBDialect
from truecopy.engines.sql import and_where, table_sql
from truecopy.model.relation import Relation
from truecopy.model.table import Column
from truecopy.model.text import shortest_float, split_array
from truecopy.model.types import (
    Array,
    Binary,
    Bits,
    Boolean,
    Decimal,
    Float,
    Integer,
    Text,
    Timestamp,
    Type,
    Uuid,
)

_ROWS = "truecopy_rows"


def load(connection: duckdb.DuckDBPyConnection, relation: Relation, rows: pa.Table) -> int:
    """Inserts the rows.

    Raises:
        duckdb.Error: What is not about a single row.
    """
    dialect = DuckDBDialect()
    chosen = loading.written(relation)
    names = ", ".join(dialect.quote(relation.columns[i].name) for i in chosen)
    made = [_made(relation.columns[i], relation.types[i], f"c{i}") for i in chosen]
    table = table_sql(dialect, loading.target_table(relation))
    arrow = pa.table(
        {f"c{i}": _given(relation.columns[i], relation.types[i], rows.column(i)) for i in chosen}
    )
    with _registered(connection, arrow):
        try:
            found = connection.execute(
                f"INSERT INTO {table} ({names}) SELECT {', '.join(made)} FROM {_ROWS}"
            ).fetchone()
        except duckdb.ConstraintException as error:
            is_there = "uplicate key" in str(error)
            raise (loading.DuplicateRow if is_there else loading.RowRefused)(
                f"{loading.target_table(relation)} on {relation.endpoint} cannot take a row:"
                f" {' '.join(str(error).split())}"
            ) from None
        except duckdb.ConversionException as error:
            _name_refused(relation, rows, arrow, chosen, str(error))
            raise
    return int(found[0]) if found else 0


def delete_keys(connection: duckdb.DuckDBPyConnection, relation: Relation, keys: pa.Table) -> int:
    """Deletes the rows with these keys, by a join with them."""
    dialect = DuckDBDialect()
    places = range(relation.key_width)
    arrow = pa.table(
        {
            f"truecopy_k{i}": _given(relation.columns[i], relation.types[i], keys.column(i))
            for i in places  # named as no column of the table is
        }
    )
    conditions = " AND ".join(
        f"t.{dialect.quote(relation.columns[i].name)} ="
        f" {_made(relation.columns[i], relation.types[i], f'k.truecopy_k{i}')}"
        for i in places
    )
    table = table_sql(dialect, loading.target_table(relation))
    with _registered(connection, arrow):
        found = connection.execute(
            f"DELETE FROM {table} AS t USING {_ROWS} AS k WHERE {conditions}{and_where(dialect, relation)}"
        ).fetchone()
    return int(found[0]) if found else 0


def typed_rows(
    connection: duckdb.DuckDBPyConnection, relation: Relation, rows: pa.Table
) -> pa.Table:
    """Rows of canonical text as values, by the names of their columns; some of the first columns will do."""
    dialect = DuckDBDialect()
    chosen = [i for i in loading.written(relation) if i < rows.num_columns]
    arrow = pa.table(
        {f"c{i}": _given(relation.columns[i], relation.types[i], rows.column(i)) for i in chosen}
    )
    made = [
        f"{_made(relation.columns[i], relation.types[i], f'c{i}')} AS"
        f" {dialect.quote(relation.columns[i].name)}"
        for i in chosen
    ]
    with _registered(connection, arrow):
        try:
            found: pa.Table = connection.sql(
                f"SELECT {', '.join(made)} FROM {_ROWS}"
            ).to_arrow_table()
        except duckdb.ConversionException as error:
            _name_refused(relation, rows, arrow, chosen, str(error))
            raise
    return found


@contextmanager
def _registered(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> Iterator[None]:
    connection.register(_ROWS, rows)
    try:
        yield
    finally:
        # A broken transaction refuses that as well; its rollback opens the file anew.
        with suppress(duckdb.TransactionException):
            connection.unregister(_ROWS)


def _given(column: Column, kind: Type, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The texts as they are handed over: floats as numbers, arrays as lists of texts."""
    own, kind = column.type, loading.own_kind(column, kind)
    if isinstance(kind, Float) and isinstance(own, Float):
        return loading.floats(texts)
    if isinstance(kind, Array) and isinstance(own, Array):
        items = [None if t is None else _items(own, kind, t) for t in texts.to_pylist()]
        return pa.chunked_array([pa.array(items, _list_type(own))])
    if isinstance(own, Bits) and isinstance(kind, Integer | Boolean | Decimal):
        return loading.by_value(texts, lambda t: format(int(t.partition(".")[0]), "b"))
    return loading.own_texts(column, kind, texts)


def _made(column: Column, kind: Type, x: str) -> str:
    """The value of a column from what is handed over."""
    own, kind = column.type, loading.own_kind(column, kind)
    match kind:
        case Binary():
            return f"decode(unhex({x}))" if isinstance(own, Text) else f"unhex({x})"
        case Uuid() if isinstance(own, Binary):
            return f"unhex(replace({x}, '-', ''))"
        case Timestamp() if own == Timestamp(zone=True):
            return f"CAST({x} || '+00' AS {column.native})"
        case _ if column.native == "VARCHAR":
            return x
        case _:
            return f"CAST({x} AS {column.native})"


def _items(own: Type, kind: Type, text: str) -> Any:
    if not isinstance(own, Array) or not isinstance(kind, Array):
        match own:
            case Float():
                return shortest_float(text)
            case Binary():
                return "".join(f"\\x{text[at : at + 2]}" for at in range(0, len(text), 2))
            case Timestamp(zone=True):
                return f"{text}+00"
            case _:
                return text
    return [
        None if item is None else _items(own.element, kind.element, item)
        for item in split_array(text)
    ]


def _list_type(own: Type) -> pa.DataType:
    return pa.list_(_list_type(own.element)) if isinstance(own, Array) else pa.string()


def _name_refused(
    relation: Relation, rows: pa.Table, arrow: pa.Table, chosen: list[int], message: str
) -> None:
    """DuckDB tells the value and not the row: it is looked for beside the broken transaction."""
    with duckdb.connect() as beside:
        beside.execute("SET TimeZone = 'UTC'")
        numbered = arrow.append_column("n", pa.array(range(arrow.num_rows), pa.int64()))
        beside.register(_ROWS, numbered)
        for i in chosen:
            made = _made(relation.columns[i], relation.types[i], f"c{i}")
            if not made.startswith("CAST("):
                continue
            found = beside.execute(
                f"SELECT min(n) FROM {_ROWS} WHERE c{i} IS NOT NULL AND TRY_{made} IS NULL"
            ).fetchone()
            if found and found[0] is not None:
                why = f"{relation.columns[i].name}: {' '.join(message.split())}"
                raise loading.refuse(relation, rows, int(found[0]), why)
