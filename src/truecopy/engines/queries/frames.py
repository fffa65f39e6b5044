"""Large results as frames of Spark: read by its tasks where they can, else streamed into Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from truecopy.engines.queries.session import QuerySession, open_session
from truecopy.model.endpoint import Endpoint
from truecopy.spark import default_master, is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NUMBERS = ("h", "r", "n")


def can_spread(session: QuerySession, *, kept: bool) -> bool:
    """Whether tasks can read what this connection sees: on a cluster, only what is kept on a server."""
    return is_local(default_master()) or (kept and (session.serves_tasks or session.is_of_spark))


def frame_of(
    spark: SparkSession,
    session: QuerySession,
    statements: Sequence[str],
    texts: Sequence[str],
    folder: str,
    *,
    kept: bool,
) -> DataFrame:
    """The rows of statements that give the numbers `h`, `r`, `n` and texts.

    `kept` says that they read tables which outlive the connection: then tasks with connections of
    their own may read them.
    """
    if kept and session.is_of_spark:
        frames = [spark.sql(statement) for statement in statements]
        names = [f"CAST({name} AS BIGINT) AS {name}" for name in NUMBERS]
        return reduce(lambda one, other: one.union(other), frames).selectExpr(*names, *texts)
    schema = _schema(texts)
    if kept and session.serves_tasks:
        columns = ", ".join(
            [*(f"{name} bigint" for name in NUMBERS), *(f"{name} string" for name in texts)]
        )
        numbers = spark.range(0, len(statements), numPartitions=len(statements))
        read = partial(_read, session.endpoint, session.scratch[-1], tuple(statements), schema)
        return numbers.mapInArrow(read, columns)
    Path(folder).mkdir()
    for at, statement in enumerate(statements):
        with pq.ParquetWriter(Path(folder) / f"{at}.parquet", schema) as writer:
            for block in session.stream(statement):
                writer.write_batch(_batch(block, schema))
    return spark.read.parquet(folder)


def _read(
    endpoint: Endpoint,
    scratch: str,
    statements: Sequence[str],
    schema: pa.Schema,
    numbers: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    with open_session(endpoint, scratch) as session:
        for batch in numbers:
            for at in batch.column(0).to_pylist():
                for block in session.stream(statements[at]):
                    yield _batch(block, schema)


def _schema(texts: Sequence[str]) -> pa.Schema:
    numbers = [(name, pa.int64()) for name in NUMBERS]
    return pa.schema([*numbers, *((name, pa.string()) for name in texts)])


def _batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(
                [_value(value, number=field.type == pa.int64()) for value in column], field.type
            )
            for column, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )


def _value(value: Any, *, number: bool) -> int | str | None:
    if value is None:
        return None
    return int(value) if number else str(value)
