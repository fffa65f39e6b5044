"""Tables whose rows are made on their way: filtered, masked, cast, computed, merged.

No database can be asked for such rows, so Spark makes them again from the source, as the copy did. Where the
key arrives as it is, a row of the target leads back to its source row, and is looked at like any other.
Else (a masked key, merged tables) there is no way back, and the table is compared whole, class by class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from truecopy.engines import pool
from truecopy.engines.protocols import Reads
from truecopy.mapping.plan import Copied
from truecopy.model.errors import UsageError
from truecopy.model.relation import WHOLE, Chunk, Key, Relation
from truecopy.transfer.mapped import arriving
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof.keys import pack, restated, unpack
from truecopy.transfer.proof.verifier import Mismatch, Scene
from truecopy.verify.buckets import compare_by_buckets
from truecopy.verify.chunks import chunk_rows, chunks_between
from truecopy.verify.compare import only_keys
from truecopy.verify.differences import differing_columns, from_arrow
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Whole:
    """What a comparison of whole tables found."""

    rows: int
    found: int
    mismatches: tuple[Mismatch, ...]


def is_looked_up(plan: TablePlan) -> bool:
    """Whether a row can be looked at by its key on both sides; other tables are compared whole."""
    return bool(plan.source.key_width) and bool(source_key(plan))


def rows_arriving(
    spark: SparkSession | None, plan: TablePlan, relation: Relation, keys: Sequence[Key]
) -> pa.Table:
    """Rows of the source by the target's key, as they should arrive; with their `fingerprint`."""
    read = plan.read
    names = dict(zip(source_key(plan), range(relation.key_width), strict=True))
    places = [names[column.name] for column in read.key]
    texts = list(zip(*keys, strict=True))
    columns = [
        restated(pa.array(texts[place], pa.string()), relation.types[place], kind)
        for place, kind in zip(places, read.key_types, strict=True)
    ]
    wanted = unpack(pack(columns).to_pylist())
    with pool.lease(read.endpoint) as session:
        rows = only_keys(cast(Reads, session).rows_by_key(read, wanted), wanted, read.key_width)
    frame = _needed(spark, plan).createDataFrame(rows)
    found: pa.Table = arriving(frame, _seen_as(plan, relation)).toArrow()
    return found


def source_key(plan: TablePlan) -> tuple[str, ...]:
    """The source's columns that are the target's key, in its order; empty where they are not its key."""
    if not plan.is_mapped:
        return tuple(column.name for column in plan.source.key)
    origins = {column.name: column.origin for column in plan.mapping.columns}
    found = [origins[column.name] for column in plan.source.key]
    copied = [one.place for one in found if isinstance(one, Copied)]
    names = tuple(plan.mapping.source_columns[place].name for place in copied)
    whole = len(copied) == len(found) and set(names) == {c.name for c in plan.read.key}
    return names if whole and not plan.mapping.merged else ()


def kept_by(plan: TablePlan) -> str:
    """What the keys of its rows are: the columns, and the types in which both sides name them."""
    columns = zip(source_key(plan), plan.source.key_types, strict=True)
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def compare_mapped(scene: Scene, plans: Sequence[TablePlan], shown: int) -> Whole:
    """Compares mapped tables while nobody writes; those that merge into one target, together."""
    groups: dict[object, list[TablePlan]] = {}
    for plan in plans:
        groups.setdefault(plan.target.tables[0], []).append(plan)
    rows = found = 0
    named: list[Mismatch] = []
    for group in groups.values():
        for count, differences in differing(scene, group):
            rows += count
            found += differences.num_rows
            named += _named(group[0], differences.slice(0, max(shown - len(named), 0)))
    return Whole(rows, found, tuple(named))


def differing(scene: Scene, plans: Sequence[TablePlan]) -> Iterator[tuple[int, pa.Table]]:
    """Rows that were compared, and those that differ, of the sources of one target."""
    spark = _needed(scene.spark, plans[0])
    comparison = plans[0].comparison
    source: Any = MappedSource(spark, plans)
    with pool.lease(comparison.target.endpoint) as target:
        for result in compare_by_buckets(spark, comparison, 0, (source, target), Options()):
            yield result.source.count, result.table


class MappedSource:
    """The sources of one target as a session that Spark reads by (`engines.protocols.Frames`)."""

    driver_local = False

    def __init__(self, spark: SparkSession, plans: Sequence[TablePlan]) -> None:
        self._spark = spark
        self._plans = plans

    def row_frame(self, relation: Relation) -> DataFrame:
        return self._rows(relation).drop("fingerprint")

    def fingerprint_frame(self, relation: Relation) -> DataFrame:
        from pyspark.sql import functions as F

        keys = [F.col(f"c{i}").alias(f"k{i}") for i in range(relation.key_width)]
        return self._rows(relation).select(*keys, "fingerprint")

    def _rows(self, relation: Relation) -> DataFrame:
        frames = [self._arriving(plan, relation) for plan in self._plans]
        return reduce(lambda a, b: a.union(b), frames)

    def _arriving(self, plan: TablePlan, relation: Relation) -> DataFrame:
        chunks = _chunks(plan)
        columns = ", ".join(f"c{i} string" for i in range(len(plan.read.columns)))
        numbers = self._spark.range(0, len(chunks), numPartitions=len(chunks))
        rows = numbers.mapInArrow(partial(_read, plan.read, chunks), columns)
        return arriving(rows, _seen_as(plan, relation))


def _needed(spark: SparkSession | None, plan: TablePlan) -> SparkSession:
    if spark is None:
        raise UsageError(
            f"rows of {plan.source_name} are mapped: they can be compared by Spark only"
        )
    return spark


def _seen_as(plan: TablePlan, relation: Relation) -> TablePlan:
    """The plan with its rows in the types of a comparison by meaning."""
    return replace(plan, comparison=replace(plan.comparison, source=relation))


def _chunks(plan: TablePlan) -> list[Chunk]:
    read = plan.read
    if not read.key_width or not all(column.order for column in read.key):
        return [WHOLE]
    with pool.lease(read.endpoint) as session:
        rows = chunk_rows(plan.comparison, Options())
        return chunks_between(cast(Reads, session).boundaries(read, WHOLE, rows))


def _read(
    relation: Relation, chunks: Sequence[Chunk], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with pool.lease(relation.endpoint) as session:
                rows = cast(Reads, session).rows(relation, chunks[number])
            yield from rows.combine_chunks().to_batches()


def _named(plan: TablePlan, differences: pa.Table) -> list[Mismatch]:
    relation, names = plan.comparison.source, plan.comparison.column_names
    return [
        Mismatch(
            plan.source_name,
            one.kind,
            one.key,
            tuple(names[i] for i in differing_columns(one.source, one.target, relation.types, 0.0))
            if one.source and one.target
            else (),
            names[: len(one.key)],
        )
        for one in from_arrow(differences)
    ]
