"""Tables that Spark reads: files in a folder (`lake:///path`), or the session's catalog (`lake://`).

No database stands behind them, so Spark computes canonical texts and fingerprints itself; the
frames are compared by whoever asked for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from truecopy import spark
from truecopy.engines.frames import fingerprinted
from truecopy.engines.lake_files import Files, folder_of, read_frame, tables_in
from truecopy.engines.protocols import Session
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.relation import Relation
from truecopy.model.table import Column, Table, TableName
from truecopy.model.text import canonical_text
from truecopy.model.types import Type, Unknown
from truecopy.sparksql.dialect import (
    canonical_sql,
    canonical_type,
    needs_python,
    quote,
)

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

_SHOWN = 20
_CHAR = "__CHAR_VARCHAR_TYPE_STRING"  # where Spark keeps that a string column was declared CHAR(n)


def open_lake(endpoint: Endpoint) -> Session:
    """With `format`, the tables that tasks keep in that format; else whatever Spark can read."""
    if not endpoint.option("format"):
        return Lake(endpoint)
    from truecopy.engines.lake_target import LakeTarget

    return LakeTarget(endpoint)


class Lake:
    """What one folder or one catalog holds; Spark itself is shared and stays when this closes."""

    driver_local = False

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        if endpoint.host:
            raise UsageError(
                f"{endpoint} has two slashes: write lake:///{endpoint.host}{endpoint.path}"
            )
        self._folder: Path | None = folder_of(endpoint) if endpoint.path.strip("/") else None
        self._spark = spark.session()
        zone = self._spark.conf.get("spark.sql.session.timeZone")
        if zone not in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00"):
            raise UsageError(f"the Spark session's time zone is {zone}: Truecopy reads in UTC")
        self._frames: dict[TableName, DataFrame] = {}

    def close(self) -> None:
        self._frames.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Introspection

    def tables(self) -> list[TableName]:
        if self._folder is not None:
            return [TableName(None, name) for name in tables_in(self._folder)]
        catalog = self._spark.catalog
        with explained(self.endpoint):
            return [
                TableName(database.name, table.name)
                for database in catalog.listDatabases()
                for table in catalog.listTables(database.name)
                if table.tableType not in ("VIEW", "TEMPORARY")
            ]

    def find(self, name: str) -> TableName | None:
        if self._folder is not None:
            files = tables_in(self._folder)
            if name in files:
                return TableName(None, name)
            whole = [known for known, found in files.items() if found.path.name == name]
            return TableName(None, whole[0]) if whole else None
        schema, _, table = name.rpartition(".")
        found = TableName(schema or None, table)
        with explained(self.endpoint):
            return found if self._spark.catalog.tableExists(_catalog_name(found)) else None

    def describe(self, name: TableName) -> Table:
        """A table, or a view of the catalog: Spark reads either; only tables that tasks keep have a key."""
        files = self._files(name)
        frame = self._frame(name)
        weak = files.weak_columns(frame.columns) if files else set()
        columns = tuple(_column(field, field.name in weak) for field in frame.schema.fields)
        with explained(self.endpoint):
            rows = files.counted_rows() if files else None
            count = frame.count() if rows is None else rows
        size = files.size() // max(count, 1) if files else 0
        keys = (files.key,) if files and files.key else ()
        return Table(name=name, columns=columns, keys=keys, rows=count, row_bytes=size or 100)

    def position(self) -> str | None:
        return None

    def query(self, statement: str, values: Sequence[object] = ()) -> pa.Table:
        """The result of a query on the session's catalog; parameters are written `?`."""
        with explained(self.endpoint):
            return self._spark.sql(statement, args=list(values)).toArrow()

    # Frames

    def row_frame(self, relation: Relation) -> DataFrame:
        from pyspark.sql import functions as F

        texts = self._texts(relation)
        if not relation.deferred:
            return texts
        kinds = {f"c{i}": relation.types[i] for i in relation.deferred}
        return texts.select(
            *(
                _python_text(kinds[name])(F.col(name)).alias(name) if name in kinds else F.col(name)
                for name in texts.columns
            )
        )

    def fingerprint_frame(self, relation: Relation) -> DataFrame:
        return fingerprinted(self._texts(relation), relation)

    def _texts(self, relation: Relation) -> DataFrame:
        """Canonical texts as `c0`, `c1`, …; documents still as they are written."""
        pairs = zip(relation.columns, relation.types, strict=True)
        texts = [_text(*pair).alias(f"c{i}") for i, pair in enumerate(pairs)]
        parts = []
        for table in relation.tables:
            frame = self._frame(table)
            with explained(self.endpoint):
                parts.append(
                    (frame.where(relation.where) if relation.where else frame).select(*texts)
                )
        return reduce(lambda one, other: one.unionAll(other), parts)

    def _files(self, name: TableName) -> Files | None:
        if self._folder is None:
            return None
        known = tables_in(self._folder)
        if name.table not in known:
            raise UsageError(f"there is no table {name} in {self.endpoint}{_list(list(known))}")
        return known[name.table]

    def _frame(self, name: TableName) -> DataFrame:
        if name not in self._frames:
            files = self._files(name)
            with explained(self.endpoint):
                if files:
                    self._frames[name] = read_frame(self._spark, files, self.endpoint)
                elif self._spark.catalog.tableExists(_catalog_name(name)):
                    self._frames[name] = self._spark.table(_catalog_name(name))
            if name not in self._frames:
                others = _list([str(table) for table in self.tables()])
                raise UsageError(f"there is no table {name} in the catalog of Spark{others}")
        return self._frames[name]


@contextmanager
def explained(endpoint: Endpoint) -> Iterator[None]:
    """Turns errors of Spark into one line: the innermost cause instead of the trace.

    A frame is read when it is used, so whoever uses it does so inside this.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise UsageError(f"{endpoint}: {_cause(str(error))}") from None
    except (PySparkException, Py4JJavaError, OSError) as error:
        raise CannotFinish(f"{endpoint}: {_cause(str(error))}") from None


def _cause(trace: str) -> str:
    causes = re.findall(r"^(?:Caused by: |: )[\w.$]+: (.+)$", trace, re.MULTILINE)
    line = causes[-1] if causes else trace.strip().partition("\n")[0]
    return re.sub(r"^\[[A-Z_.0-9]+\] |\s*SQLSTATE: .*$", "", line)


def _column(field: StructField, weak: bool) -> Column:
    declared = field.metadata.get(_CHAR, field.dataType.simpleString())
    return Column(
        name=field.name,
        type=Unknown() if weak else canonical_type(field.dataType),
        native=declared,
        nullable=True,
        weak=weak,
        padded=declared.startswith("char("),
    )


def _text(column: Column, kind: Type) -> Expression:
    from pyspark.sql import functions as F

    if needs_python(column, kind):
        return _python_text(kind)(F.col(quote(column.name)))
    return F.expr(canonical_sql(column, kind))


def _python_text(kind: Type) -> Callable[..., Expression]:
    """The model's own canonical text, for the few values whose text SQL cannot give."""
    from pyspark.sql.pandas.functions import arrow_udf

    def text(values: pa.Array) -> pa.Array:
        return pa.array([canonical_text(value, kind) for value in values.to_pylist()], pa.string())

    # Its overloads ask for a function type that pyspark, when it is given, warns about.
    made: Callable[..., Expression] = arrow_udf(text, "string")  # type: ignore[call-overload]
    return made


def _catalog_name(name: TableName) -> str:
    parts = [*(name.schema.split(".") if name.schema else []), name.table]
    return ".".join(quote(part) for part in parts)


def _list(names: list[str]) -> str:
    return f"; there are {', '.join(names)}" if 0 < len(names) <= _SHOWN else ""
