"""DuckDB: a file of this machine, read by many processes or written by one."""

from __future__ import annotations

import decimal
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines import duckdb_create, duckdb_load, duckdb_views, loading
from truecopy.engines.advice import Advisor
from truecopy.engines.duckdb_dialect import DuckDBDialect
from truecopy.engines.duckdb_schema import (
    describe_table,
    find_table,
    list_tables,
    taken_names,
)
from truecopy.engines.file_advice import DuckDBAdvisor
from truecopy.engines.protocols import Statement
from truecopy.engines.relational import NotAValue, RelationalSession
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, Refused, TruecopyError, UsageError
from truecopy.model.relation import Relation
from truecopy.model.table import Column, ForeignKey, Table, TableName

_LOCK_SECONDS = 3.0
_LOCK_PAUSE_SECONDS = 0.02


class DuckDB(RelationalSession):
    """A database file, opened for reading; opened for writing only while a transaction lasts.

    Foreign keys cannot be put off in DuckDB: statements must come in an order that they allow.
    """

    driver_local = True
    dialect: DuckDBDialect
    array_views = duckdb_views.VIEWS

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.dialect = DuckDBDialect()
        self.path = file_of(endpoint)
        self._connection = self._open(read_only=True)

    def close(self) -> None:
        self._connection.close()

    def _open(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        """Another process, or thread, may be reading or writing just now: it is waited for, but not long."""
        patient_until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                connection = duckdb.connect(str(self.path), read_only=read_only)
                connection.execute("SET TimeZone = 'UTC'")
                return connection
            except duckdb.Error as error:
                if not _is_in_use(str(error)) or time.monotonic() > patient_until:
                    raise _explain(error, self.endpoint) from None
            time.sleep(_LOCK_PAUSE_SECONDS)

    def _reopen(self, *, read_only: bool) -> None:
        self._connection.close()
        self._connection = self._open(read_only=read_only)

    # Running statements

    def fetch(self, statement: Statement) -> list[tuple[Any, ...]]:
        with self._explained():
            return self._connection.execute(statement.sql, list(statement.values)).fetchall()

    def fetch_texts(self, statement: Statement, names: Sequence[str]) -> pa.Table:
        found = self._arrow(statement)
        # Fingerprints are numbers already, and stay so.
        columns = [
            column if pa.types.is_integer(column.type) else pc.cast(column, pa.string())
            for column in found.columns
        ]
        return pa.table(columns, names=list(names))

    def query(self, statement: str, values: Sequence[object] = ()) -> pa.Table:
        return self._arrow(Statement(statement, tuple(values)))

    def execute(self, statement: Statement) -> int:
        """Each INSERT, UPDATE and DELETE answers with the number of rows it changed."""
        changed = self.fetch(statement)
        return int(changed[0][0]) if changed else 0

    def begin(self) -> None:
        try:
            self._reopen(read_only=False)
        except TruecopyError:
            self._connection = self._open(read_only=True)
            raise
        self.execute(Statement("BEGIN"))

    def commit(self) -> None:
        self.execute(Statement("COMMIT"))
        self._reopen(read_only=True)

    def rollback(self) -> None:
        with self._explained():
            self._connection.rollback()
        self._reopen(read_only=True)

    def load(
        self,
        relation: Relation,
        rows: pa.Table,
        annotation: str | None = None,  # noqa: ARG002 - DuckDB keeps no log
    ) -> int:
        loading.require_fit(relation, rows)
        with self._explained():
            taken = duckdb_load.load(self._connection, relation, rows)
        return loading.require_all(relation, rows, taken)

    def delete_keys(
        self,
        relation: Relation,
        keys: pa.Table,
        annotation: str | None = None,  # noqa: ARG002 - likewise
    ) -> int:
        with self._explained():
            return duckdb_load.delete_keys(self._connection, relation, keys)

    def create_table(self, table: Table) -> list[str]:
        return duckdb_create.create_table(self.dialect, table)

    def add_columns(self, table: Table, columns: Sequence[Column]) -> list[str]:
        return duckdb_create.add_columns(self.dialect, table, columns)

    def create_indexes(self, table: Table) -> list[str]:
        taken = taken_names(self.fetch, table.name.schema)
        return duckdb_create.create_indexes(self.dialect, table, taken)

    def create_foreign_keys(self, table: Table) -> list[str]:  # noqa: ARG002 - it cannot add them
        return []

    def reference_gaps(self, table: Table, reference: ForeignKey, parent: Table) -> list[str]:  # noqa: ARG002 - likewise
        return []

    def creation_warnings(self, table: Table) -> list[str]:
        return duckdb_create.warnings(table)

    def advisor(self) -> Advisor:
        return DuckDBAdvisor(self, self.path)

    def literal(self, value: object) -> str:
        match value:
            case bytes():
                return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
            case float() if not math.isfinite(value):
                return f"'{value}'::DOUBLE"
            case bool() | int() | float() | decimal.Decimal():
                return str(value)
            case list():
                return "[" + ", ".join(map(self.literal, value)) + "]"
            case None:
                return "NULL"
            case _:
                return "'" + str(value).replace("'", "''") + "'"

    def _arrow(self, statement: Statement) -> pa.Table:
        with self._explained():
            found = self._connection.sql(statement.sql, params=list(statement.values))
            return pa.table({}) if found is None else found.to_arrow_table()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            raise _explain(error, self.endpoint) from None

    # Introspection

    def tables(self) -> list[TableName]:
        return list_tables(self.fetch)

    def find(self, name: str) -> TableName | None:
        return find_table(self.fetch, name)

    def describe(self, name: TableName) -> Table:
        return describe_table(self.fetch, self.dialect, self.endpoint, name)

    def position(self) -> str | None:
        """DuckDB keeps no log to stand in."""
        return None


def file_of(endpoint: Endpoint) -> Path:
    """`duckdb:///a/b` is the file `/a/b`, or `a/b` where only that exists; it is never made."""
    absolute = Path(endpoint.path)
    for path in (absolute, Path(endpoint.path.lstrip("/"))):
        if endpoint.path.strip("/") and path.is_file():
            return path
    raise UsageError(
        f"there is no DuckDB file {absolute} for {endpoint}; write duckdb:///path/to/file.duckdb"
    )


def _is_in_use(message: str) -> bool:
    """By another process, or by another thread of this one that opened it otherwise."""
    said = ("lock on file", "different configuration", "Unique file handle conflict")
    return any(words in message for words in said)


def _explain(error: duckdb.Error, endpoint: Endpoint) -> TruecopyError:
    """A driver's error as one line: what happened, where, what to do."""
    message = " ".join(str(error).split())
    if _is_in_use(message):
        return CannotFinish(
            f"{endpoint} is in use by another process or session, which has to close it first:"
            f" {message.partition(' However,')[0]}"
        )
    if "not a valid DuckDB database" in message or "encrypt" in message.lower():
        return CannotFinish(f"cannot open {endpoint}: {message}; is it a whole, plain DuckDB file?")
    if isinstance(error, duckdb.CatalogException | duckdb.BinderException | duckdb.ParserException):
        return UsageError(f"{endpoint} refused a statement: {message}")
    if isinstance(error, duckdb.ConversionException):
        return NotAValue(f"{endpoint}: {message}")
    if isinstance(error, duckdb.ConstraintException | duckdb.NotImplementedException):
        return Refused(f"{endpoint}: {message}")
    return CannotFinish(f"{endpoint}: {message}")
