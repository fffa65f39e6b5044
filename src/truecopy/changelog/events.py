"""The files of events: their columns, how executors write them, and how Spark reads them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from truecopy.changelog.facts import NO_DAY, EventFile, event_name
from truecopy.changelog.stepping import own_name
from truecopy.engines.lake_tables import make_durable
from truecopy.model.change import CHANGE_SCHEMA, TRUNCATE
from truecopy.model.position import contains, parse_position
from truecopy.model.token import parse_origin
from truecopy.stream.log import Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT_SCHEMA = pa.schema(
    [
        *(one for one in CHANGE_SCHEMA if one.name != "table"),
        pa.field("batch", pa.int64()),
        pa.field("era", pa.int32()),
    ]
)
"""The columns of the stream, with `batch`, the log's own number that orders events of different batches, and `era`, the
number of the shard's time of serving; `table` is a folder's name."""

READ_SCHEMA = pa.schema([*EVENT_SCHEMA, ("table", pa.string()), ("day", pa.date32())])
"""What readers get: with the names of the folders that an event is in."""

_MOST_ROWS, _MOST_BYTES = 200_000, 64 << 20
"""What a worker gathers before it writes."""


@dataclass(frozen=True)
class WritingEvents:
    """What executors need to write the events of a batch; plain values.

    Attributes:
        parts: Of the source's logs, one for each task.
        eras: The number of each shard's era.
        databases: The database of each shard, which is left out of the names of its tables.
        reached: The last position of each shard that was read before: what came from there comes twice.
    """

    staged: str
    batch: int
    parts: Sequence[Part]
    eras: Mapping[str, int]
    databases: Mapping[str, str]
    reached: Mapping[str, str]

    def __call__(self, number: int) -> Iterator[EventFile]:
        """Writes the events of one part; gives the files."""
        gathered = Gathered(self, number)
        for batch in self.parts[number].read():
            news = without_known(batch, self.reached)
            if news.num_rows:
                yield from gathered.take(news)
        yield from gathered.end()


class Gathered:
    """Events of one part that wait to be written."""

    def __init__(self, writing: WritingEvents, number: int) -> None:
        self._writing = writing
        self._stem = f"{writing.batch:010d}-{number:04d}"
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = self._files = 0

    def take(self, batch: pa.RecordBatch) -> Iterator[EventFile]:
        self._waiting.append(batch)
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        if self._rows >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
            yield from self.end()

    def end(self) -> Iterator[EventFile]:
        if not self._waiting:
            return
        changes = pa.Table.from_batches(self._waiting)
        events = as_events(
            changes, self._writing.batch, self._writing.eras, self._writing.databases
        )
        self._waiting, self._rows, self._bytes = [], 0, 0
        events = events.append_column("day", days_of(events))
        for table in pc.unique(events.column("table")).to_pylist():
            of_table = events.filter(pc.equal(events.column("table"), table))
            for day in pc.unique(of_table.column("day")).to_pylist():
                is_it = (
                    pc.is_null(of_table.column("day"))
                    if day is None
                    else pc.equal(of_table.column("day"), day)
                )
                yield self._written(table, day, of_table.filter(is_it))

    def _written(self, table: str, day: date | None, events: pa.Table) -> EventFile:
        staged = Path(self._writing.staged) / f"{uuid.uuid4().hex}.parquet"
        size = write_events(events.select(EVENT_SCHEMA.names), staged)
        self._files += 1
        name = event_name(table, day, f"{self._stem}-{self._files:04d}")
        noted = file_of(events, name, table, self._writing.batch)
        return replace(noted, bytes=size, staged=staged.name)


def as_events(
    changes: pa.Table, batch: int, eras: Mapping[str, int], databases: Mapping[str, str]
) -> pa.Table:
    """Changes of a stream as a log has them: with `batch` and `era`, and tables by their own names."""
    shards = changes.column("shard").combine_chunks().dictionary_encode()
    names = shards.dictionary.to_pylist()
    numbers = pc.take(pa.array([eras[name] for name in names], pa.int32()), shards.indices)
    logged = changes.column("table").combine_chunks()
    for name in names:
        if database := databases.get(name, ""):
            coded = logged.dictionary_encode()
            own = [own_name(table, database) for table in coded.dictionary.to_pylist()]
            here = pc.equal(changes.column("shard").combine_chunks(), name)
            logged = pc.if_else(here, pc.take(pa.array(own, pa.string()), coded.indices), logged)
    place = changes.schema.get_field_index("table")
    batches = pa.repeat(pa.scalar(batch, pa.int64()), changes.num_rows)
    named = changes.set_column(place, "table", logged)
    return named.append_column("batch", batches).append_column("era", numbers)


def file_of(events: pa.Table, name: str, table: str, batch: int) -> EventFile:
    """What is noted of some events of one table and batch."""
    left_out = pc.max(pc.list_value_length(events.column("unchanged"))).as_py() or 0
    day = pc.max(days_of(events)).as_py()
    return EventFile(
        name,
        table,
        day.isoformat() if day else NO_DAY,
        batch,
        batch,
        events.num_rows,
        events.nbytes,
        left_out > 0,
        int(pc.sum(pc.equal(events.column("kind"), TRUNCATE)).as_py() or 0),
        tuple(sorted(filter(None, pc.unique(events.column("schema_id")).to_pylist()))),
    )


def days_of(events: pa.Table) -> pa.ChunkedArray:
    """The day of each event's commit, in UTC."""
    return pc.cast(events.column("committed_at"), pa.date32())


def write_events(events: pa.Table, path: Path) -> int:
    """Writes a file that survives a power cut; gives its size."""
    pq.write_table(events.cast(EVENT_SCHEMA), path, compression="zstd")
    make_durable(path)
    return path.stat().st_size


def read_files(spark: SparkSession, changes: Path, paths: Sequence[Path]) -> DataFrame:
    """The events of some files, with `table` and `day` from the names of their folders below `changes`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(READ_SCHEMA)
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", str(changes))
    return reader.parquet(*map(str, paths))


def without_known(batch: pa.RecordBatch, reached: Mapping[str, str]) -> pa.RecordBatch:
    """Without events that filtered replication brought, and that were read before where they came from."""
    origins = batch.column("origin")
    if origins.null_count == len(origins):
        return batch
    coded = pc.dictionary_encode(origins)
    known = [_is_known(text, reached) for text in coded.dictionary.to_pylist()]
    is_known = pc.fill_null(pc.take(pa.array(known, pa.bool_()), coded.indices), False)
    return batch.filter(pc.invert(is_known))


def _is_known(text: str, reached: Mapping[str, str]) -> bool:
    origin = parse_origin(text)
    position = reached.get(origin.shard)
    return position is not None and contains(parse_position(position), origin.position)
