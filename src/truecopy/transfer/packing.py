"""Changes on their way through Spark, thousands of them in one row, as the bytes of an Arrow table.

As rows of their own they would be taken apart and put together again at every step: read, kept, shuffled, sorted,
handed to Python. So Spark moves bytes, and sees of the changes only what it has to know to move them.

Changes of tables whose rows may be written in parallel are cut into slices by their keys. A slice keeps its
keys for as long as the task lives: how far each of them has come is what a run goes on from.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.model.change import CHANGE_SCHEMA
from truecopy.stream.changes import open_source
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

SLICES = 64
_GROUP = "shard", "table", "schema_id", "kind", "slice"
SHARED = _GROUP[:-1]
"""Columns that changes which are packed together share: they are beside the bytes, not in them."""
PACKED = pa.schema(
    [
        ("shard", pa.string()),
        ("table", pa.string()),
        ("schema_id", pa.string()),
        ("kind", pa.string()),
        ("slice", pa.int32()),
        ("commit_order", pa.int64()),
        ("position", pa.string()),
        ("committed_at", pa.int64()),
        ("left_out", pa.bool_()),
        ("payload", pa.binary()),
    ]
)
_PAYLOAD = PACKED.get_field_index("payload")
_ODD, _GOLDEN = np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C15)
_MOST_ROWS, _MOST_BYTES = 200_000, 64 << 20
"""What a worker gathers before it packs."""
_PIECE_ROWS = 50_000
_MOST_COLLECTED = 32 << 20
"""What comes to the driver at once; Spark fails a job whose results are more than `spark.driver.maxResultSize`."""
_NOT_WORTH_IT = "spark.sql.adaptive.enabled", "spark.sql.codegen.wholeStage"
"""To Spark a batch is some hundred rows, however many changes: planning again and making code take longer than it."""


@dataclass(frozen=True)
class Fact:
    """Changes of one kind that there are in a batch, and where the last of them stands.

    Attributes:
        left_out: Whether the log left out values that did not change.
        committed_at: Of the last one; microseconds since the epoch.
    """

    shard: str
    table: str | None
    schema_id: str | None
    kind: str
    commit_order: int
    position: str
    committed_at: int
    left_out: bool


@dataclass(frozen=True)
class Packed:
    """The changes of a batch.

    Attributes:
        frame: A row for changes of one kind, one definition and one slice of the keys, several for many of them.
        schema: Of the changes inside.
    """

    frame: DataFrame
    schema: StructType

    @cached_property
    def facts(self) -> list[Fact]:
        """What there is in the batch; of each kind once."""
        last: dict[tuple[object, ...], Fact] = {}
        for *values, _ in self._lines:
            fact = Fact(*values)
            group = fact.shard, fact.table, fact.schema_id, fact.kind, fact.left_out
            if group not in last or last[group].commit_order < fact.commit_order:
                last[group] = fact
        return list(last.values())

    @cached_property
    def _lines(self) -> list[Row]:
        """The fact and the size of each packed row."""
        names = Fact.__dataclass_fields__
        return self.frame.selectExpr(*names, "octet_length(payload)").collect()

    def rows(self) -> DataFrame:
        """A row for each change, with the columns that were packed."""
        return self._unpacked(self.schema)

    def pieces(self, *names: str) -> Iterator[pa.Table]:
        """Some columns of all changes, on the driver, some thousands at a time; the others stay packed."""
        inside = tuple(name for name in names if name not in SHARED)
        packed = self.frame.select(*SHARED, "payload")
        narrowed = packed.mapInArrow(cast(Any, Narrowing(inside)), packed.schema)
        waiting, rows = list[pa.Table](), 0
        for batch in self._collected(narrowed):
            for table in unpacked(batch):
                waiting.append(table.select(list(names)))
                rows += table.num_rows
                if rows >= _PIECE_ROWS:
                    yield pa.concat_tables(waiting)
                    waiting, rows = [], 0
        if waiting:
            yield pa.concat_tables(waiting)

    def _collected(self, narrowed: DataFrame) -> Iterator[pa.RecordBatch]:
        """What was made of the packed rows, on the driver: by one job, or some megabytes of a large batch by each."""
        size = sum(line[-1] for line in self._lines)
        if size <= _MOST_COLLECTED:
            yield from narrowed.toArrow().to_batches()
            return
        schema = pa.schema([PACKED.field(name) for name in (*SHARED, "payload")])
        for row in narrowed.repartition(-(-size // _MOST_COLLECTED)).toLocalIterator():
            yield pa.RecordBatch.from_pylist([row.asDict()], schema=schema)

    def _unpacked(self, schema: StructType) -> DataFrame:
        work: Any = Unpacking(tuple(schema.names))
        return self.frame.select(*SHARED, "payload").mapInArrow(work, schema)


Apply = Callable[[Packed, int], None]


def apply_each(
    spark: SparkSession, request: Request, start: str, columns: Sequence[str], apply: Apply
) -> DataStreamWriter:
    """A query that applies every batch of the change stream, read with some of its columns; not started."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from truecopy.transfer.packed_source import PackedSource

    schema = from_arrow_schema(pa.schema([CHANGE_SCHEMA.field(name) for name in columns]))

    def apply_kept(batch: DataFrame, number: int) -> None:
        for name in _NOT_WORTH_IT:
            batch.sparkSession.conf.set(name, "false")  # which is the session of this query alone
        with _kept(batch):
            apply(Packed(batch, schema), number)

    reader = open_source(spark, PackedSource, request, start, columns=tuple(columns))
    return reader.load().writeStream.foreachBatch(apply_kept)


@contextmanager
def packed(changes: DataFrame) -> Iterator[Packed]:
    """Changes that are rows, read once and kept while the block runs."""
    with _kept(pack(changes)) as frame:
        yield Packed(frame, changes.schema)


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


def pack(changes: DataFrame) -> DataFrame:
    """Packs rows of the change stream, or what a mapping has made of them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    work: Any = pack_batches
    return changes.mapInArrow(work, from_arrow_schema(PACKED))


def pack_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packs the changes of a Spark partition."""
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            yield _packed(pa.Table.from_batches(waiting))
            waiting, rows, size = [], 0, 0
    if rows:
        yield _packed(pa.Table.from_batches(waiting))


def unpacked(batch: pa.RecordBatch) -> Iterator[pa.Table]:
    """The changes of each packed row, shared columns included."""
    shared = [batch.column(name).to_pylist() for name in SHARED]
    for *values, payload in zip(*shared, batch.column("payload"), strict=True):
        with pa.ipc.open_stream(payload.as_buffer()) as reader:
            table = reader.read_all()
        for name, value in zip(SHARED, values, strict=True):
            table = table.append_column(
                name, pa.repeat(pa.scalar(value, pa.string()), table.num_rows)
            )
        yield table


@dataclass(frozen=True)
class Narrowing:
    """Leaves only some columns inside packed rows."""

    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            payloads = []
            for payload in batch.column("payload"):
                with pa.ipc.open_stream(payload.as_buffer()) as reader:
                    payloads.append(_bytes_of(reader.read_all().select(list(self.names))))
            place = batch.schema.get_field_index("payload")
            yield batch.set_column(place, "payload", pa.array(payloads, pa.binary()))


@dataclass(frozen=True)
class Unpacking:
    """Gives changes back as rows of their own."""

    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for table in unpacked(batch):
                yield from table.select(list(self.names)).to_batches()


def _packed(changes: pa.Table) -> pa.RecordBatch:
    changes = changes.combine_chunks()
    changes = changes.append_column("slice", pa.array(slices_of(changes), pa.int32()))
    groups = np.zeros(changes.num_rows, np.int64)
    for name in _GROUP:
        groups = codes_of(groups) * (1 << 24) + codes_of(changes.column(name).combine_chunks())
    order = np.argsort(groups, kind="stable")
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    changes = changes.take(order)
    inside = changes.drop_columns(list(_GROUP))
    lines: list[dict[str, object]] = []
    payloads, stops = pa.BufferOutputStream(), [0]
    for start, end in pairwise((0, *cuts.tolist(), changes.num_rows)):
        some = changes.slice(start, end - start)
        last = int(np.argmax(pc.fill_null(some.column("commit_order"), -1)))
        committed_at = some.column("committed_at")[last].cast(pa.int64()).as_py()
        lines.append(
            {name: some.column(name)[0].as_py() for name in _GROUP}
            | {name: some.column(name)[last].as_py() for name in ("commit_order", "position")}
            | {
                "committed_at": committed_at or 0,
                "left_out": _has_elements(some.column("unchanged")),
            }
        )
        _write(payloads, inside.slice(start, end - start))
        stops.append(payloads.tell())
    found = pa.RecordBatch.from_pylist(lines, schema=PACKED.remove(_PAYLOAD))
    ends = pa.py_buffer(np.array(stops, np.int32))
    whole = pa.Array.from_buffers(pa.binary(), len(lines), [None, ends, payloads.getvalue()])
    return pa.RecordBatch.from_arrays([*found.columns, whole], schema=PACKED)


def slices_of(changes: pa.Table) -> np.ndarray[Any, Any]:
    """Which slice of its table's keys each change is of: the same in every process, and for good."""
    tables = pc.dictionary_encode(changes.column("table").combine_chunks(), null_encoding="encode")
    names = [(name or "").encode() for name in tables.dictionary.to_pylist()]
    seeds = np.array([zlib.crc32(name) for name in names], np.uint64)
    hashes = _hashes(changes.column("key").combine_chunks())
    mixed = (hashes + seeds[np.asarray(tables.indices)]) * _GOLDEN
    found: np.ndarray[Any, Any] = mixed >> np.uint64(64 - SLICES.bit_length() + 1)
    return found.astype(np.int32)


def _hashes(keys: pa.Array) -> np.ndarray[Any, Any]:
    """A number for the bytes of each key: a polynomial of them, modulo 2 to the 64."""
    texts = pc.fill_null(keys.flatten(), "")
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    counts = np.asarray(pc.fill_null(pc.list_value_length(keys), 0), np.int64)
    stops = ends[np.cumsum(counts)].astype(np.int64) - ends[0]
    sizes = np.diff(stops, prepend=0)
    found = np.zeros(len(keys), np.uint64)
    filled = np.flatnonzero(sizes)
    if not len(filled):
        return found
    starts = (stops - sizes)[filled]
    letters = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].astype(np.uint64)
    places = np.arange(len(letters)) - np.repeat(starts, sizes[filled])
    powers = np.multiply.accumulate(np.full(int(sizes.max()), _ODD, np.uint64))
    found[filled] = np.add.reduceat(letters * powers[places], starts)
    return found


def codes_of(values: pa.Array | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A number for each value, the same for equal ones; NULL is one, too."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return np.asarray(pc.dictionary_encode(array, null_encoding="encode").indices, np.int64)


def _has_elements(lists: pa.ChunkedArray) -> bool:
    return bool((pc.max(pc.list_value_length(lists)).as_py() or 0) > 0)


def _bytes_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    _write(sink, table)
    return bytes(sink.getvalue().to_pybytes())


def _write(sink: pa.NativeFile, table: pa.Table) -> None:
    for place, column in enumerate(table.columns):
        # For a slice of lists without any text Arrow would write where all texts of the whole are.
        if pa.types.is_list(column.type) and column.null_count == len(column):
            table = table.set_column(place, table.field(place), pa.nulls(len(column), column.type))
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
