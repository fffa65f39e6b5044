"""A table as it was at a point: its base, and the last event of each row up to there.

Nothing of it comes to the driver. Where several shards speak of a key, those that took over from others count;
of shards that serve side by side, the one that has the row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from truecopy.changelog.facts import Base, BaseTable, EventFile
from truecopy.changelog.log import Log
from truecopy.changelog.packing import Cut, Gathering, Layout, Order, Settling, as_table
from truecopy.changelog.points import PointInLog
from truecopy.model.change import TRUNCATE, Definition
from truecopy.model.errors import CannotFinish

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

_SLICE_ROWS, _SLICE_BYTES, _MOST_SLICES = 50_000, 4 << 20, 4096

Take = Callable[[int, Settling, pa.Table], Iterator[Any]]
"""Gets the number of a slice, what makes rows of events, and the events; gives what is wanted of them."""


@dataclass(frozen=True)
class _Slice:
    """Settles the slices of a Spark partition, one after the other; plain values."""

    settling: Settling
    take: Take

    def __call__(self, pairs: Iterable[tuple[int, bytes]]) -> Iterator[Any]:
        for number, some in groupby(pairs, itemgetter(0)):
            yield from self.take(number, self.settling, as_table([piece for _, piece in some]))


class TableLog:
    """What a log has of one table, from a base on."""

    def __init__(self, store: Log, spark: SparkSession, table: str, base: Base) -> None:
        self._store = store
        self._spark = spark
        self._base = base
        self.table = table
        self.files: list[EventFile] = store.files(table, after=base.batch)
        lines = store.base_tables(base.number)
        self.lines: list[BaseTable] = [one for one in lines if one.table == table]
        ids = {one.schema_id for one in self.lines}.union(*(file.schema_ids for file in self.files))
        self._definitions = {schema_id: store.definition(schema_id) for schema_id in ids}
        self.engine = next((one.engine for one in lines if one.engine), "")

    @property
    def slices(self) -> int:
        """Slices that fit into the memory of a worker each."""
        chunks = self._store.chunks(self._base.number, self.table)
        rows = sum(file.rows for file in self.files) + sum(chunk.rows or 0 for chunk in chunks)
        size = sum(file.bytes for file in self.files)
        return min(max(rows // _SLICE_ROWS, size // _SLICE_BYTES) + 1, _MOST_SLICES)

    def events(self, point: PointInLog) -> DataFrame:
        """Those that are put upon the base, up to the point."""
        events = self._store.marks(self._spark, self.files)
        return events.where(events["batch"] > self._base.batch).where(point.includes())

    def settled(
        self,
        points: Sequence[PointInLog],
        final: Definition,
        slices: int,
        take: Take,
        *,
        done: Collection[int] = (),
        is_alone: bool = False,
    ) -> RDD[Any]:
        """What is wanted of each slice that has events, or rows, that one of the points includes.

        Args:
            points: One or more.
            final: The definition in which rows are wanted.
            slices: How many there are.
            take: What becomes of a slice.
            done: Slices that are passed over.
            is_alone: One slice after the other.
        """
        events = self._store.event_pieces(self.files)
        base = self._store.base_pieces(self._base.number, self.table)
        cuts = [Cut(dict(point.bounds), self._emptied(point)) for point in points]
        keyed = bool(final.key)
        gathering = Gathering(
            self.table,
            events,
            base,
            self._base.batch,
            cuts,
            {schema_id: self._layout(schema_id, final) for schema_id in self._definitions},
            {} if keyed else {one.era: one.position for one in self.lines if one.position},
            keyed,
            slices,
            frozenset(done),
        )
        ancestors = {era.number: era.ancestors for era in self._store.eras()}
        context, count = self._spark.sparkContext, len(events) + len(base)
        lanes = max(min(count, 8 * context.defaultParallelism), 1)
        sliced = (
            context.parallelize(range(count), lanes).flatMap(gathering).partitionBy(slices, int)
        )
        # Each slice is a partition of its own, so that those of a joined one come one after the other.
        joined = sliced.coalesce(1) if is_alone else sliced
        return joined.mapPartitions(_Slice(Settling(self.table, cuts, ancestors, keyed), take))

    # Definitions

    def definition(self, point: PointInLog) -> Definition:
        """The one that the last event up to the point was made under."""
        from pyspark.sql import functions as F

        first = self.lines[0].schema_id if self.lines else None
        logged = sorted({schema_id for file in self.files for schema_id in file.schema_ids})
        declared = {
            tuple((c.name, c.native) for c in self._definitions[one].columns) for one in logged
        }
        if len(declared) > 1:
            events = self.events(point).where(F.col("schema_id").isNotNull())
            order = F.struct("batch", "commit_order", "seq")
            last = events.agg(F.max_by("schema_id", order)).first()
            if last is not None and last[0] is not None:
                return self._definitions[last[0]]
        chosen = [*logged, first] if len(declared) == 1 else [first, *logged]
        return self._definitions[next(one for one in chosen if one is not None)]

    def _layout(self, schema_id: str, final: Definition) -> Layout:
        mine = self._definitions[schema_id]
        names, key = ([name.lower() for name in some] for some in (mine.names, mine.key))
        wanted = [name.lower() for name in final.key]
        if sorted(key) != sorted(wanted):
            raise CannotFinish(
                f"the key of {self.table} was changed from {', '.join(key) or 'none'} to {', '.join(wanted) or 'none'}:"
                " events of both cannot be put upon each other"
            )
        gaps = {name.lower() for some in self._store.gaps(self.table).values() for name in some}
        lacking = [name for name in final.names if name.lower() not in names]
        return Layout(
            tuple(names.index(n.lower()) if n.lower() in names else None for n in final.names),
            tuple(key.index(name) for name in wanted),
            len(names),
            next((name for name in lacking if name.lower() in gaps), None),
        )

    def _emptied(self, point: PointInLog) -> dict[int, Order]:
        """The last time that each shard's table was emptied."""
        from pyspark.sql import functions as F

        if not any(file.truncates for file in self.files):
            return {}
        events = self.events(point).where(F.col("kind") == TRUNCATE)
        last = F.max(F.struct("batch", "commit_order", "seq")).alias("last")
        rows = events.groupBy("era").agg(last).collect()
        found: dict[int, Order] = {row["era"]: tuple(row["last"]) for row in rows}
        for era in self._store.eras():
            if era.number in found and era.ancestors:
                raise CannotFinish(
                    f"{self.table} was truncated on shard {era.shard}, which took over from others: which of their rows"
                    " were its own cannot be told"
                )
        return found
