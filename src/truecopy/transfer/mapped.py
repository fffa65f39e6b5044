"""The copy of tables whose rows are made by expressions: read by a task, made by Spark, written by the same task.

Nothing moves between machines on the way: each chunk is a partition of its own from its reading to its commit.
Only a table without a key is read by the driver, since its rows and their position must not come apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from truecopy.engines import pool
from truecopy.engines.frames import fingerprint_of
from truecopy.mapping.transformers import map_rows
from truecopy.mapping.typed import converted_sql
from truecopy.sparksql.dialect import quote
from truecopy.transfer.jobs import run_job
from truecopy.transfer.ledger import Overtaken
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.snapshot import Copied, CopyTask, Paced, read_chunk, write_chunk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DONE = "table string, rows long, seconds double, read_seconds double"


def copy_mapped(spark: SparkSession, pace: Paced) -> Iterator[Copied]:
    """Copies chunks of one table, each in a lane of its own."""
    while group := pace.next_group(per_lane=1):
        for copied in _copy_group(spark, group):
            pace.note(copied)
            yield copied


def _copy_group(spark: SparkSession, tasks: Sequence[CopyTask]) -> Iterator[Copied]:
    plan = tasks[0].plan
    numbers = spark.range(0, len(tasks), numPartitions=len(tasks))
    texts = ", ".join(f"c{i} string" for i in range(len(plan.read.columns)))
    read: _Read | _Reading = _Reading(tuple(tasks))
    position = None
    if plan.is_keyless:
        with pool.lease(plan.read.endpoint) as source:
            whole, position = read_chunk(cast(Any, source), tasks[0])
        read = _Read(whole.drop_columns(["fingerprint"]))
    made = arriving(numbers.mapInArrow(read, texts), plan)
    written = made.mapInArrow(_Writing(tuple(tasks), position), _DONE)
    for row in run_job(spark, written.collect):
        yield Copied(*row)


def arriving(rows: DataFrame, plan: TablePlan) -> DataFrame:
    """Rows of the source, as they are read, as rows of the target (`c0`, `c1`, …) with their `fingerprint`."""
    from pyspark.sql import functions as F

    names = [column.name for column in plan.read.columns]
    in_order = [
        F.col(f"c{names.index(c.name)}")
        if c.name in names
        else F.lit(None).cast("string").alias(c.name)
        for c in plan.mapping.source_columns
    ]
    made = map_rows(rows.select(*in_order), plan.mapping)
    kinds = {column.name: column.type for column in plan.mapping.columns}
    texts = [
        F.expr(converted_sql(quote(column.name), kinds[column.name], agreed)).alias(f"c{i}")
        for i, (column, agreed) in enumerate(
            zip(plan.source.columns, plan.source.types, strict=True)
        )
    ]
    return made.select(*texts).select("*", fingerprint_of(plan.source).alias("fingerprint"))


@dataclass(frozen=True)
class _Reading:
    """Reads the chunk whose number comes."""

    tasks: tuple[CopyTask, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task = self.tasks[number]
                with pool.lease(task.plan.read.endpoint) as source:
                    rows: pa.Table = cast(Any, source).rows(task.plan.read, task.chunk)
                yield from rows.combine_chunks().to_batches()


@dataclass(frozen=True)
class _Read:
    """Gives the rows of the only chunk, which were read already."""

    rows: pa.Table

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield from self.rows.combine_chunks().to_batches()


@dataclass(frozen=True)
class _Writing:
    """Writes the rows of a partition as the chunk of its number, of this position where they have one."""

    tasks: tuple[CopyTask, ...]
    position: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        begun = time.monotonic()
        context = TaskContext.get()
        assert context is not None
        task = self.tasks[context.partitionId()]
        found = list(batches)
        columns = [(f"c{i}", pa.string()) for i in range(len(task.plan.target.columns))]
        schema = pa.schema([*columns, ("fingerprint", pa.int64())])
        rows = pa.Table.from_batches(found, found[0].schema if found else schema)
        try:
            done = write_chunk(task, rows, begun, self.position)
        except Overtaken:
            done = Copied(task.plan.source_name, 0, 0.0)
        yield pa.RecordBatch.from_pylist([asdict(done)])
