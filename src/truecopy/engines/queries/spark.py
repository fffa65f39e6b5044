"""Queries on Spark: the session of this process (`spark:///`), or a cluster by Spark Connect (`sc://`).

The path of the URL (`spark:///data/tpch`), or `tables=` for Spark Connect, names a folder whose
Parquet files and folders become views of the session, named as they are.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from truecopy.engines.queries.failure import Kind, QueryFailed, failed
from truecopy.engines.queries.session import (
    DEFAULT_SCRATCH,
    ROWS_AT_ONCE,
    QuerySession,
    text_rows,
)
from truecopy.engines.queries.texts import Texts
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.model.shape import ListOf, MapOf, QueryColumn, Scalar, Shape, StructOf
from truecopy.model.types import Decimal, Text, Type, Unsupported
from truecopy.sparksql.dialect import canonical_type, quote, text_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_WORDS = (
    (r"INTERRUPT|CANCELLED|cancelled", Kind.TIME_LIMIT),
    (r"OutOfMemory|CANNOT_ACQUIRE_MEMORY|UNABLE_TO_ACQUIRE_MEMORY", Kind.MEMORY),
    (
        r"UNAVAILABLE|Connection refused|INVALID_HANDLE|SESSION_CLOSED|SESSION_NOT_FOUND",
        Kind.CONNECTION,
    ),
    (r"Socket closed|ANSWER FROM JAVA|Connection reset", Kind.CONNECTION),
    (r"PARSE_SYNTAX_ERROR|ParseException", Kind.SYNTAX),
    (r"TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND|FAILED_READ_FILE", Kind.GONE),
    (r"FetchFailed|ExecutorLost|executor lost", Kind.TRANSIENT),
    (r"UNRESOLVED|DATATYPE_MISMATCH|AnalysisException", Kind.REFUSED),
)


class SparkTexts(Texts):
    """Texts by Spark's SQL."""

    def quote(self, name: str) -> str:
        return quote(name)

    def scalar(self, x: str, own: Scalar, kind: Type) -> str:
        if isinstance(own.type, Unsupported):
            return f"CAST({x} AS STRING)"
        return text_sql(x, own.type, kind)

    def rounded(self, x: str, own: Scalar, scale: int) -> str:
        digits = own.type.scale if isinstance(own.type, Decimal) else 0
        kept = min(scale, digits or 0)
        return text_sql(f"round({x}, {kept:d})", Decimal(kept), Decimal(scale))

    def concat(self, parts: Sequence[str]) -> str:
        return f"concat({', '.join(parts)})"

    def byte_length(self, text: str) -> str:
        return f"CAST(octet_length({text}) AS STRING)"

    def hash60(self, text: str) -> str:
        return f"CAST(conv(substr(sha2(CAST({text} AS BINARY), 256), 1, 15), 16, 10) AS BIGINT)"

    def own_hash(self, columns: Sequence[tuple[str, Scalar]]) -> str | None:
        if any("collate" in own.native for _, own in columns):
            return None
        # It passes over NULL, which must not be the same in another column.
        return f"xxhash64({', '.join(f'{x}, {x} IS NULL' for x, _ in columns)})"

    def total(self, x: str) -> str:
        return f"COALESCE(SUM(CAST({x} AS DECIMAL(38,0))), 0)"

    def special(self, x: str) -> tuple[str, str, str]:
        return f"isnan({x})", f"{x} = double('Infinity')", f"{x} = double('-Infinity')"

    def gather(self, x: str, variable: str, item: str, *, ordered: bool) -> str:
        texts = f"transform({x}, {variable} -> {item})"
        return f"array_join({texts if ordered else f'array_sort({texts})'}, '')"

    def size(self, x: str) -> str:
        return f"concat(array_size({x}), ':', array_size(array_compact({x})))"

    def list_sum(self, x: str) -> str:
        return f"aggregate({x}, double(0), (a, e) -> a + coalesce(double(e), double(0)))"


class SparkQueries(QuerySession):
    """A session of its own for settings, views and the current schema; the engine is shared."""

    dialect = "spark"
    serves_tasks = False

    def __init__(self, endpoint: Endpoint, scratch: str | None = None) -> None:
        super().__init__(endpoint)
        self.texts = SparkTexts()
        self.scratch = (scratch or DEFAULT_SCRATCH,)
        self.is_of_spark = endpoint.scheme == "spark"
        self._tag = f"truecopy-{uuid.uuid4().hex[:12]}"
        try:
            self._spark = _open(endpoint)
            self._register(
                endpoint.option("tables") or (endpoint.path if not endpoint.host else "")
            )
        except Exception as error:
            found = self.explained(error)
            if found is None:
                raise
            raise found from None

    def execute(self, sql: str) -> None:
        self.select(sql)

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        self._spark.addTag(
            self._tag
        )  # of this thread, which may not be the one that opened the session
        try:
            return [tuple(row) for row in self._spark.sql(sql).collect()]
        finally:
            self._spark.removeTag(self._tag)

    def stream(self, sql: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        self._spark.addTag(self._tag)
        try:
            rows = map(tuple, self._spark.sql(sql).toLocalIterator())
            while found := list(islice(rows, ROWS_AT_ONCE)):
                yield found
        finally:
            self._spark.removeTag(self._tag)

    def describe(self, query: str) -> tuple[QueryColumn, ...]:
        fields = self._spark.sql(query).schema.fields
        return tuple(QueryColumn(field.name, _shape(field.dataType)) for field in fields)

    def names(self, query: str) -> list[str]:
        return list(self._spark.sql(query).columns)

    def explain(self, query: str) -> str:
        return "\n".join(text_rows(self.select(f"EXPLAIN FORMATTED {query}")))

    def cancel(self) -> None:
        self._spark.interruptTag(self._tag)

    def close(self) -> None:
        if self.endpoint.scheme == "sc":
            self._spark.stop()

    def explained(self, error: Exception) -> QueryFailed | None:
        name = f"{type(error).__module__}.{type(error).__name__}"
        if not name.startswith(("pyspark", "py4j", "grpc")):
            return None
        text = str(error)
        kind = next(
            (kind for words, kind in _WORDS if re.search(words, f"{name} {text}")), Kind.OTHER
        )
        condition = getattr(error, "getCondition", None)
        code = (condition() if callable(condition) else "") or ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        # Errors of the JVM begin with the call that met them; the cause is behind the first colon.
        said = next((line[1:].strip() for line in lines if line.startswith(":")), None)
        return failed(kind, f"{self.endpoint}: {said or (lines[0] if lines else name)}", code)

    def scratch_tables(self, prefix: str) -> list[str]:
        name = self.quote(self.scratch[0])
        if not self.select(f"SHOW SCHEMAS LIKE '{self.scratch[0]}'"):
            return []
        found = [row[1] for row in self.select(f"SHOW TABLES IN {name}")]
        return [table for table in found if table.startswith(prefix)]

    def make_scratch(self) -> None:
        self.execute(f"CREATE SCHEMA IF NOT EXISTS {self.quote(self.scratch[0])}")

    def use(self, catalog: str | None, schema: str | None) -> None:
        names = [self.quote(name) for name in (catalog, schema) if name]
        if names:
            self.execute(f"USE {'.'.join(names)}")

    def set(self, settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            self._spark.conf.set(name, str(value))

    def create_as(self, table: str, query: str) -> str:
        return f"CREATE TABLE {table} USING parquet AS {query}"

    def storable(self, column: QueryColumn) -> str | None:
        """Parquet keeps neither columns that are all NULL nor spans of time."""
        shape = column.shape
        if isinstance(shape, Scalar) and (
            shape.native == "void" or shape.native.startswith(("interval", "variant"))
        ):
            return "CAST({} AS STRING)"
        return None

    def _register(self, folder: str) -> None:
        if not folder.strip("/"):
            return
        root = Path("/" + folder.lstrip("/"))  # two slashes would be a host to Hadoop
        if not root.is_dir():
            raise UsageError(f"{self.endpoint}: there is no folder {root} of Parquet files")
        self.makes_views = False  # a view that is kept may not read one of the session
        for path in sorted(root.iterdir()):
            if path.suffix == ".parquet" or path.is_dir():
                self._spark.read.parquet(str(path)).createOrReplaceTempView(path.stem)


def _open(endpoint: Endpoint) -> SparkSession:
    if endpoint.scheme != "sc":
        from truecopy.spark import session

        return session().newSession()
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    given = {"user_id": endpoint.user, "token": endpoint.password}
    options = {name: value for name, value in endpoint.options if name != "tables"}
    parameters = "".join(f";{k}={v}" for k, v in {**given, **options}.items() if v)
    url = f"sc://{endpoint.host}:{endpoint.port or 15002}/{parameters}"
    connected = ConnectSession.builder.remote(url).create()
    connected.conf.set("spark.sql.session.timeZone", "UTC")
    return cast("SparkSession", connected)  # the same methods, another class


def _shape(kind: DataType) -> Shape:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case ArrayType():
            return ListOf(_shape(kind.elementType))
        case MapType():
            return MapOf(_shape(kind.keyType), _shape(kind.valueType))
        case StructType():
            return StructOf(tuple((field.name, _shape(field.dataType)) for field in kind.fields))
    native = kind.simpleString()
    found = canonical_type(kind)
    if native.startswith("interval"):
        found = Text()
    return Scalar(native, found, found.scale if isinstance(found, Decimal) else None)
