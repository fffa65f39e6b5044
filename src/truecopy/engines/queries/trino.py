"""Queries on Trino and Presto, by their own Python clients (`pip install 'truecopy[trino]'`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from truecopy.engines.queries.failure import Kind, QueryFailed, failed
from truecopy.engines.queries.native_types import read_shape
from truecopy.engines.queries.session import DEFAULT_SCRATCH, QuerySession, blocks, text_rows
from truecopy.engines.queries.texts import Texts
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
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
_FRACTION = 6
_KINDS = (
    ("EXCEEDED_TIME_LIMIT", Kind.TIME_LIMIT),
    ("MEMORY", Kind.MEMORY),
    ("SYNTAX_ERROR", Kind.SYNTAX),
    ("TABLE_NOT_FOUND|SCHEMA_NOT_FOUND|DROPPED_DURING_QUERY", Kind.GONE),
    (
        "NO_NODES|WORKER|REMOTE|ABANDONED|SERVER_S|PAGE_TRANSPORT|TOO_MANY_REQUESTS",
        Kind.TRANSIENT,
    ),
)
_REFUSED = re.compile("error 40[13]")


class PrestoTexts(Texts):
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
                return self.moment(f"at_timezone({x}, 'UTC')")
            case Timestamp(), _:
                return self.moment(x)
            case Text(), _:
                return f"rtrim(CAST({x} AS VARCHAR))" if own.native.startswith("char") else x
            case _:
                return f"CAST({x} AS VARCHAR)"

    def moment(self, x: str) -> str:
        """A timestamp in its own zone, with six digits of a second, of which Presto has three."""
        return f"date_format({x}, '%Y-%m-%d %H:%i:%s.%f')"

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


class TrinoTexts(PrestoTexts):
    """Trino's functions of time cut to milliseconds; its casts do not."""

    def moment(self, x: str) -> str:
        return f"CAST(CAST({x} AS TIMESTAMP({_FRACTION})) AS VARCHAR)"


@dataclass(frozen=True)
class _Client:
    """What the two Python clients call differently.

    Attributes:
        failed: The error of a query that failed on the server.
        in_utc: What makes sessions be in UTC, as those of other engines are.
    """

    module: str
    failed: str
    in_utc: Mapping[str, object]
    texts: Texts


_CLIENTS = {
    "trino": _Client("trino", "TrinoQueryError", {"timezone": "UTC"}, TrinoTexts()),
    "presto": _Client(
        "prestodb",
        "PrestoQueryError",
        {"http_headers": {"X-Presto-Time-Zone": "UTC"}},
        PrestoTexts(),
    ),
}


class TrinoQueries(QuerySession):
    """`trino://user@host:8080/catalog/schema`, and `presto://` likewise."""

    def __init__(self, endpoint: Endpoint, scratch: str | None = None) -> None:
        super().__init__(endpoint)
        self.dialect = endpoint.scheme
        self._client = _CLIENTS[endpoint.scheme]
        self.texts = self._client.texts
        self._catalog, _, self._schema = endpoint.database.partition("/")
        if not self._catalog:
            raise UsageError(
                f"{endpoint} names no catalog: write {endpoint.scheme}://host:8080/catalog/schema"
            )
        self.scratch = (self._catalog, scratch or DEFAULT_SCRATCH)
        self._settings: dict[str, str] = {}
        self._cpu = 0.0
        self._cancelled: object = None
        self._driver: Any = import_module(self._client.module)
        for part in ("dbapi", "auth", "exceptions"):
            import_module(f"{self._client.module}.{part}")
        self._connect()

    def _connect(self) -> None:
        """Makes a connection of the client, which says nothing to the server yet."""
        endpoint, driver = self.endpoint, self._driver
        login: dict[str, object] = {}
        if endpoint.password:
            login = {"auth": driver.auth.BasicAuthentication(endpoint.user, endpoint.password)}
        self._connection = driver.dbapi.connect(
            host=endpoint.host,
            port=endpoint.port or (443 if endpoint.password else 8080),
            user=endpoint.user or "truecopy",
            catalog=self._catalog,
            schema=self._schema or None,
            session_properties=dict(self._settings),
            http_scheme="https" if endpoint.password else endpoint.option("http_scheme", "http"),
            **login,
            **self._client.in_utc,
        )
        self._cursor = self._connection.cursor()

    def execute(self, sql: str) -> None:
        self.select(sql)

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        self._cursor = self._connection.cursor()
        self._cursor.execute(sql)
        rows = [tuple(row) for row in self._cursor.fetchall()]
        if self._cancelled is self._cursor:  # the clients may take that for the end of the rows
            raise failed(Kind.TIME_LIMIT, f"cancelled on {self.endpoint}")
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
        self._cancelled = self._cursor
        self._cursor.cancel()

    def close(self) -> None:
        self._connection.close()

    def explained(self, error: Exception) -> QueryFailed | None:
        errors = self._driver.exceptions
        ours = (getattr(errors, self._client.failed), errors.Error, errors.HttpError, OSError)
        if not isinstance(error, ours):
            return None
        name = str(getattr(error, "error_name", "") or "")
        if not name:
            kind = Kind.REFUSED if _REFUSED.match(str(error)) else Kind.CONNECTION
            return failed(kind, f"{self.endpoint}: {error}")
        of_user = "USER" in str(getattr(error, "error_type", ""))
        kind = next(
            (kind for words, kind in _KINDS if re.search(words, name)),
            Kind.REFUSED if of_user else Kind.OTHER,
        )
        return failed(kind, f"{self.endpoint}: {getattr(error, 'message', error)}", name)

    def scratch_tables(self, prefix: str) -> list[str]:
        catalog, schema = self.scratch
        found = self.select(
            f"SELECT table_name FROM {self.quote(catalog)}.information_schema.tables"
            f" WHERE table_schema = '{schema.replace(chr(39), chr(39) * 2)}'"
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
        digits = re.search(r"\((\d+)\)", native)
        if digits and int(digits[1]) > _FRACTION:
            return Scalar(native, Unsupported(f"{native} is finer than microseconds"))
        return Scalar(native, Timestamp(zone="with time zone" in native))
    return Scalar(native, _SIMPLE.get(word, Unsupported(f"{native} has no canonical text")))
