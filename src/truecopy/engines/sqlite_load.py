"""Many rows into SQLite at once: one prepared statement, run for every row."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator

import pyarrow as pa

from truecopy.engines import loading
from truecopy.engines.sql import and_where, table_sql
from truecopy.engines.sqlite_dialect import SQLiteDialect, affinity, stored
from truecopy.model.relation import Relation
from truecopy.model.table import Column
from truecopy.model.types import Type

Values = tuple[object, ...]
# What SQLite takes for a number where a column prefers one.
_NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


def load(connection: sqlite3.Connection, relation: Relation, rows: pa.Table) -> int:
    """Inserts all rows or, where one is refused, none; the refused one is named.

    Raises:
        sqlite3.Error: What is not about a single row.
    """
    dialect = SQLiteDialect()
    chosen = loading.written(relation)
    names = ", ".join(dialect.quote(relation.columns[i].name) for i in chosen)
    statement = (
        f"INSERT INTO {table_sql(dialect, loading.target_table(relation))} ({names})"
        f" VALUES ({', '.join('?' * len(chosen))})"
    )
    connection.execute("SAVEPOINT load")
    try:
        # Not `total_changes`: what triggers of the table write, those of a change log for example, is counted there.
        taken = connection.executemany(statement, _values(relation, rows, chosen)).rowcount
    except (sqlite3.IntegrityError, sqlite3.DataError):
        connection.execute("ROLLBACK TO load")
        _name_refused(connection, statement, relation, rows, chosen)
        raise
    finally:
        if connection.in_transaction:
            connection.execute("RELEASE load")
    return taken


def delete_keys(connection: sqlite3.Connection, relation: Relation, keys: pa.Table) -> int:
    """Deletes the rows with these keys; values are looked for in the form in which `load` keeps them."""
    dialect = SQLiteDialect()
    conditions = " AND ".join(f"{dialect.quote(column.name)} = ?" for column in relation.key)
    table = table_sql(dialect, loading.target_table(relation))
    places = list(range(relation.key_width))
    return connection.executemany(
        f"DELETE FROM {table} WHERE {conditions}{and_where(dialect, relation)}",
        _values(relation, keys, places),
    ).rowcount


def _values(relation: Relation, rows: pa.Table, chosen: list[int]) -> Iterator[Values]:
    columns = []
    for i in chosen:
        keep = _keeper(relation.columns[i], relation.types[i])
        texts = rows.column(i).to_pylist()
        columns.append([None if text is None else keep(text) for text in texts])
    return zip(*columns, strict=True)


def _keeper(column: Column, kind: Type) -> Callable[[str], object]:
    if affinity(column.native) in ("TEXT", "BLOB"):
        return lambda text: stored(column, kind, text)

    def keep(text: str) -> object:
        value = stored(column, kind, text)
        # As text it would become a number: a double perhaps, with other digits. Bytes stay.
        is_digits = isinstance(value, str) and _NUMBER.fullmatch(value)
        return value.encode() if isinstance(value, str) and is_digits else value

    return keep


def _name_refused(
    connection: sqlite3.Connection,
    statement: str,
    relation: Relation,
    rows: pa.Table,
    chosen: list[int],
) -> None:
    for number, values in enumerate(_values(relation, rows, chosen)):
        try:
            connection.execute(statement, values)
        except sqlite3.Error as error:
            connection.execute("ROLLBACK TO load")
            is_there = str(error).startswith("UNIQUE constraint failed")
            kind = loading.DuplicateRow if is_there else loading.RowRefused
            raise loading.refuse(relation, rows, number, str(error), kind) from None
