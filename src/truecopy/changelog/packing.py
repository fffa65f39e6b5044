"""Rows and events of one table on their way through Spark: by the slice of their keys, as the bytes of Arrow tables.

As rows of their own they would be taken apart and put together again at every step. So tasks read pieces, cut what a
point includes into slices, and Spark moves bytes; a slice is then settled by one task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.changelog.pieces import Piece
from truecopy.model.change import DELETE, INSERT, TRUNCATE
from truecopy.model.errors import CannotFinish
from truecopy.model.position import contains, parse_position

_TEXTS = pa.list_(pa.field("element", pa.string()))
PACKED = pa.schema(
    [
        ("key", _TEXTS),
        ("era", pa.int32()),
        ("batch", pa.int64()),
        ("commit_order", pa.int64()),
        ("seq", pa.int32()),
        ("kind", pa.string()),
        ("committed_at", pa.int64()),
        ("row", _TEXTS),
        ("left_out", pa.list_(pa.field("element", pa.int32()))),
        ("unsure", pa.string()),
    ]
)
"""`row` and `left_out` are in the columns of the definition that is wanted; `unsure` names one that no log tells."""

SNAPSHOT = "snapshot"
"""The kind of a base's rows, beside those of events."""

_READ = (
    "era",
    "batch",
    "commit_order",
    "seq",
    "kind",
    "committed_at",
    "position",
    "key",
    "after",
    "unchanged",
    "schema_id",
)

_BASE_SEQ = -1

Bound = tuple[int, int]
"""A batch, and the number of a transaction in it: the first that is not included."""

Order = tuple[int, int, int]
"""Batch, transaction and change."""


@dataclass(frozen=True)
class Cut:
    """What is wanted of a table's events: those of a point, after the table was last emptied.

    Attributes:
        bounds: By era, the first transaction that is not included.
        emptied: By era, the last time that the shard's table was emptied.
    """

    bounds: Mapping[int, Bound]
    emptied: Mapping[int, Order]

    def wants(self, rows: pa.Table) -> Any:
        """Which of some events it wants; rows of a base are told by their `seq`."""
        eras, batches, orders, seqs = (
            rows.column(name).to_numpy() for name in ("era", "batch", "commit_order", "seq")
        )
        found = seqs == _BASE_SEQ
        for era, (batch, order) in self.bounds.items():
            found |= (eras == era) & ((batches < batch) | ((batches == batch) & (orders < order)))
        for era, then in self.emptied.items():
            found &= (eras != era) | _later((batches, orders, seqs), then)
        return found


@dataclass(frozen=True)
class Layout:
    """How rows of one definition become rows of another.

    Attributes:
        places: Where each wanted column is; None where the definition has none such.
        key_places: Where each column of the wanted key is in the key.
        unsure: A wanted column that the rows lack though they had a value in it.
    """

    places: tuple[int | None, ...]
    key_places: tuple[int, ...]
    width: int
    unsure: str | None = None

    def row(self, after: pa.Array) -> pa.Array:
        if self.places == tuple(range(self.width)):
            return after
        columns = [
            pc.list_element(after, place)
            if place is not None
            else pa.nulls(len(after), pa.string())
            for place in self.places
        ]
        return _with_nulls(as_lists(columns, len(after)), after)

    def key(self, key: pa.Array) -> pa.Array:
        if self.key_places == tuple(range(len(self.key_places))):
            return key
        return as_lists([pc.list_element(key, place) for place in self.key_places], len(key))

    def left_out(self, unchanged: pa.Array) -> pa.Array:
        if unchanged.null_count == len(unchanged) or self.places == tuple(range(self.width)):
            return unchanged
        to = {place: at for at, place in enumerate(self.places) if place is not None}
        lists = [one and [to[p] for p in one if p in to] for one in unchanged.to_pylist()]
        return pa.array(lists, PACKED.field("left_out").type)


@dataclass(frozen=True)
class Gathering:
    """What executors need to read pieces of a table's log and to cut them into slices; plain values.

    Attributes:
        events, base: One for each task; the base's after the others.
        base_batch: Of the base, whose events are in it.
        cuts: What is wanted; an event is left out that none of them wants.
        copied_at: Of a table without a key, by era: the position of its copy, which holds what is before.
        done: Slices that are not wanted any more.
    """

    table: str
    events: Sequence[Piece]
    base: Sequence[Piece]
    base_batch: int
    cuts: Sequence[Cut]
    layouts: Mapping[str, Layout]
    copied_at: Mapping[int, str]
    keyed: bool
    slices: int
    done: frozenset[int] = frozenset()

    def __call__(self, number: int) -> Iterator[tuple[int, bytes]]:
        """The slices of one piece."""
        is_base = number >= len(self.events)
        for rows in [*self.events, *self.base][number].read(_READ):
            events = self._as_events(rows) if is_base else self._after_base(rows)
            yield from self._sliced(events.filter(pa.array(self._wants(events))))

    def _wants(self, rows: pa.Table) -> Any:
        return np.logical_or.reduce([cut.wants(rows) for cut in self.cuts])

    def _as_events(self, rows: pa.Table) -> pa.Table:
        """Rows of a base."""
        count = rows.num_rows
        for name, value in (("batch", self.base_batch), ("commit_order", -1), ("seq", _BASE_SEQ)):
            kind = PACKED.field(name).type
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), count))
        rows = rows.append_column("kind", pa.repeat(pa.scalar(SNAPSHOT), count))
        rows = rows.append_column("committed_at", pa.nulls(count, pa.int64()))
        return rows.append_column("unchanged", pa.nulls(count, PACKED.field("left_out").type))

    def _after_base(self, rows: pa.Table) -> pa.Table:
        """Events that the base does not hold, and that are of rows."""
        rows = rows.filter(pc.greater(rows.column("batch"), self.base_batch))
        rows = rows.filter(pc.not_equal(rows.column("kind"), TRUNCATE))
        for era, position in self.copied_at.items():
            of_others = pc.not_equal(rows.column("era"), era)
            rows = rows.filter(pc.or_(of_others, behind(rows.column("position"), position)))
        micros = rows.column("committed_at").cast(pa.int64())
        return rows.set_column(rows.schema.get_field_index("committed_at"), "committed_at", micros)

    def _sliced(self, rows: pa.Table) -> Iterator[tuple[int, bytes]]:
        for schema_id in pc.unique(rows.column("schema_id")).to_pylist():
            some = rows.filter(pc.equal(rows.column("schema_id"), schema_id)).combine_chunks()
            made = self._made(some, self.layouts[schema_id])
            numbers = slices_of(made.column("key" if self.keyed else "row"), self.slices)
            order = np.argsort(numbers, kind="stable")
            made = made.take(pa.array(order))
            cuts = np.flatnonzero(np.diff(numbers[order])) + 1
            starts = [0, *cuts.tolist()] if len(order) else []
            for start, end in zip(starts, [*cuts.tolist(), len(order)], strict=True):
                number = int(numbers[order[start]])
                if number not in self.done:
                    yield number, as_bytes(made.slice(start, end - start))

    def _made(self, rows: pa.Table, layout: Layout) -> pa.Table:
        after, key, unchanged = (_whole(rows.column(n)) for n in ("after", "key", "unchanged"))
        if not self.keyed:
            self._require_inserts(rows)
        columns: dict[str, Any] = {
            name: rows.column(name) for name in PACKED.names if name in rows.column_names
        }
        columns["key"] = layout.key(key)
        columns["row"] = layout.row(after)
        columns["left_out"] = layout.left_out(unchanged)
        columns["unsure"] = pa.repeat(pa.scalar(layout.unsure, pa.string()), rows.num_rows)
        return pa.table({name: columns[name] for name in PACKED.names}).cast(PACKED)

    def _require_inserts(self, rows: pa.Table) -> None:
        kinds = set(pc.unique(rows.column("kind")).to_pylist())
        if not kinds <= {INSERT, SNAPSHOT}:
            raise CannotFinish(
                f"{self.table} has no key, and a row of it was updated or deleted: which one cannot be told"
            )


@dataclass(frozen=True)
class Settling:
    """What executors need to make rows of the events of a slice; plain values."""

    table: str
    cuts: Sequence[Cut]
    ancestors: Mapping[int, frozenset[int]]
    keyed: bool

    def rows(self, packed: pa.Table, cut: int = 0) -> pa.Table:
        """The rows that are there after the events that a cut wants: `key`, `era` and `row`."""
        if len(self.cuts) > 1:
            packed = packed.filter(pa.array(self.cuts[cut].wants(packed)))
        if self.keyed and packed.num_rows:
            packed = self._lasts(packed)
            packed = packed.filter(pc.not_equal(packed.column("kind"), DELETE))
        unsure = pc.drop_null(packed.column("unsure"))
        if len(unsure):
            raise CannotFinish(
                f"{self.table}.{unsure[0].as_py()} was added with a value in every row, which no log tells: begin a log"
                " anew to restore points after that"
            )
        return packed.select(["key", "era", "row"])

    def _lasts(self, packed: pa.Table) -> pa.Table:
        """The last event of each key, in the shard that speaks for it."""
        packed = packed.combine_chunks()
        keys = codes_of_keys(packed.column("key"))
        eras = packed.column("era").to_numpy()
        pairs = keys
        if len(self.ancestors) > 1:
            pairs = np.unique(keys * (int(eras.max()) + 1) + eras, return_inverse=True)[1]
        times = [packed.column(name).to_numpy() for name in ("seq", "commit_order", "batch")]
        order = np.lexsort(times)
        last = np.zeros(int(pairs.max()) + 1, np.int64)
        last[pairs[order]] = order  # of several for one row, the last stays
        found = packed.take(pa.array(last))
        lengths = pc.fill_null(pc.list_value_length(packed.column("left_out")), 0)
        partial = np.unique(pairs[np.asarray(lengths) > 0])
        if len(partial):
            found = self._folded(packed, found, pairs, order, partial)
        if len(self.ancestors) > 1:
            found = found.take(pa.array(self._of_one_shard(found, keys[last])))
        return found

    def _folded(
        self, packed: pa.Table, found: pa.Table, pairs: Any, order: Any, partial: Any
    ) -> pa.Table:
        """Puts values that the log left out in from the event that told them last."""
        history = order[np.isin(pairs[order], partial)]
        told: dict[int, list[str | None]] = {}
        wanted = ["kind", "row", "left_out"]
        events = packed.select(wanted).take(pa.array(history)).to_pylist()
        for event, pair in zip(events, pairs[history].tolist(), strict=True):
            if event["kind"] == DELETE:
                told.pop(pair, None)
                continue
            row, left_out = event["row"], event["left_out"] or ()
            if left_out and event["kind"] == INSERT:
                raise CannotFinish(
                    f"a key of {self.table} was changed, and the log left out long values of the row: ALTER TABLE"
                    f" {self.table} REPLICA IDENTITY FULL on the source, and begin a log anew"
                )
            before = told.get(pair)
            if before is not None:
                row = [before[at] if at in left_out else text for at, text in enumerate(row)]
            told[pair] = row
        rows = found.column("row").to_pylist() if told else []
        for pair, row in told.items():
            rows[pair] = row
        if not told:
            return found
        place = found.schema.get_field_index("row")
        return found.set_column(place, PACKED.field("row"), pa.array(rows, _TEXTS))

    def _of_one_shard(self, found: pa.Table, keys: Any) -> Any:
        """Where several eras speak of a key: without those that others followed upon, the one that has the row."""
        counts = np.bincount(keys)
        chosen = np.flatnonzero(counts[keys] == 1).tolist()
        several: dict[int, list[int]] = {}
        for at in np.flatnonzero(counts[keys] > 1).tolist():
            several.setdefault(int(keys[at]), []).append(at)
        eras, kinds, times = (found.column(n).to_pylist() for n in ("era", "kind", "committed_at"))
        for places in several.values():
            followed = set[int]().union(*(self.ancestors[eras[at]] for at in places))
            speaking = [at for at in places if eras[at] not in followed]
            there = [at for at in speaking if kinds[at] != DELETE] or speaking
            chosen.append(max(there, key=lambda at: times[at] or 0))
        return np.array(chosen, np.int64)


def behind(positions: pa.ChunkedArray | pa.Array, position: str) -> pa.Array:
    """Which positions come after one; of many events few differ."""
    known = parse_position(position)
    coded = pc.dictionary_encode(_whole(positions))
    found = [not contains(known, parse_position(text)) for text in coded.dictionary.to_pylist()]
    return pc.take(pa.array(found, pa.bool_()), coded.indices)


def slices_of(lists: pa.ChunkedArray, slices: int) -> Any:
    """Which slice each key, or row, is of: the same in every process."""
    joined = pc.fill_null(pc.binary_join(_whole(lists), "\x1f"), "")
    hashes = pd.util.hash_array(joined.to_numpy(zero_copy_only=False))
    return (hashes % np.uint64(slices)).astype(np.int64)


def codes_of_keys(keys: pa.ChunkedArray) -> Any:
    """A number for each key, the same for equal ones."""
    whole = _whole(keys)
    width = pc.max(pc.list_value_length(whole)).as_py() or 0
    codes = np.zeros(len(whole), np.int64)
    for place in range(width):
        column = pc.dictionary_encode(pc.list_element(whole, place), null_encoding="encode")
        numbers = np.asarray(column.indices, np.int64)
        if not place:
            codes = numbers
            continue
        codes = codes * (int(numbers.max(initial=0)) + 1) + numbers
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return codes


def as_lists(columns: Sequence[pa.Array], count: int) -> pa.Array:
    """Row by row, the texts of several columns."""
    width = len(columns)
    if not width:
        return pa.array([[]] * count, _TEXTS)
    flat = pa.concat_arrays([column.cast(pa.string()) for column in columns])
    order = np.arange(width * count).reshape(width, count).T.ravel()
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width, pa.int32())
    return pa.ListArray.from_arrays(offsets, flat.take(pa.array(order)), type=_TEXTS)


def as_bytes(table: pa.Table) -> bytes:
    """A table as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def as_table(pieces: Sequence[bytes]) -> pa.Table:
    """The table of several such streams."""
    tables = [pa.ipc.open_stream(piece).read_all() for piece in pieces]
    return pa.concat_tables([PACKED.empty_table(), *tables])


def _with_nulls(lists: pa.Array, like: pa.Array) -> pa.Array:
    """Lists that are NULL where others are."""
    if not like.null_count:
        return lists
    return pc.if_else(like.is_valid(), lists, pa.nulls(len(lists), lists.type))


def _later(now: tuple[Any, Any, Any], then: Order) -> Any:
    batch, order, seq = now
    same_batch, same_order = batch == then[0], order == then[1]
    return (batch > then[0]) | (same_batch & ((order > then[1]) | (same_order & (seq > then[2]))))


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
