"""Queries on DuckDB: the file is attached for reading only, and scratch tables live in memory.

So no statement, however it is written, can change the file; what outgrows memory goes to DuckDB's
own temporary files.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

from truecopy.engines.duckdb import file_of
from truecopy.engines.duckdb_dialect import DuckDBDialect, canonical_type
from truecopy.engines.duckdb_text import canonical
from truecopy.engines.queries.failure import Kind, QueryFailed, failed
from truecopy.engines.queries.native_types import read_shape
from truecopy.engines.queries.session import QuerySession, blocks, text_rows
from truecopy.engines.queries.texts import Texts
from truecopy.model.endpoint import Endpoint
from truecopy.model.shape import QueryColumn, Scalar
from truecopy.model.types import Decimal, Type, Unknown

_SOURCE = "source"
_KINDS: tuple[tuple[type[Exception], Kind], ...] = (
    (duckdb.InterruptException, Kind.TIME_LIMIT),
    (duckdb.OutOfMemoryException, Kind.MEMORY),
    (duckdb.ParserException, Kind.SYNTAX),
    (duckdb.TransactionException, Kind.TRANSIENT),
    (duckdb.ConnectionException, Kind.CONNECTION),
    (duckdb.IOException, Kind.TRANSIENT),
    (duckdb.CatalogException, Kind.GONE),
    (duckdb.BinderException, Kind.REFUSED),
    (duckdb.InvalidInputException, Kind.REFUSED),
    (duckdb.PermissionException, Kind.REFUSED),
)
_UNITS = {"bytes": 1, **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)}}
_lock = threading.Lock()


class DuckDBTexts(Texts):
    """Texts by the dialect of tables, and the functions of lists."""

    def __init__(self) -> None:
        self._dialect = DuckDBDialect()

    def quote(self, name: str) -> str:
        return self._dialect.quote(name)

    def scalar(self, x: str, own: Scalar, kind: Type) -> str:
        if isinstance(own.type, Unknown):  # NULL, and nothing else
            return f"CAST({x} AS VARCHAR)"
        return canonical(x, own.native, own.type, kind)

    def rounded(self, x: str, own: Scalar, scale: int) -> str:  # noqa: ARG002 - one way for all
        cast = f"CAST(round({x}, {scale:d}) AS DECIMAL(38,{scale:d}))"
        return canonical(cast, f"DECIMAL(38,{scale:d})", Decimal(scale), Decimal(scale))

    def joined(self, parts: Sequence[str]) -> str:
        return f"concat({', '.join(parts)})"  # which passes over NULL, for half of what `||` costs

    def byte_length(self, text: str) -> str:
        return self._dialect.byte_length(text)

    def hash60(self, text: str) -> str:
        return self._dialect.hash60(text)

    def own_hash(self, columns: Sequence[tuple[str, Scalar]]) -> str | None:
        return f"hash({', '.join(x for x, _ in columns)})"

    def special(self, x: str) -> tuple[str, str, str]:
        return f"isnan({x})", f"{x} = 'inf'::DOUBLE", f"{x} = '-inf'::DOUBLE"

    def field(self, x: str, name: str) -> str:
        return f"struct_extract({x}, '{name.replace(chr(39), chr(39) * 2)}')"

    def gather(self, x: str, variable: str, item: str, *, ordered: bool) -> str:
        texts = f"list_transform({x}, lambda {variable}: {item})"
        return f"array_to_string({texts if ordered else f'list_sort({texts})'}, '')"

    def size(self, x: str) -> str:
        return f"(len({x})::VARCHAR || ':' || list_count({x})::VARCHAR)"

    def list_sum(self, x: str) -> str:
        return f"(CASE WHEN {x} IS NULL THEN NULL ELSE COALESCE(list_sum({x}), 0)::DOUBLE END)"


class DuckDBQueries(QuerySession):
    """One connection to a database in memory, beside which the file is attached."""

    dialect = "duckdb"
    keeps_scratch = False
    serves_tasks = False

    def __init__(self, endpoint: Endpoint, scratch: str | None = None) -> None:
        super().__init__(endpoint)
        self.texts = DuckDBTexts()
        path = file_of(endpoint)
        with _lock:  # one instance for a file in one process, whatever attaches it
            self._connection = duckdb.connect(":memory:")
        quoted = str(path).replace("'", "''")
        self._connection.execute(
            f"SET TimeZone = 'UTC'; ATTACH '{quoted}' AS {_SOURCE} (READ_ONLY); USE {_SOURCE}"
        )
        self.scratch = ("memory", scratch or "main")

    def execute(self, sql: str) -> None:
        self._connection.execute(sql)

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def stream(self, sql: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        yield from blocks(self._connection.execute(sql))

    def describe(self, query: str) -> tuple[QueryColumn, ...]:
        found = self._connection.execute(f"DESCRIBE {query}").fetchall()
        return tuple(QueryColumn(row[0], read_shape(row[1], _scalar)) for row in found)

    def names(self, query: str) -> list[str]:
        self._connection.execute(query)
        return [str(field[0]) for field in self._connection.description or ()]

    def explain(self, query: str) -> str:
        found = self._connection.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchall()
        try:
            return _plan(json.loads(found[0][1]), 0)
        except (ValueError, TypeError, KeyError, IndexError):
            return "\n".join(text_rows([row[1:] for row in found]))

    def cancel(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def explained(self, error: Exception) -> QueryFailed | None:
        if not isinstance(error, duckdb.Error):
            return None
        kind = next((kind for cause, kind in _KINDS if isinstance(error, cause)), Kind.OTHER)
        said = str(error).partition("\n\nLINE ")[0]
        return failed(kind, f"{self.endpoint}: {said}", type(error).__name__)

    def scratch_tables(self, prefix: str) -> list[str]:
        found = self._connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'memory' AND schema_name = ?"
            " AND starts_with(table_name, ?)",
            [self.scratch[1], prefix],
        )
        return text_rows(found.fetchall())

    def make_scratch(self) -> None:
        self.execute(f"CREATE SCHEMA IF NOT EXISTS {'.'.join(map(self.quote, self.scratch))}")

    def use(self, catalog: str | None, schema: str | None) -> None:
        if catalog or schema:
            self.execute(f"USE {self.quote(catalog or _SOURCE)}.{self.quote(schema or 'main')}")

    def set(self, settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            self.execute(f"SET {name} = '{str(value).replace(chr(39), chr(39) * 2)}'")

    def usage(self) -> tuple[float | None, int | None]:
        """It computes in this process: exact while nothing else does."""
        found = self._connection.execute(
            "SELECT SUM(memory_usage_bytes) FROM duckdb_memory()"
        ).fetchone()
        return time.process_time(), int(found[0]) if found and found[0] is not None else None

    def memory_bound(self) -> int | None:
        """Its limit: what it held is given back by now."""
        found = self._connection.execute("SELECT current_setting('memory_limit')").fetchone()
        number, _, unit = str(found[0] if found else "").partition(" ")
        if unit not in _UNITS:
            return None
        return int(float(number) * _UNITS[unit])


def _scalar(native: str) -> Scalar:
    if native.strip('"') == "NULL":
        return Scalar("NULL", Unknown())
    kind = canonical_type(native)
    return Scalar(native, kind, kind.scale if isinstance(kind, Decimal) else None)


def _plan(nodes: list[dict[str, Any]], depth: int) -> str:
    lines = []
    for node in nodes:
        extra = ", ".join(
            f"{name}: {value}" for name, value in (node.get("extra_info") or {}).items()
        )
        lines.append(f"{'  ' * depth}{node['name']}{f' ({extra})' if extra else ''}")
        lines += [_plan(node.get("children") or [], depth + 1)]
    return "\n".join(line for line in lines if line)
