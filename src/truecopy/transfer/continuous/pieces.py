"""What a worker gets of a round, put together: pieces of packed changes, and pending rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.transfer.apply import as_effects
from truecopy.transfer.continuous.compare import Check
from truecopy.transfer.continuous.entries import CHANGE, ENTRIES, from_bytes
from truecopy.transfer.packing import SHARED

INPUT = pa.schema(
    [
        ("part", pa.string()),
        ("turn", pa.int64()),
        ("shard", pa.string()),
        ("table", pa.string()),
        ("schema_id", pa.string()),
        ("kind", pa.string()),
        ("slice", pa.int32()),
        ("payload", pa.binary()),
    ]
)
"""Packed changes with the number of their batch, and pending rows, which have none."""

TURN = 1 << 40
"""More than a batch has transactions, which are numbered anew in each."""


class Line(NamedTuple):
    """A row of the input; see `INPUT`."""

    part: str
    turn: int | None
    shared: tuple[str, ...]
    slice: int | None
    payload: pa.Buffer


def lines_in(batch: pa.RecordBatch) -> Iterator[Line]:
    """The rows of a piece of the input."""
    shared = zip(*(batch.column(name).to_pylist() for name in SHARED), strict=True)
    parts, turns, slices = (batch.column(name).to_pylist() for name in ("part", "turn", "slice"))
    payloads = (payload.as_buffer() for payload in batch.column("payload"))
    yield from map(Line, parts, turns, shared, slices, payloads)


class _Piece(NamedTuple):
    """Changes of one batch and one slice that share the rest as well."""

    table: pa.Table
    turn: int
    slice: int


class Group:
    """Whole parts that are looked at together.

    There are hundreds of pieces: they are only put together here, and worked on as one.
    """

    def __init__(self) -> None:
        self.parts: dict[str, None] = {}
        self.rows = self.size = 0
        self._entries: list[pa.Table] = []
        self._pieces: dict[tuple[str, ...], list[_Piece]] = {}

    def add(self, line: Line) -> None:
        """Takes a line up; those of a part come one after the other."""
        self.parts[line.part] = None
        table = from_bytes(line.payload)
        self.rows += table.num_rows
        self.size += table.nbytes  # of what is held here: the payload may be a small part of that
        if line.turn is None or line.slice is None:
            self._entries.append(table)
        else:
            piece = _Piece(table, line.turn, line.slice)
            self._pieces.setdefault(line.shared, []).append(piece)

    def is_full(self, rows: int, size: int) -> bool:
        """Whether there are so many rows, or bytes, by now."""
        return self.rows >= rows or self.size >= size

    def entries(self, checks: Mapping[str, Check]) -> tuple[pa.Table, pa.Table]:
        """Rows that are pending, and those of tables that stand still, which are kept as they are."""
        table = pa.concat_tables([ENTRIES.empty_table(), *self._entries])
        known = pa.array(list(checks), pa.string())
        goes_on = pc.is_in(table.column("schema_id"), value_set=known)
        return table.filter(goes_on), table.filter(pc.invert(goes_on))

    def changes(self, checks: Mapping[str, Check]) -> pa.Table:
        """The new changes, as `CHANGE`, in any order; without those of tables that stand still since they were held."""
        at = SHARED.index("schema_id")
        goes_on = {shared: some for shared, some in self._pieces.items() if shared[at] in checks}
        made = (_changes(shared, pieces) for shared, pieces in goes_on.items())
        return pa.concat_tables([CHANGE.empty_table(), *made])


def _changes(shared: tuple[str, ...], pieces: Sequence[_Piece]) -> pa.Table:
    """Pieces with the same shared values as `CHANGE`."""
    table = pa.concat_tables([piece.table for piece in pieces])
    for name, value in zip(SHARED, shared, strict=True):
        table = table.append_column(name, pa.repeat(pa.scalar(value, pa.string()), table.num_rows))
    counts = [piece.table.num_rows for piece in pieces]
    slices = np.repeat(np.array([piece.slice for piece in pieces], np.int32), counts)
    turns = np.repeat(np.array([piece.turn for piece in pieces], np.int64), counts)
    effects = as_effects(table).append_column("shard", table.column("shard"))
    found = effects.append_column("slice", pa.array(slices)).select(CHANGE.names).cast(CHANGE)
    place = CHANGE.get_field_index("commit_order")
    order = pc.add(found.column(place), pa.array(turns * TURN))
    return found.set_column(place, CHANGE.field(place), order)


def due_at(entries: pa.Table, until: int) -> pa.Table:
    """Entries that are not to be thought of before that time."""
    place = ENTRIES.get_field_index("due_at")
    return entries.set_column(
        place, ENTRIES.field(place), pa.array(np.full(entries.num_rows, until))
    )
