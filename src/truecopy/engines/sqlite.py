"""SQLite 3.37+: a file of this machine. Its texts and fingerprints are made in `sqlite_dialect`."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from truecopy.engines import (
    deferred,
    loading,
    sql,
    sqlite_create,
    sqlite_load,
    sqlite_snapshot,
    sqlite_views,
)
from truecopy.engines.file_advice import SQLiteAdvisor
from truecopy.engines.protocols import KEYS_PER_QUERY, Statement
from truecopy.engines.relational import RelationalSession
from truecopy.engines.sqlite_annotation import annotated
from truecopy.engines.sqlite_dialect import (
    SQLiteDialect,
    finds_every_key,
    fingerprint_function,
    text_function,
)
from truecopy.engines.sqlite_schema import describe_table, taken_names
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, Refused, TruecopyError, UsageError
from truecopy.model.fingerprint import Digest
from truecopy.model.relation import WHOLE, Buckets, Chunk, Key, Relation
from truecopy.model.table import Column, ForeignKey, Table, TableName
from truecopy.model.types import Text

_SHOWN = 20
_WAL = 2
_KEYS_PER_CONDITION = 200


class SQLite(RelationalSession):
    """A database file, opened for reading; a second connection writes, and only when asked to."""

    driver_local = True
    dialect: SQLiteDialect
    array_views = sqlite_views.VIEWS
    transaction_start = ("BEGIN IMMEDIATE", "PRAGMA defer_foreign_keys = ON")

    def __init__(self, endpoint: Endpoint) -> None:
        if sqlite3.sqlite_version_info < (3, 37):
            raise UsageError(f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or newer is needed")
        self.endpoint = endpoint
        self.dialect = SQLiteDialect()
        self.path = file_of(endpoint)
        self._connection = open_file(endpoint, "ro")
        self._writer: sqlite3.Connection | None = None
        try:
            self.fetch(Statement("SELECT COUNT(*) FROM sqlite_schema"))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    # Running statements

    @property
    def _reader(self) -> sqlite3.Connection:
        """The connection that writes while it does: only that one sees what is not committed."""
        writes = self._writer is not None and self._writer.in_transaction
        return self._writer if writes and self._writer is not None else self._connection

    def fetch(self, statement: Statement) -> list[tuple[Any, ...]]:
        return list(self._read(statement))

    def fetch_texts(self, statement: Statement, names: Sequence[str]) -> pa.Table:
        return _arrow(self.fetch(statement), names)

    def query(self, statement: str, values: Sequence[object] = ()) -> pa.Table:
        try:
            with closing(self._reader.execute(statement, tuple(values))) as cursor:
                names = [field[0] for field in cursor.description or ()]
                rows = cursor.fetchall()
        except sqlite3.Error as error:
            raise explain(error, self.endpoint) from None
        return _arrow([[_plain(value) for value in row] for row in rows], names)

    def execute(self, statement: Statement) -> int:
        try:
            return self._writing.execute(statement.sql, statement.values).rowcount
        except sqlite3.Error as error:
            raise explain(error, self.endpoint) from None

    def begin(self) -> None:
        if self._writer is None:
            self._writer = open_file(self.endpoint, "rw")
        for line in self.transaction_start:
            self.execute(Statement(line))

    def commit(self) -> None:
        self.execute(Statement("COMMIT"))

    def rollback(self) -> None:
        try:
            self._connection.rollback()
            if self._writer is not None:
                self._writer.rollback()
        except sqlite3.Error as error:
            raise explain(error, self.endpoint) from None

    def open_view(self) -> None:
        # The connection that reads: beside it another one writes on.
        try:
            self._connection.execute("BEGIN")
        except sqlite3.Error as error:
            raise explain(error, self.endpoint) from None

    def load(self, relation: Relation, rows: pa.Table, annotation: str | None = None) -> int:
        loading.require_fit(relation, rows)
        try:
            with annotated(self._writing, annotation):
                taken = sqlite_load.load(self._writing, relation, rows)
        except sqlite3.Error as error:
            raise explain(error, self.endpoint) from None
        return loading.require_all(relation, rows, taken)

    def delete_keys(self, relation: Relation, keys: pa.Table, annotation: str | None = None) -> int:
        try:
            with annotated(self._writing, annotation):
                return sqlite_load.delete_keys(self._writing, relation, keys)
        except sqlite3.Error as error:
            raise explain(error, self.endpoint) from None

    def delete_all(self, relation: Relation, annotation: str | None = None) -> int:
        try:
            with annotated(self._writing, annotation):
                return super().delete_all(relation)
        except sqlite3.Error as error:
            raise explain(error, self.endpoint) from None

    @property
    def _writing(self) -> sqlite3.Connection:
        if self._writer is None:
            raise CannotFinish(f"{self.endpoint} is open for reading only")
        return self._writer

    def annotation_gaps(self) -> list[str]:
        """None: the log is made for whoever wants to read it, and triggers keep the mark."""
        return []

    def create_table(self, table: Table) -> list[str]:
        return sqlite_create.create_table(self.dialect, table)

    def add_columns(self, table: Table, columns: Sequence[Column]) -> list[str]:
        return sqlite_create.add_columns(self.dialect, table, columns)

    def create_indexes(self, table: Table) -> list[str]:
        taken = taken_names(self.fetch)
        return sqlite_create.create_indexes(self.dialect, table, taken)

    def create_foreign_keys(self, table: Table) -> list[str]:  # noqa: ARG002 - it cannot add them
        return []

    def reference_gaps(self, table: Table, reference: ForeignKey, parent: Table) -> list[str]:  # noqa: ARG002 - likewise
        return []

    def creation_warnings(self, table: Table) -> list[str]:
        return sqlite_create.warnings(table)

    def advisor(self) -> SQLiteAdvisor:
        return SQLiteAdvisor(self, self.path)

    def literal(self, value: object) -> str:
        match value:
            case bytes():
                return f"X'{value.hex()}'"
            case float():
                return repr(value).replace("inf", "9e999")
            case str() if "\0" in value:  # the client would end the text there
                return f"CAST(X'{value.encode().hex()}' AS TEXT)"
            case str():
                return "'" + value.replace("'", "''") + "'"
            case _:
                return str(value)

    def _read(self, statement: Statement) -> Iterator[tuple[Any, ...]]:
        try:
            with closing(self._reader.execute(statement.sql, statement.values)) as cursor:
                yield from cursor
        except sqlite3.Error as error:
            raise explain(error, self.endpoint) from None

    # Digests and rows: values as they are stored, text and fingerprint by functions

    def digest(self, relation: Relation, chunk: Chunk) -> Digest:
        return sum(self.bucket_digests(relation, chunk, 0).values(), Digest())

    def bucket_digests(self, relation: Relation, chunk: Chunk, digits: int) -> dict[int, Digest]:
        if relation.deferred:
            return super().bucket_digests(relation, chunk, digits)
        fingerprint = fingerprint_function(relation)
        shift = sql.BITS - 4 * digits
        counts: dict[int, int] = {}
        totals: dict[int, int] = {}
        for table in relation.tables:
            for row in self._read(sql.rows_sql(self.dialect, relation, table, chunk)):
                value = fingerprint(row)
                bucket = value >> shift
                counts[bucket] = counts.get(bucket, 0) + 1
                totals[bucket] = totals.get(bucket, 0) + value
        return {bucket: Digest(count, totals[bucket]) for bucket, count in counts.items()}

    def fetch_fingerprints(
        self, relation: Relation, table: TableName, chunk: Chunk, buckets: Buckets | None
    ) -> pa.Table:
        fingerprint = fingerprint_function(relation)
        places = [*range(relation.key_width), *relation.deferred]
        texts_of = [text_function(relation.columns[i], relation.types[i]) for i in places]
        shift = sql.BITS - 4 * buckets.digits if buckets else 0
        wanted = set(buckets.numbers) if buckets else None
        rows, values = [], []
        for row in self._read(sql.rows_sql(self.dialect, relation, table, chunk)):
            value = fingerprint(row)
            if wanted is None or value >> shift in wanted:
                rows.append([text_of(row[i]) for text_of, i in zip(texts_of, places, strict=True)])
                values.append(value)
        width = relation.key_width
        names = [f"k{i}" for i in range(width)] + [f"d{i}" for i in relation.deferred]
        return _arrow(rows, names).add_column(width, "f", pa.array(values, pa.int64()))

    def fingerprints_by_key(self, relation: Relation, keys: Sequence[Key]) -> pa.Table:
        rows = self.rows_by_key(relation, keys)
        values = deferred.fingerprints_of_rows(rows, relation)
        names = [f"k{i}" for i in range(relation.key_width)]
        found = rows.select(range(relation.key_width)).rename_columns(names)
        return found.append_column("fingerprint", values)

    def rows_by_key(
        self, relation: Relation, keys: Sequence[Key], per_query: int = KEYS_PER_QUERY
    ) -> pa.Table:
        """By the index; then, where values may be stored otherwise than asked for, by reading."""
        found = self._rows_by_index(relation, keys, per_query)
        columns = list(zip(relation.key, relation.key_types, strict=True))
        if not keys or all(finds_every_key(column, kind) for column, kind in columns):
            return found
        wanted = set(keys)
        names = [f"c{i}" for i in range(relation.key_width)]
        if wanted <= set(zip(*(found.column(name).to_pylist() for name in names), strict=True)):
            return found
        texts_of = [text_function(column, kind) for column, kind in columns]
        rows = [
            row
            for table in relation.tables
            for row in self._read(sql.rows_sql(self.dialect, relation, table, WHOLE))
            if tuple(f(value) for f, value in zip(texts_of, row, strict=False)) in wanted
        ]
        return self._finished(relation, rows)

    def _rows_by_index(self, relation: Relation, keys: Sequence[Key], per_query: int) -> pa.Table:
        # SQLite refuses a condition of more than a thousand ORs.
        most = _KEYS_PER_CONDITION if relation.key_width > 1 else per_query
        return super().rows_by_key(relation, keys, min(per_query, most))

    def rows_by_fingerprint(self, relation: Relation, fingerprints: Sequence[int]) -> pa.Table:
        fingerprint = fingerprint_function(relation)
        wanted = set(fingerprints)
        rows, values = [], []
        for table in relation.tables:
            for row in self._read(sql.rows_sql(self.dialect, relation, table, WHOLE)):
                value = self._whole(relation, fingerprint(row), row)
                if value in wanted:
                    rows.append(row)
                    values.append(value)
        found = self._finished(relation, rows)
        return found.append_column("fingerprint", pa.array(values, pa.int64()))

    def fingerprinted_rows(self, relation: Relation, chunk: Chunk) -> pa.Table:
        fingerprint = fingerprint_function(relation)
        rows = [
            row
            for table in relation.tables
            for row in self._read(sql.rows_sql(self.dialect, relation, table, chunk))
        ]
        values = [self._whole(relation, fingerprint(row), row) for row in rows]
        found = self._finished(relation, rows)
        return found.append_column("fingerprint", pa.array(values, pa.int64()))

    def require_position(self, relation: Relation) -> None:
        """Triggers log every row, with a key or without."""

    def fingerprinted_rows_at(self, relation: Relation) -> tuple[pa.Table, str]:
        try:
            position = sqlite_snapshot.open_snapshot(self._connection)
            rows = self.fingerprinted_rows(relation, WHOLE)
            self._connection.rollback()
        except sqlite3.Error as error:
            raise explain(error, self.endpoint) from None
        return rows, position

    def _whole(self, relation: Relation, partial: int, row: Sequence[object]) -> int:
        if not relation.deferred:
            return partial
        return deferred.fold(partial, [_plain(row[i]) for i in relation.deferred], relation)

    def boundaries(self, relation: Relation, chunk: Chunk, rows: int) -> list[Key]:
        pairs = zip(relation.key, relation.key_types, strict=True)
        texts_of = [text_function(column, kind) for column, kind in pairs]
        table = relation.tables[0]
        found: dict[Key, None] = {}
        rest = chunk
        while step := self.fetch(sql.boundary_sql(self.dialect, relation, table, rest, rows)):
            key = tuple(f(value) or "" for f, value in zip(texts_of, step[0], strict=True))
            if key in found:  # a value of another storage class, which its text does not find again
                break
            found[key] = None
            rest = Chunk(key, chunk.high)
        return list(found)

    def _rows(self, relation: Relation, statements: Sequence[Statement]) -> pa.Table:
        return self._finished(relation, [row for s in statements for row in self._read(s)])

    def _finished(self, relation: Relation, rows: Sequence[Sequence[object]]) -> pa.Table:
        """Stored rows as canonical texts."""
        pairs = zip(relation.columns, relation.types, strict=True)
        texts_of = [text_function(column, kind) for column, kind in pairs]
        texts = [[f(value) for f, value in zip(texts_of, row, strict=True)] for row in rows]
        names = [f"c{i}" for i in range(len(relation.columns))]
        return deferred.finish_rows(_arrow(texts, names), relation)

    # Introspection

    def tables(self) -> list[TableName]:
        rows = self.fetch(
            Statement(
                "SELECT name FROM pragma_table_list WHERE schema = 'main'"
                " AND type IN ('table', 'virtual') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
                " ORDER BY name"
            )
        )
        return [TableName(None, name) for (name,) in rows]

    def find(self, name: str) -> TableName | None:
        for wanted in (name, name.removeprefix("main.")):
            rows = self.fetch(
                Statement(
                    "SELECT name FROM pragma_table_list"
                    " WHERE schema = 'main' AND name = ? COLLATE NOCASE",
                    (wanted,),
                )
            )
            if rows:
                return TableName(None, rows[0][0])
        return None

    def describe(self, name: TableName) -> Table:
        rows = self.fetch(
            Statement(
                "SELECT l.type, l.strict, s.sql FROM pragma_table_list AS l"
                " JOIN sqlite_schema AS s ON s.name = l.name AND s.type IN ('table', 'view')"
                " WHERE l.schema = 'main' AND l.name = ? COLLATE NOCASE",
                (name.table,),
            )
        )
        if not rows:
            raise UsageError(f"there is no table {name} in {self.endpoint}{self._others()}")
        kind, strict, definition = rows[0]
        if kind == "view":
            raise UsageError(
                f"{name} in {self.endpoint} is a view: verify the tables that it reads from"
            )
        return describe_table(self.fetch, name, definition or "", strict=bool(strict))

    def position(self) -> str | None:
        """The file's change counter; with a write-ahead log nothing outside a connection counts."""
        with self.path.open("rb") as file:
            header = file.read(28)
        if len(header) < 28 or header[18] == _WAL:
            return None
        return str(int.from_bytes(header[24:28], "big"))

    def log_end(self) -> str | None:
        """Rows and their log are one file, so that whoever sees the one sees the other."""
        try:
            return sqlite_snapshot.log_end(self._connection)
        except sqlite3.Error as error:
            raise explain(error, self.endpoint) from None

    def visible_position(self) -> str | None:
        return self.log_end()

    def _others(self) -> str:
        names = [str(name) for name in self.tables()]
        return f"; there are {', '.join(names)}" if 0 < len(names) <= _SHOWN else ""


def _decoded(data: bytes) -> str | bytes:
    """Text that is not UTF-8 stays bytes, so that it is shown and compared instead of refused."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


_plain = text_function(Column("", Text(), ""), Text())


def _arrow(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.table([pa.array(column, pa.string()) for column in columns], names=list(names))


def open_file(endpoint: Endpoint, mode: str) -> sqlite3.Connection:
    """A connection that reads (`ro`) or also writes (`rw`), with patience when others write."""
    wait = float(endpoint.option("busy_timeout", "30"))
    try:
        connection = sqlite3.connect(
            f"{file_of(endpoint).as_uri()}?mode={mode}",
            uri=True,
            timeout=wait,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise explain(error, endpoint) from None
    connection.text_factory = _decoded
    return connection


def file_of(endpoint: Endpoint) -> Path:
    """The file that a URL names, as in SQLAlchemy: three slashes are relative, four absolute."""
    if endpoint.host:
        raise UsageError(f"{endpoint} has two slashes: write sqlite:///{endpoint.host} for a file")
    if not endpoint.path.strip("/"):
        raise UsageError(f"{endpoint} names no file: write for example sqlite:///shop.db")
    relative = Path(endpoint.path[1:])
    found = next((path for path in (relative, Path(endpoint.path)) if path.exists()), None)
    if found is None:
        raise UsageError(f"there is no file {relative}: {endpoint} names a database that exists")
    if not found.is_file():
        raise UsageError(f"{found} is not a file, so {endpoint} is not a SQLite database")
    return found.absolute()


def explain(error: sqlite3.Error, endpoint: Endpoint) -> TruecopyError:
    """A driver's error as one line: what happened, where, what to do."""
    message = str(error)
    if "not a database" in message:
        return UsageError(f"{endpoint} is not a SQLite database, or it is encrypted")
    if "locked" in message or "busy" in message:
        return CannotFinish(
            f"{endpoint}: {message}; another program writes to it:"
            " wait for it to end, or raise busy_timeout (seconds) in the URL"
        )
    if "readonly" in message or "unable to open" in message:
        return CannotFinish(f"{endpoint}: {message}; check the rights on the file and its folder")
    if re.search("no such|syntax error|misuse|unrecognized token", message):
        return UsageError(f"{endpoint} refused a statement: {message}")
    if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_ERROR", "SQLITE_CONSTRAINT")):
        return Refused(f"{endpoint}: {message}")
    return CannotFinish(f"{endpoint}: {message}")
