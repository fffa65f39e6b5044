"""Queries on PostgreSQL."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import psycopg

from truecopy.engines.postgresql import connection_parameters, explain_refusal
from truecopy.engines.postgresql_dialect import PostgreSQLDialect, canonical_type
from truecopy.engines.postgresql_text import canonical
from truecopy.engines.queries.failure import Kind, QueryFailed, failed
from truecopy.engines.queries.session import (
    DEFAULT_SCRATCH,
    ROWS_AT_ONCE,
    QuerySession,
    text_rows,
)
from truecopy.engines.queries.texts import Texts
from truecopy.model.endpoint import Endpoint
from truecopy.model.shape import ListOf, QueryColumn, Scalar, Shape
from truecopy.model.types import Decimal, Float, Type

_HASHES_RECORDS = 140000
_COLLATED = {"text", "character"}
_HASHED = {
    *_COLLATED,
    *("smallint", "integer", "bigint", "numeric", "real", "double", "boolean"),
    *("date", "timestamp", "bytea", "uuid"),
}
_ORPHAN_CHECKS, _ORPHAN_PAUSE_SECONDS = 200, 0.05
_SETTINGS = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres';"
    " SET bytea_output = 'hex'; SET extra_float_digits = 1"
)
_TYPES = """
SELECT w.n, format_type(w.type, w.modifier), b.typname::text, b.typtype = 'e', t.typcategory = 'A'
FROM unnest(%s::oid[], %s::int[]) WITH ORDINALITY AS w(type, modifier, n)
JOIN pg_type t ON t.oid = w.type
JOIN pg_type b ON b.oid = CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE t.oid END
ORDER BY w.n
"""
_KINDS = (
    ("08", Kind.CONNECTION),
    ("57P0", Kind.CONNECTION),
    ("57014", Kind.TIME_LIMIT),
    ("40", Kind.TRANSIENT),
    ("55P03", Kind.TRANSIENT),
    ("53200", Kind.MEMORY),
    ("53400", Kind.MEMORY),
    ("53", Kind.TRANSIENT),
    ("42P01", Kind.GONE),
    ("3F000", Kind.GONE),
    ("42601", Kind.SYNTAX),
    ("42", Kind.REFUSED),
    ("25006", Kind.REFUSED),
)


class PostgreSQLTexts(Texts):
    """Texts by the dialect of tables; arrays are the only lists."""

    placeholder = "%s"

    def __init__(self, encoding: str, version: int) -> None:
        self._dialect = PostgreSQLDialect(encoding)
        self._version = version

    def quote(self, name: str) -> str:
        return self._dialect.quote(name)

    def scalar(self, x: str, own: Scalar, kind: Type) -> str:
        return canonical(x, own.native, own.type, kind)

    def number(self, x: str, own: Scalar) -> str:
        return x if isinstance(own.type, Float) else f"{x}::float8"

    def rounded(self, x: str, own: Scalar, scale: int) -> str:
        return canonical(f"round({x}, {scale:d})", own.native, own.type, Decimal(scale))

    def concat(self, parts: Sequence[str]) -> str:
        return self._dialect.concat(parts)

    def byte_length(self, text: str) -> str:
        return self._dialect.byte_length(text)

    def hash60(self, text: str) -> str:
        return self._dialect.hash60(text)

    def own_hash(self, columns: Sequence[tuple[str, Scalar]]) -> str | None:
        words = [re.split(r"[ (]", own.native)[0] for _, own in columns]
        if self._version < _HASHES_RECORDS or not set(words) <= _HASHED:
            return None
        # By another collation, texts that differ may have the same hash.
        values = [
            f'{x} COLLATE "C"' if word in _COLLATED else x
            for (x, _), word in zip(columns, words, strict=True)
        ]
        return f"hash_record_extended(ROW({', '.join(values)}), 0)"

    def special(self, x: str) -> tuple[str, str, str]:
        return f"{x} = 'NaN'", f"{x} = 'Infinity'", f"{x} = '-Infinity'"

    def gather(self, x: str, variable: str, item: str, *, ordered: bool) -> str:
        order = "n" if ordered else 't COLLATE "C"'
        items = f"SELECT {item} AS t, n FROM unnest({x}) WITH ORDINALITY AS u({variable},n)"
        joined = f"(SELECT string_agg(t, '' ORDER BY {order}) FROM ({items}) AS i)"
        return f"(CASE WHEN {x} IS NULL THEN NULL ELSE COALESCE({joined},'') END)"

    def size(self, x: str) -> str:
        return f"(cardinality({x})::text||':'||num_nonnulls(VARIADIC {x})::text)"

    def list_sum(self, x: str) -> str:
        total = f"(SELECT COALESCE(SUM(e),0) FROM unnest({x}) AS u(e))"
        return f"(CASE WHEN {x} IS NULL THEN NULL ELSE {total}::float8 END)"


class PostgreSQLQueries(QuerySession):
    """One connection; it is cancelled by the protocol's own request."""

    dialect = "postgres"
    survives_crashes = False  # they are empty then

    def __init__(self, endpoint: Endpoint, scratch: str | None = None) -> None:
        super().__init__(endpoint)
        self.scratch = (scratch or DEFAULT_SCRATCH,)
        try:
            self._connection = psycopg.connect(**connection_parameters(endpoint), autocommit=True)
            self._connection.execute(_SETTINGS)
            encoding = self._connection.execute("SHOW server_encoding").fetchone()
        except psycopg.Error as error:
            refused = explain_refusal(error, endpoint)
            if refused.exit_code == 2:
                raise refused from None
            raise failed(Kind.CONNECTION, refused) from None
        version = self._connection.info.server_version
        self.texts = PostgreSQLTexts(str(encoding[0]) if encoding else "UTF8", version)

    def execute(self, sql: str) -> None:
        self._connection.execute(sql.encode())

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.ClientCursor(self._connection) as cursor:
            return cursor.execute(sql.encode(), ()).fetchall()

    def stream(self, sql: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        with psycopg.ClientCursor(self._connection) as cursor:
            rows = cursor.stream(sql.encode(), ())
            while found := list(islice(rows, ROWS_AT_ONCE)):
                yield found

    def describe(self, query: str) -> tuple[QueryColumn, ...]:
        found = self._connection.execute(
            f"SELECT * FROM ({query}) AS t LIMIT 0".encode()
        ).description
        fields = found or []
        # The protocol tells a numeric's modifier, which the driver gives as precision and scale.
        modifiers = [
            -1 if field.precision is None else ((field.precision << 16) | (field.scale or 0)) + 4
            for field in fields
        ]
        types = self._connection.execute(
            _TYPES, ([field.type_code for field in fields], modifiers)
        ).fetchall()
        return tuple(
            QueryColumn(field.name, _shape(native, base, is_enum, is_array, modifier))
            for field, (_, native, base, is_enum, is_array), modifier in zip(
                fields, types, modifiers, strict=True
            )
        )

    def names(self, query: str) -> list[str]:
        return [field.name for field in self._connection.execute(query.encode()).description or ()]

    def explain(self, query: str) -> str:
        return "\n".join(
            text_rows(self._connection.execute(f"EXPLAIN {query}".encode()).fetchall())
        )

    def cancel(self) -> None:
        self._connection.cancel_safe(timeout=10)

    def close(self) -> None:
        self._connection.close()

    def explained(self, error: Exception) -> QueryFailed | None:
        if not isinstance(error, psycopg.Error):
            return None
        code = error.sqlstate or ""
        message = f"{self.endpoint}: {error.diag.message_primary or error}"
        if self._connection.closed or (isinstance(error, psycopg.OperationalError) and not code):
            return failed(Kind.CONNECTION, message, code)
        kind = next((kind for start, kind in _KINDS if code.startswith(start)), Kind.OTHER)
        return failed(kind, message, code)

    def scratch_tables(self, prefix: str) -> list[str]:
        found = self._connection.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND starts_with(c.relname, %s) AND c.relkind IN ('r', 'v')",
            (self.scratch[0], prefix),
        )
        return text_rows(found.fetchall())

    def end_orphans(self, prefix: str) -> None:
        orphans = (
            "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = current_user"
            " AND datname = current_database() AND state <> 'idle' AND strpos(query, %s) > 0"
        )
        self._connection.execute(f"SELECT pg_terminate_backend(pid) {orphans}", (prefix,))
        for _ in range(_ORPHAN_CHECKS):  # they end in their own time, and might commit until then
            left = self._connection.execute(f"SELECT count(*) {orphans}", (prefix,)).fetchone()
            if not left or not left[0]:
                return
            time.sleep(_ORPHAN_PAUSE_SECONDS)

    def make_scratch(self) -> None:
        # `IF NOT EXISTS` asks for the right to make schemas even where it is there.
        found = self._connection.execute(
            "SELECT 1 FROM pg_namespace WHERE nspname = %s", (self.scratch[0],)
        )
        if not found.fetchall():
            # Two connections may make it at once, of which one fails in spite of `IF NOT EXISTS`.
            with suppress(psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema):
                self.execute(f"CREATE SCHEMA IF NOT EXISTS {self.quote(self.scratch[0])}")

    def use(self, catalog: str | None, schema: str | None) -> None:  # noqa: ARG002 - a connection is of one
        if schema:
            self.execute(f"SET search_path = {self.quote(schema)}")

    def set(self, settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            self._connection.execute("SELECT set_config(%s, %s, false)", (name, value))

    def read_only(self) -> None:
        self.execute("SET default_transaction_read_only = on")

    def create_as(self, table: str, query: str) -> str:
        """Not logged, so that neither the log nor replicas bear the results of a verification."""
        return f"CREATE UNLOGGED TABLE {table} AS {query}"


def _shape(native: str, base: str, is_enum: bool, is_array: bool, modifier: int) -> Shape:
    inner = native.removesuffix("[]")
    scalar = Scalar(inner, canonical_type(base, is_enum, modifier, inner))
    return ListOf(scalar) if is_array else scalar
