"""Queries on Trino and Presto, by their own Python clients (`pip install 'truecopy[trino]'`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from truecopy.engines.queries.failure import Kind, QueryFailed, failed
from truecopy.engines.queries.native_types import read_shape
from truecopy.engines.queries.session import DEFAULT_SCRATCH, QuerySession, blocks, text_rows
from truecopy.engines.queries.texts import Texts
from truecopy.model.endpoint import Endpoint
from truecopy.model.shape import QueryColumn, Scalar, Shape
from truecopy.model.types import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Timestamp,
    Type,
    Unknown,
    Unsupported,
    Uuid,
)

_SIMPLE: dict[str, Type] = {
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint"), Integer()),
    **dict.fromkeys(("real", "double"), Float()),
    **dict.fromkeys(("varchar", "char"), Text()),
    "boolean": Boolean(),
    "date": Date(),
    "varbinary": Binary(),
    "uuid": Uuid(),
    "json": Json("trino"),
    "unknown": Unknown(),
}
_TIME = {"EXCEEDED_TIME_LIMIT", "USER_CANCELED"}
_MEMORY = re.compile("MEMORY")
_PASSING = re.compile("NO_NODES|WORKER|REMOTE|SERVER_S|PAGE_TRANSPORT|TOO_MANY_REQUESTS")


class TrinoTexts(Texts):
    """Texts by functions that Trino and Presto share."""

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def scalar(self, x: str, own: Scalar, kind: Type) -> str:
        match own.type, kind:
            case _, Float():
                return f"lower(to_hex(to_ieee754_64(CAST({x} AS DOUBLE) + 0e0)))"
            case Boolean(), _:
                return f"CASE WHEN {x} THEN '1' WHEN NOT {x} THEN '0' END"
            case Binary(), _:
                return f"lower(to_hex({x}))"
            case Json(), _:
                return f"json_format({x})"
            case Integer() | Decimal(), Decimal(None):
                plain = f"CAST({x} AS VARCHAR)"
                pointed = f"regexp_replace({plain}, '(\\.\\d*?)0+$', '$1')"
                return f"regexp_replace({pointed}, '\\.$', '')"
            case Integer() | Decimal(), Decimal(scale):
                return f"CAST(CAST({x} AS DECIMAL(38,{scale})) AS VARCHAR)"
            case Timestamp(zone=True), _:
                return (
                    f"format_datetime(at_timezone({x}, 'UTC'), 'yyyy-MM-dd HH:mm:ss.SSS') || '000'"
                )
            case Timestamp(), _:
                return f"date_format({x}, '%Y-%m-%d %H:%i:%s.%f')"
            case Text(), _:
                return f"rtrim(CAST({x} AS VARCHAR))" if own.native.startswith("char") else x
            case _:
                return f"CAST({x} AS VARCHAR)"

    def rounded(self, x: str, own: Scalar, scale: int) -> str:  # noqa: ARG002 - one way for all
        return f"CAST(CAST(round({x}, {scale:d}) AS DECIMAL(38,{scale:d})) AS VARCHAR)"

    def byte_length(self, text: str) -> str:
        return f"CAST(length(to_utf8({text})) AS VARCHAR)"

    def hash60(self, text: str) -> str:
        return f"from_base(substr(lower(to_hex(sha256(to_utf8({text})))), 1, 15), 16)"

    def total(self, x: str) -> str:
        return f"COALESCE(SUM(CAST({x} AS DECIMAL(38,0))), 0)"

    def special(self, x: str) -> tuple[str, str, str]:
        return f"is_nan({x})", f"{x} = infinity()", f"{x} = -infinity()"

    def gather(self, x: str, variable: str, item: str, *, ordered: bool) -> str:
        texts = f"transform({x}, {variable} -> {item})"
        return f"array_join({texts if ordered else f'array_sort({texts})'}, '')"

    def entry(self, x: str) -> tuple[str, str]:
        return f"{x}[1]", f"{x}[2]"

    def size(self, x: str) -> str:
        kept = f"filter({x}, e -> e IS NOT NULL)"
        return f"(CAST(cardinality({x}) AS VARCHAR) || ':' || CAST(cardinality({kept}) AS VARCHAR))"

    def list_sum(self, x: str) -> str:
        return f"reduce({x}, 0e0, (a, e) -> a + COALESCE(CAST(e AS DOUBLE), 0e0), a -> a)"


class TrinoQueries(QuerySession):
    """`trino://user@host:8080/catalog/schema`, and `presto://` likewise."""

    def __init__(self, endpoint: Endpoint, scratch: str | None = None) -> None:
        super().__init__(endpoint)
        self.dialect = endpoint.scheme
        self.texts = TrinoTexts()
        catalog, _, schema = endpoint.database.partition("/")
        self._catalog, self._schema = catalog, schema
        self.scratch = (catalog, scratch or DEFAULT_SCRATCH)
        self._settings: dict[str, str] = {}
        self._cpu = 0.0
        self._connect()

    def _connect(self) -> None:
        driver: Any = import_module("prestodb" if self.endpoint.scheme == "presto" else "trino")
        for part in ("dbapi", "auth", "exceptions"):
            import_module(f"{driver.__name__}.{part}")
        endpoint = self.endpoint
        login: dict[str, object] = {}
        if endpoint.password:
            login = {"auth": driver.auth.BasicAuthentication(endpoint.user, endpoint.password)}
        self._errors: tuple[type[Exception], ...] = (
            driver.exceptions.DatabaseError,
            driver.exceptions.Http503Error,
            OSError,
        )
        self._connection = driver.dbapi.connect(
            host=endpoint.host,
            port=endpoint.port or (443 if endpoint.password else 8080),
            user=endpoint.user or "truecopy",
            catalog=self._catalog or None,
            schema=self._schema or None,
            session_properties=self._settings,
            http_scheme="https" if endpoint.password else endpoint.option("http_scheme", "http"),
            **login,
        )
        self._cursor = self._connection.cursor()

    def execute(self, sql: str) -> None:
        self.select(sql)

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        self._cursor = self._connection.cursor()
        self._cursor.execute(sql)
        rows = [tuple(row) for row in self._cursor.fetchall()]
        self._cpu += ((getattr(self._cursor, "stats", None) or {}).get("cpuTimeMillis") or 0) / 1000
        return rows

    def stream(self, sql: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        self._cursor = self._connection.cursor()
        self._cursor.execute(sql)
        yield from blocks(self._cursor)

    def describe(self, query: str) -> tuple[QueryColumn, ...]:
        self.select(f"SELECT * FROM ({query}) AS t LIMIT 0")
        fields = self._cursor.description or ()
        return tuple(QueryColumn(field[0], shape_of(field[1])) for field in fields)

    def names(self, query: str) -> list[str]:
        self.select(query)
        return [field[0] for field in self._cursor.description or ()]

    def explain(self, query: str) -> str:
        return "\n".join(text_rows(self.select(f"EXPLAIN {query}")))

    def cancel(self) -> None:
        self._cursor.cancel()

    def close(self) -> None:
        self._connection.close()

    def explained(self, error: Exception) -> QueryFailed | None:
        if not isinstance(error, self._errors):
            return None
        name = str(getattr(error, "error_name", "") or "")
        if not name:
            return failed(Kind.CONNECTION, f"{self.endpoint}: {error}")
        if name in _TIME:
            kind = Kind.TIME_LIMIT
        elif _MEMORY.search(name):
            kind = Kind.MEMORY
        elif _PASSING.search(name):
            kind = Kind.TRANSIENT
        else:
            known = {"SYNTAX_ERROR": Kind.SYNTAX, "TABLE_NOT_FOUND": Kind.GONE}
            kind = known.get(
                name,
                Kind.REFUSED if "USER" in str(getattr(error, "error_type", "")) else Kind.OTHER,
            )
        return failed(kind, f"{self.endpoint}: {getattr(error, 'message', error)}", name)

    def scratch_tables(self, prefix: str) -> list[str]:
        catalog, schema = self.scratch
        found = self.select(
            f"SELECT table_name FROM {self.quote(catalog)}.information_schema.tables"
            f" WHERE table_schema = '{schema}'"
        )
        return [name for name in text_rows(found) if name.startswith(prefix)]

    def make_scratch(self) -> None:
        self.execute(f"CREATE SCHEMA IF NOT EXISTS {'.'.join(map(self.quote, self.scratch))}")

    def use(self, catalog: str | None, schema: str | None) -> None:
        self._catalog, self._schema = catalog or self._catalog, schema or self._schema
        self._connect()

    def set(self, settings: Mapping[str, str]) -> None:
        self._settings |= settings
        self._connect()

    def usage(self) -> tuple[float | None, int | None]:
        return self._cpu, self.memory_bound()

    def memory_bound(self) -> int | None:
        peak = (getattr(self._cursor, "stats", None) or {}).get("peakMemoryBytes")
        return None if peak is None else int(peak)


def shape_of(native: str) -> Shape:
    """The shape of a type as Trino and Presto print it."""
    return read_shape(native, _scalar)


def _scalar(native: str) -> Scalar:
    word = native.partition("(")[0].strip().lower()
    if match := re.fullmatch(r"decimal\(\d+,\s*(\d+)\)", native):
        return Scalar(native, Decimal(int(match[1])), int(match[1]))
    if word == "timestamp":
        return Scalar(native, Timestamp(zone="with time zone" in native))
    return Scalar(native, _SIMPLE.get(word, Unsupported(f"{native} has no canonical text")))
