"""Queries on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pymysql
import pymysql.cursors
from pymysql.constants import FIELD_TYPE as FIELD
from pymysql.constants import FLAG

from truecopy.engines.mysql import open_connection
from truecopy.engines.mysql_dialect import MySQLDialect, canonical_type
from truecopy.engines.queries.failure import Kind, QueryFailed, failed
from truecopy.engines.queries.session import DEFAULT_SCRATCH, QuerySession, blocks, text_rows
from truecopy.engines.queries.texts import Texts
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import TruecopyError
from truecopy.model.shape import QueryColumn, Scalar
from truecopy.model.table import Column
from truecopy.model.types import Float, Text, Type, Unknown

_BINARY_CHARSET = 63
_UNKNOWN = "unknown"  # to the dialect: texts are converted to UTF-8
_NATIVE = {
    FIELD.TINY: "tinyint",
    FIELD.SHORT: "smallint",
    FIELD.INT24: "mediumint",
    FIELD.LONG: "int",
    FIELD.LONGLONG: "bigint",
    FIELD.YEAR: "year",
    FIELD.FLOAT: "float",
    FIELD.DOUBLE: "double",
    FIELD.DECIMAL: "decimal",
    FIELD.NEWDECIMAL: "decimal",
    FIELD.DATE: "date",
    FIELD.NEWDATE: "date",
    FIELD.TIME: "time",
    FIELD.DATETIME: "datetime",
    FIELD.TIMESTAMP: "timestamp",
    FIELD.BIT: "bit",
    FIELD.JSON: "json",
    FIELD.GEOMETRY: "geometry",
}
_WITH_FRACTION = ("time", "datetime", "timestamp")
_LOST = {2003, 2006, 2013, 2055, 1053, 1040, 1203, 1927, 0}
_PASSING = {1205, 1213, 1614, 3024, 1020}
_TIME = {1317, 1969, 3024}
_MEMORY = {1037, 1038, 1041, 1114, 3170}
_REFUSED = {1044, 1142, 1143, 1227, 1054, 1370, 1049}
_NO_SUCH_THREAD = 1094
_NO_TABLE = {1146, 1051, 1932}


@dataclass(frozen=True)
class Characters(Scalar):
    """Text: its charset tells whether it is UTF-8 as it is, for a conversion costs as much as the hash does."""

    charset: str = _UNKNOWN


class MySQLTexts(Texts):
    """Texts by the dialect of tables."""

    placeholder = "%s"

    def __init__(self) -> None:
        self._dialect = MySQLDialect()

    def quote(self, name: str) -> str:
        return self._dialect.quote(name)

    def scalar(self, x: str, own: Scalar, kind: Type) -> str:
        if isinstance(own.type, Unknown):  # NULL, and nothing else
            return f"CAST({x} AS CHAR)"
        charset = own.charset if isinstance(own, Characters) else _UNKNOWN
        column = Column(x, own.type, own.native, fraction=own.fraction, charset=charset)
        return self._dialect.as_text(self._dialect.canonical(column, kind))

    def number(self, x: str, own: Scalar) -> str:
        return x if isinstance(own.type, Float) else f"({x} + 0e0)"

    def rounded(self, x: str, own: Scalar, scale: int) -> str:  # noqa: ARG002 - one way for all
        return f"CAST(ROUND({x}, {scale:d}) AS CHAR)"

    def concat(self, parts: Sequence[str]) -> str:
        return self._dialect.concat(parts)

    def byte_length(self, text: str) -> str:
        return self._dialect.byte_length(_uncast(text))

    def hash60(self, text: str) -> str:
        return self._dialect.hash60(text)

    def joined(self, parts: Sequence[str]) -> str:
        # CONCAT makes texts of what it gets; casts before it cost as much as the hash does.
        return super().joined([_uncast(part) for part in parts])

    def special(self, x: str) -> tuple[str, str, str]:  # noqa: ARG002 - none of them
        """There are no such numbers here."""
        return "FALSE", "FALSE", "FALSE"


class MySQLQueries(QuerySession):
    """One connection; it is cancelled by KILL QUERY from another one."""

    dialect = "mysql"
    describes_cheaply = False  # conditions on constants are evaluated even for LIMIT 0

    def __init__(self, endpoint: Endpoint, scratch: str | None = None) -> None:
        super().__init__(endpoint)
        self.texts = MySQLTexts()
        self.scratch = (scratch or DEFAULT_SCRATCH,)
        try:
            self._connection = open_connection(endpoint)
        except TruecopyError as error:
            if error.exit_code == 2:
                raise
            raise failed(Kind.CONNECTION, error) from None

    def execute(self, sql: str) -> None:
        self._ask(sql, None)

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        return self._ask(sql, ())[0]

    def stream(self, sql: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        with self._connection.cursor(pymysql.cursors.SSCursor) as cursor:
            cursor.execute(sql, ())
            yield from blocks(cursor)

    def describe(self, query: str) -> tuple[QueryColumn, ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM ({query}) AS t LIMIT 0")
            found = {field.name: _scalar(field) for field in cursor._result.fields or ()}
        texts = [name for name, own in found.items() if isinstance(own.type, Text)]
        for name, charset in zip(texts, self._charsets(query, texts), strict=True):
            found[name] = Characters(found[name].native, found[name].type, charset=charset)
        return tuple(QueryColumn(name, own) for name, own in found.items())

    def names(self, query: str) -> list[str]:
        return self._ask(query, None)[1]

    def explain(self, query: str) -> str:
        return "\n".join(text_rows(self._ask(f"EXPLAIN FORMAT=JSON {query}", None)[0]))

    def cancel(self) -> None:
        try:
            with open_connection(self.endpoint) as other, other.cursor() as cursor:
                cursor.execute(f"KILL QUERY {self._connection.thread_id():d}")
        except (TruecopyError, pymysql.MySQLError):
            # A query that cannot be stopped on the server is at least left by us.
            self._connection._force_close()

    def close(self) -> None:
        self._connection._force_close()

    def explained(self, error: Exception) -> QueryFailed | None:
        if not isinstance(error, pymysql.MySQLError | OSError):
            return None
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        message = f"{self.endpoint}: {error.args[-1] if error.args else error}"
        if code == 0 and isinstance(error, pymysql.ProgrammingError):
            return failed(Kind.OTHER, message)
        kinds = (
            (_LOST, Kind.CONNECTION),
            (_TIME, Kind.TIME_LIMIT),
            (_PASSING, Kind.TRANSIENT),
            (_MEMORY, Kind.MEMORY),
            (_NO_TABLE, Kind.GONE),
            (_REFUSED, Kind.REFUSED),
            ({1064}, Kind.SYNTAX),
        )
        kind = next((kind for codes, kind in kinds if code in codes), Kind.OTHER)
        return failed(kind, message, code)

    def scratch_tables(self, prefix: str) -> list[str]:
        found = self._ask(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = %s AND LEFT(table_name, CHAR_LENGTH(%s)) = %s",
            (self.scratch[0], prefix, prefix),
        )
        return text_rows(found[0])

    def end_orphans(self, prefix: str) -> None:
        found, _ = self._ask(
            "SELECT id FROM information_schema.processlist"
            " WHERE id <> CONNECTION_ID() AND LOCATE(%s, info) > 0",
            (prefix,),
        )
        for (number,) in found:
            try:
                self.execute(f"KILL {int(number):d}")
            except pymysql.MySQLError as error:
                if error.args[0] != _NO_SUCH_THREAD:
                    raise

    def make_scratch(self) -> None:
        self.execute(f"CREATE DATABASE IF NOT EXISTS {self.quote(self.scratch[0])}")

    def use(self, catalog: str | None, schema: str | None) -> None:
        if name := schema or catalog:
            self.execute(f"USE {self.quote(name)}")

    def set(self, settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            self._ask(f"SET SESSION {self.quote(name)} = %s", (_number_or_text(value),))

    def read_only(self) -> None:
        self.execute("SET SESSION TRANSACTION READ ONLY")

    def create_as(self, table: str, query: str) -> str:
        """On MariaDB without transactions, in a third of the time: a result is written once, read, and dropped."""
        return f"CREATE TABLE {table}{self._storage} AS {query}"

    @property
    def survives_crashes(self) -> bool:
        return not self._storage

    @cached_property
    def _storage(self) -> str:
        if "MariaDB" not in self._connection.get_server_info():
            return ""
        (((enforced,),), _) = self._ask("SELECT @@enforce_storage_engine", None)
        return "" if enforced else " ENGINE=Aria TRANSACTIONAL=0 ROW_FORMAT=DYNAMIC"

    def _charsets(self, query: str, names: Sequence[str]) -> list[str]:
        """Of columns, which the metadata of a result tells as they are sent, not as they are."""
        if not names:
            return []
        asked = ", ".join(f"CHARSET(t.{self.quote(name)})" for name in names)
        # One row of NULL, whose charset is known without a row of the query.
        (found,), _ = self._ask(
            f"SELECT {asked} FROM (SELECT 1) AS one"
            f" LEFT JOIN (SELECT * FROM ({query}) AS q LIMIT 0) AS t ON TRUE",
            None,
        )
        return [str(name) for name in found]

    def _ask(
        self, sql: str, values: tuple[object, ...] | None
    ) -> tuple[list[tuple[Any, ...]], list[str]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall()), [field[0] for field in cursor.description or ()]


def _uncast(text: str) -> str:
    """What `scalar` cast."""
    return text.removeprefix("CAST(").removesuffix(" AS CHAR)")


def _number_or_text(value: str) -> object:
    return int(value) if value.lstrip("-").isdigit() else value


def _scalar(field: Any) -> Scalar:
    """The type of a column from the metadata of a result."""
    native = _NATIVE.get(field.type_code)
    if field.type_code == FIELD.NULL or (field.type_code == FIELD.STRING and not field.length):
        return Scalar("null", Unknown())
    if native is None:  # some kind of text or bytes
        native = "varbinary" if field.charsetnr == _BINARY_CHARSET else "varchar"
        if field.type_code == FIELD.STRING and not field.flags & (FLAG.ENUM | FLAG.SET):
            native = "binary" if native == "varbinary" else "char"
        return Scalar(native, canonical_type(native, native, None))
    if native == "bit":
        return Scalar(f"bit({field.length})", canonical_type(native, f"bit({field.length})", None))
    if native == "decimal":
        # The length counts the sign and the point; the scale is what values are printed with.
        precision = (
            field.length - (1 if field.scale else 0) - (0 if field.flags & FLAG.UNSIGNED else 1)
        )
        shown = f"decimal({precision},{field.scale})"
        return Scalar(shown, canonical_type(native, shown, field.scale), field.scale)
    fraction = None
    if native in _WITH_FRACTION:
        fraction = min(field.scale, 6)
    unsigned = " unsigned" if field.flags & FLAG.UNSIGNED and native.endswith("int") else ""
    return Scalar(native + unsigned, canonical_type(native, native, None), fraction)
