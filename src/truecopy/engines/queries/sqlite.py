"""Queries on SQLite: the file is opened for reading only, and scratch tables live in memory.

SQLite has no hash and no type of a result: both are made here, by functions that are registered
with the connection, and by a look at what the values are.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from truecopy.engines.queries.failure import Kind, QueryFailed, failed
from truecopy.engines.queries.session import QuerySession, blocks, text_rows
from truecopy.engines.queries.texts import Texts
from truecopy.engines.sqlite import open_file
from truecopy.model.endpoint import Endpoint
from truecopy.model.shape import QueryColumn, Scalar
from truecopy.model.text import canonical_text
from truecopy.model.types import (
    Binary,
    Decimal,
    Float,
    Integer,
    Text,
    Type,
    Unknown,
    parse_type,
    type_name,
)

_SCRATCH = "truecopy_scratch"


class SQLiteTexts(Texts):
    """Texts by functions in Python: `truecopy.model.text` decides."""

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def scalar(self, x: str, own: Scalar, kind: Type) -> str:  # noqa: ARG002 - any value in any column
        return f"truecopy_text({x}, '{_word(kind)}')"

    def number(self, x: str, own: Scalar) -> str:  # noqa: ARG002 - likewise
        return f"CAST({x} AS REAL)"

    def rounded(self, x: str, own: Scalar, scale: int) -> str:
        return self.scalar(f"round({x}, {scale:d})", own, Decimal(scale))

    def byte_length(self, text: str) -> str:
        return f"CAST(length(CAST({text} AS BLOB)) AS TEXT)"

    def hash60(self, text: str) -> str:
        return f"truecopy_hash({text})"

    def total(self, x: str) -> str:
        return f"COALESCE(truecopy_total({x}), 0)"  # SUM overflows

    def special(self, x: str) -> tuple[str, str, str]:
        """A number that is none is NULL here."""
        return "FALSE", f"{x} = 9e999", f"{x} = -9e999"


class SQLiteQueries(QuerySession):
    """One connection that reads a file, with a scratch database of its own in memory."""

    dialect = "sqlite"
    keeps_scratch = False
    serves_tasks = False
    makes_views = False
    describes_cheaply = False

    def __init__(self, endpoint: Endpoint, scratch: str | None = None) -> None:
        super().__init__(endpoint)
        self.texts = SQLiteTexts()
        self.scratch = (scratch or _SCRATCH,)
        self._connection = open_file(endpoint, "ro")
        self._connection.create_function("truecopy_text", 2, _text, deterministic=True)
        self._connection.create_function("truecopy_hash", 1, _hash60, deterministic=True)
        self._connection.create_aggregate("truecopy_total", 1, _Total)  # type: ignore[arg-type]
        self._connection.execute(f"ATTACH ':memory:' AS {self.quote(self.scratch[0])}")

    def execute(self, sql: str) -> None:
        self._connection.execute(sql).fetchall()

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def stream(self, sql: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        yield from blocks(self._connection.execute(sql))

    def describe(self, query: str) -> tuple[QueryColumn, ...]:
        """What the values are: one look at all of them."""
        names = self.names(f"SELECT * FROM ({query}) LIMIT 0")
        if not names:
            return ()
        kinds = ", ".join(f"group_concat(DISTINCT typeof({self.quote(name)}))" for name in names)
        (found,) = self.select(f"SELECT {kinds} FROM ({query})")
        return tuple(
            QueryColumn(name, _of_values(text or ""))
            for name, text in zip(names, found, strict=True)
        )

    def names(self, query: str) -> list[str]:
        return [field[0] for field in self._connection.execute(query).description or ()]

    def explain(self, query: str) -> str:
        rows = self.select(f"EXPLAIN QUERY PLAN {query}")
        return "\n".join(text_rows([row[3:] for row in rows]))

    def cancel(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def explained(self, error: Exception) -> QueryFailed | None:
        if not isinstance(error, sqlite3.Error):
            return None
        message = str(error)
        kinds = (
            ("interrupted", Kind.TIME_LIMIT),
            ("locked", Kind.TRANSIENT),
            ("busy", Kind.TRANSIENT),
            ("no such table", Kind.GONE),
            ("syntax error", Kind.SYNTAX),
            ("out of memory", Kind.MEMORY),
            ("readonly", Kind.REFUSED),
            ("no such", Kind.REFUSED),
        )
        kind = next((kind for words, kind in kinds if words in message), Kind.OTHER)
        code = getattr(error, "sqlite_errorname", "")
        return failed(kind, f"{self.endpoint}: {message}", code)

    def scratch_tables(self, prefix: str) -> list[str]:
        found = self._connection.execute(
            f"SELECT name FROM {self.quote(self.scratch[0])}.sqlite_schema"
            " WHERE substr(name, 1, length(?)) = ?",
            (prefix, prefix),
        )
        return text_rows(found.fetchall())

    def make_scratch(self) -> None:
        """It was attached when the file was opened."""

    def use(self, catalog: str | None, schema: str | None) -> None:
        """A file has one schema."""

    def set(self, settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            self.execute(
                f"PRAGMA {self.quote(name)} = '{str(value).replace(chr(39), chr(39) * 2)}'"
            )

    def usage(self) -> tuple[float | None, int | None]:
        return time.process_time(), None


class _Total:
    def __init__(self) -> None:
        self.sum = 0

    def step(self, value: int | None) -> None:
        self.sum += value or 0

    def finalize(self) -> str:
        return str(self.sum)


def _hash60(text: object) -> int | None:
    if text is None:
        return None
    data = text if isinstance(text, bytes) else str(text).encode()
    return int.from_bytes(sha256(data).digest()[:8], "big") >> 4


def _text(value: object, word: str) -> str | None:
    return canonical_text(value, _kind(word))


def _word(kind: Type) -> str:
    match kind:
        case Decimal(None):
            return "decimal"
        case _:
            return type_name(kind)


def _kind(word: str) -> Type:
    return parse_type(word)


def _of_values(kinds: str) -> Scalar:
    found = set(kinds.split(",")) - {"null", ""}
    if not found:
        return Scalar("null", Unknown())
    if found == {"integer"}:
        return Scalar("integer", Integer())
    if found <= {"integer", "real"}:
        return Scalar("real", Float())
    if found == {"blob"}:
        return Scalar("blob", Binary())
    # Dates, times and decimals are kept as text: what such text means the other side says.
    return Scalar("text", Text() if found == {"text"} else Unknown(), weak=True)
