"""PostgreSQL 13+."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import psycopg.sql
import pyarrow as pa
import pyarrow.csv as pa_csv

from truecopy.engines import (
    creation,
    loading,
    postgresql_create,
    postgresql_digest,
    postgresql_load,
    postgresql_replica,
    postgresql_sequences,
    postgresql_snapshot,
    postgresql_views,
)
from truecopy.engines.postgresql_advice import PostgreSQLAdvisor
from truecopy.engines.postgresql_dialect import PostgreSQLDialect
from truecopy.engines.postgresql_left_out import log_whole_rows
from truecopy.engines.postgresql_rights import require_select
from truecopy.engines.postgresql_schema import (
    describe_table,
    find_table,
    home_schema,
    list_tables,
    taken_names,
)
from truecopy.engines.postgresql_writers import PostgreSQLWriters
from truecopy.engines.protocols import Statement
from truecopy.engines.relational import NotAValue, SharedSession
from truecopy.engines.sql import table_sql
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, Refused, TruecopyError, UsageError
from truecopy.model.relation import WHOLE, Chunk, Relation
from truecopy.model.table import Column, ForeignKey, Table, TableName

_SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    # Compiling costs more than it saves on the short statements that compare chunks.
    "jit": "off",
    # A policy that hides rows would hide differences: an error instead.
    "row_security": "off",
}
_PASSED_ON = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslcrl",
    "target_session_attrs",
    "options",
)
_BLOCK = 1 << 20
_IDENTITIES = """
SELECT n.nspname::text, c.relname::text, c.oid::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p')
"""
_NOT_A_VALUE = ("22P02", "22003", "22007", "22008")


class PostgreSQL(SharedSession):
    """A connection to PostgreSQL, in UTC and with UTF-8; values are bound by the client."""

    dialect: PostgreSQLDialect
    view_start = postgresql_replica.VIEW
    replicated_exactly = False
    array_views = postgresql_views.VIEWS

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._annotation: str | None = None
        try:
            self._connection = psycopg.connect(**connection_parameters(endpoint), autocommit=True)
        except psycopg.Error as error:
            raise explain_refusal(error, endpoint) from None
        try:
            encoding, ignores_references = self._prepare()
        except BaseException:
            self.close()
            raise
        trims_bytes = self._connection.info.server_version >= 140000
        self.dialect = PostgreSQLDialect(encoding, trims_bytes=trims_bytes)
        self._ignores_references = ignores_references
        self._references = (
            "SET LOCAL session_replication_role = replica"
            if ignores_references
            else "SET CONSTRAINTS ALL DEFERRED"
        )
        self.transaction_start = ("BEGIN", "SET LOCAL client_encoding = 'UTF8'", self._references)

    def _prepare(self) -> tuple[str, bool]:
        """Sets the session up; gives the server's encoding, and whether triggers can be off."""
        settings = [f"set_config('{name}', '{value}', false)" for name, value in _SETTINGS.items()]
        may_set = "current_setting('is_superuser') = 'on'"
        if self._connection.info.server_version >= 150000:
            may_set += " OR has_parameter_privilege('session_replication_role', 'SET')"
        found = self.fetch(
            Statement(
                f"SELECT current_setting('server_encoding'), {may_set}, {', '.join(settings)}"
            )
        )
        return str(found[0][0]), bool(found[0][1])

    def close(self) -> None:
        self._connection.close()

    # Running statements

    def fetch(self, statement: Statement) -> list[tuple[Any, ...]]:
        # Values are given also when there are none, so that %% is always resolved.
        with self._cursor() as cursor:
            return cursor.execute(statement.sql.encode(), statement.values).fetchall()

    def fetch_texts(self, statement: Statement, names: Sequence[str]) -> pa.Table:
        """By COPY, whose CSV tells '' (quoted) from NULL (nothing)."""
        copy_sql = f"COPY ({statement.sql}) TO STDOUT (FORMAT csv)"
        with self._cursor() as cursor:
            bound = cursor.mogrify(copy_sql.encode(), statement.values)
            with cursor.copy(bound.encode()) as copy:
                lines = [bytes(line) for line in copy]
        if not lines:
            return pa.schema([(name, pa.string()) for name in names]).empty_table()
        try:
            return pa_csv.read_csv(
                io.BytesIO(b"".join(lines)),
                # A row may not reach over a whole block.
                read_options=pa_csv.ReadOptions(
                    column_names=list(names),
                    block_size=max(_BLOCK, 2 * max(map(len, lines))),
                    use_threads=False,  # Spark tasks run beside each other already
                ),
                # A NULL that is the only column is an empty line.
                parse_options=pa_csv.ParseOptions(
                    newlines_in_values=True, ignore_empty_lines=False
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            raise CannotFinish(f"{self.endpoint} sent text that is not UTF-8: {error}") from None

    def digest_sql(self, relation: Relation, table: TableName, chunk: Chunk) -> Statement:
        return postgresql_digest.digest_sql(self.dialect, relation, table, chunk)

    def execute(self, statement: Statement) -> int:
        with self._cursor() as cursor:
            return cursor.execute(statement.sql.encode(), statement.values).rowcount

    def begin(self) -> None:
        self._annotation = None
        self.execute(Statement("BEGIN"))
        self.execute(Statement(self._references))

    def commit(self) -> None:
        self.execute(Statement("COMMIT"))

    def rollback(self) -> None:
        if not self._connection.closed:
            self.execute(Statement("ROLLBACK"))

    def load(self, relation: Relation, rows: pa.Table, annotation: str | None = None) -> int:
        loading.require_fit(relation, rows)
        postgresql_load.refuse_nul(relation, rows)
        if not rows.num_rows:
            return 0
        self._annotate(annotation)
        statement = postgresql_load.copy_sql(self.dialect, relation)
        with self._cursor() as cursor:
            try:
                with cursor.copy(statement.encode()) as copy:
                    for part in postgresql_load.file_of(relation, rows):
                        copy.write(part)
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                raise postgresql_load.explain(error, relation, rows) or error from None
            return loading.require_all(relation, rows, cursor.rowcount)

    def delete_keys(self, relation: Relation, keys: pa.Table, annotation: str | None = None) -> int:
        if not keys.num_rows:
            return 0
        self._annotate(annotation)
        return self.execute(postgresql_load.delete_sql(self.dialect, relation, keys))

    def delete_all(self, relation: Relation, annotation: str | None = None) -> int:
        self._annotate(annotation)
        return super().delete_all(relation)

    def _annotate(self, annotation: str | None) -> None:
        """Once, before the first change of a transaction: readers of the log meet it first."""
        if annotation is not None and annotation != self._annotation:
            self.fetch(Statement(postgresql_load.ANNOTATE.sql, (annotation,)))
            self._annotation = annotation

    def create_table(self, table: Table) -> list[str]:
        return postgresql_create.create_table(self.dialect, table, self._knows_type)

    def add_columns(self, table: Table, columns: Sequence[Column]) -> list[str]:
        return postgresql_create.add_columns(self.dialect, table, columns, self._knows_type)

    def create_indexes(self, table: Table) -> list[str]:
        taken = taken_names(self.fetch, table.name.schema)
        return postgresql_create.create_indexes(self.dialect, table, taken)

    def create_foreign_keys(self, table: Table) -> list[str]:
        return creation.foreign_key_statements(self.dialect, table)

    def reference_gaps(self, table: Table, reference: ForeignKey, parent: Table) -> list[str]:
        return postgresql_create.reference_gaps(table, reference, parent, self._knows_type)

    def creation_warnings(self, table: Table) -> list[str]:
        return postgresql_create.warnings(table, self._knows_type)

    def set_sequences(self, table: Table, annotation: str | None = None) -> list[str]:  # noqa: ARG002 - not logged
        found = self.find(str(table.name))
        columns = self.describe(found).numbered if found else ()
        last = table.next_number - 1 if table.next_number and len(columns) == 1 else 0
        made = []
        for column in columns:
            statement = postgresql_create.sequence_sql(
                self.dialect, found or table.name, column, last
            )
            ((value,),) = self.fetch(statement)
            made.append(f"{column}: the next number is {value}")
        return made

    def sequences(self) -> dict[TableName, int | None]:
        return postgresql_sequences.next_numbers(self)

    def advance_sequence(self, name: TableName, number: int, annotation: str | None = None) -> None:  # noqa: ARG002 - not logged
        postgresql_sequences.advance(self, name, number)

    def require_position(self, relation: Relation) -> None:
        postgresql_snapshot.require_position(self, relation)

    def fingerprinted_rows_at(self, relation: Relation) -> tuple[pa.Table, str]:
        given = connection_parameters(self.endpoint)
        limit = f"-c lock_timeout={postgresql_snapshot.SLOT_SECONDS}s"
        given["options"] = f"{given.get('options', '')} {limit}".strip()
        try:
            replicating = psycopg.connect(**given, replication="database", autocommit=True)
        except psycopg.Error as error:
            raise explain_refusal(error, self.endpoint) from None
        try:
            with replicating:
                position = postgresql_snapshot.open_exported(self, replicating)
        except psycopg.Error as error:
            raise _explain(error, self.endpoint) from None
        rows = self.fingerprinted_rows(relation, WHOLE)
        self.rollback()
        return rows, position

    def writers(self) -> PostgreSQLWriters:
        return PostgreSQLWriters(self)

    def advisor(self) -> PostgreSQLAdvisor:
        return PostgreSQLAdvisor(self, ignores_references=self._ignores_references)

    def _knows_type(self, native: str) -> bool:
        ((known,),) = self.fetch(
            Statement("SELECT to_regtype(%s) IS NOT NULL", (postgresql_create.bare_type(native),))
        )
        return bool(known)

    def literal(self, value: object) -> str:
        return psycopg.sql.Literal(value).as_string(self._connection).strip()

    def insert(self, relation: Relation, row: Sequence[str | None]) -> Statement:
        """Into identity columns as well, which otherwise take no value."""
        plain = super().insert(relation, row)
        head, _, places = plain.sql.rpartition(" VALUES (")
        return Statement(f"{head} OVERRIDING SYSTEM VALUE VALUES ({places}", plain.values)

    def query(self, statement: str, values: Sequence[object] = ()) -> pa.Table:
        with self._cursor() as cursor:
            cursor.execute(statement.encode(), tuple(values) or None)
            rows = cursor.fetchall() if cursor.description else []
            names = [field.name for field in cursor.description or ()]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        return pa.table([_arrow(column) for column in columns], names=names)

    @contextmanager
    def _cursor(self) -> Iterator[psycopg.ClientCursor[tuple[Any, ...]]]:
        try:
            with psycopg.ClientCursor(self._connection) as cursor:
                yield cursor
        except psycopg.Error as error:
            raise _explain(error, self.endpoint, lost=self._connection.closed) from None

    # Introspection

    def tables(self) -> list[TableName]:
        return list_tables(self.fetch)

    def home(self) -> str | None:
        return home_schema(self.fetch)

    def find(self, name: str) -> TableName | None:
        return find_table(self.fetch, name)

    def describe(self, name: TableName) -> Table:
        require_select(self.fetch, self.endpoint, name)
        return describe_table(self.fetch, self.dialect, self.endpoint, name)

    def identities(self) -> dict[TableName, str]:
        rows = self.fetch(Statement(_IDENTITIES))
        return {TableName(schema, table): oid for schema, table, oid in rows}

    def log_whole_rows(self, name: TableName) -> str:
        return log_whole_rows(table_sql(self.dialect, name))

    def require_select(self, relation: Relation) -> None:
        columns = [column.name for column in relation.columns]
        for name in relation.tables:
            require_select(self.fetch, self.endpoint, name, columns)

    def position(self) -> str | None:
        """Behind every commit that can be seen, also of those that do not wait for the disk."""
        try:
            ((position,),) = self.fetch(
                Statement(
                    "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
                    " ELSE pg_current_wal_insert_lsn() END::text"
                )
            )
        except TruecopyError:
            return None
        return None if position is None else str(position)

    def annotation_gaps(self) -> list[str]:
        ((version,),) = self.fetch(Statement("SHOW server_version_num"))
        if int(version) >= 140_000:
            return []
        return [f"{self.endpoint} streams no messages before PostgreSQL 14, and so no annotation"]

    def replicated_position(self) -> str | None:
        return postgresql_replica.replicated_position(self)

    def lag_seconds(self) -> float | None:
        """Of a standby. One that streamed and lost its source is stopped: nobody knows its lag."""
        ((seconds,),) = self.fetch(
            Statement(
                "SELECT CASE WHEN NOT pg_is_in_recovery() THEN NULL"
                " WHEN pg_last_wal_receive_lsn() IS NOT NULL"
                " AND NOT EXISTS (SELECT FROM pg_stat_wal_receiver) THEN NULL"
                " WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0"
                " ELSE extract(epoch FROM now() - pg_last_xact_replay_timestamp()) END"
            )
        )
        return None if seconds is None else float(seconds)


def connection_parameters(endpoint: Endpoint) -> dict[str, Any]:
    """What libpq is told; what the URL leaves out is left to libpq (PGHOST, .pgpass, …)."""
    given: dict[str, Any] = {
        "host": endpoint.host or endpoint.option("host"),
        "port": endpoint.port,
        "user": endpoint.user,
        "password": endpoint.password,
        "dbname": endpoint.database,
        **{name: endpoint.option(name) for name in _PASSED_ON},
    }
    return {
        **{name: value for name, value in given.items() if value},
        "connect_timeout": endpoint.option("connect_timeout", "10"),
        "application_name": "truecopy",
        "client_encoding": "UTF8",
    }


def _arrow(values: Sequence[object]) -> pa.Array:
    """Typed as Arrow sees the driver's values; those that Arrow has no type for, as text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def explain_refusal(error: psycopg.Error, endpoint: Endpoint) -> TruecopyError:
    """Why there is no connection. libpq gives the server's words only, no code."""
    message = _one_line(str(error))
    if "does not exist" in message and "database" in message.rpartition("FATAL:")[2]:
        return UsageError(
            f"there is no database {endpoint.database or endpoint.user} on {endpoint}"
        )
    refused = (
        "authentication failed",
        "no password supplied",
        'role "',
        "pg_hba.conf",
        "is not permitted",
    )
    if any(words in message for words in refused):
        reason = message.rpartition("FATAL:")[2].strip()
        return UsageError(
            f"{endpoint.user or 'the user'} was refused by {endpoint}:"
            f" check the user and the password ({reason})"
        )
    if "invalid" in message and "sslmode" in message:
        return UsageError(f"{endpoint}: {message}")
    return CannotFinish(
        f"cannot connect to {endpoint}: {message}; is the server running, host and port right?"
    )


_REFUSED = ("0A", "23", "54")
"""Not supported, against a constraint, above a limit."""


def _explain(error: psycopg.Error, endpoint: Endpoint, *, lost: bool = False) -> TruecopyError:
    """A driver's error as one line: what happened, where, what to do."""
    code = error.sqlstate or ""
    message = _one_line(error.diag.message_primary or str(error))
    if lost or code.startswith("08") or code in ("57P01", "57P02", "57P03"):
        return CannotFinish(
            f"lost the connection to {endpoint}; run the same command again to go on"
        )
    if code == "42501":
        if "row-level security" in message:
            remedy = "use a role with BYPASSRLS, or the table's owner"
        else:
            remedy = "GRANT SELECT on the table, and USAGE on its schema"
        return CannotFinish(
            f"{endpoint.user or 'the user'} may not do that on {endpoint}: {message}; {remedy}"
        )
    if code in _NOT_A_VALUE:
        return NotAValue(f"{endpoint}: {message}")
    if code == "40001":
        return CannotFinish(f"{endpoint} gave up: {message}; run the same command again to go on")
    if code.startswith("42"):
        return UsageError(f"{endpoint} refused a statement: {message}")
    if code.startswith(_REFUSED):
        return Refused(f"{endpoint}: {message}")
    return CannotFinish(f"{endpoint}: {message}")


def _one_line(message: str) -> str:
    return " ".join(message.split())
