"""Row changes that are not settled yet, as Arrow: what the target should hold, and what was seen there so far."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.model.change import DELETE, INSERT, UPDATE

Numbers = np.ndarray[Any, Any]
KINDS = INSERT, UPDATE, DELETE
_TEXTS = pa.list_(pa.string())

IMAGE = pa.schema(
    [
        ("shard", pa.string()),
        ("table", pa.string()),
        ("slice", pa.int32()),
        ("schema_id", pa.string()),
        ("kind", pa.string()),
        ("key", _TEXTS),
        ("row", _TEXTS),
        ("unchanged", pa.list_(pa.int32())),
        ("position", pa.string()),
    ]
)
"""What a change says of a row of the target: there, as `row` tells, or gone."""

CHANGE = pa.schema(
    [*IMAGE, ("commit_order", pa.int64()), ("seq", pa.int32()), ("step", pa.int32())]
)
"""A change, with its place among the others of a batch."""

CLOCK = pa.schema(
    [
        ("first_failed_at", pa.int64()),
        ("last_failed_at", pa.int64()),
        ("due_at", pa.int64()),
        ("tries", pa.int32()),
        ("is_error", pa.bool_()),
    ]
)
"""How long a row has been failing; in microseconds, 0 for not at all."""

SIGHT = pa.schema(
    [
        ("seen_at", pa.string()),
        ("seen_time", pa.int64()),
        ("seen_exact", pa.bool_()),
        ("seen_schema", pa.string()),
        ("seen_row", _TEXTS),
    ]
)
"""What was seen on the target and cannot be judged yet, as the stream has not come to that position.

`seen_at` is NULL where there is nothing to be judged, `seen_row` where the target had no such row.
"""

ENTRIES = pa.schema([*IMAGE, *CLOCK, *SIGHT])
"""A row change that is pending: not looked at successfully since it came."""


def to_bytes(entries: pa.Table) -> bytes:
    """Entries as they are kept."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, entries.schema, options=options) as writer:
        writer.write_table(entries)
    return bytes(sink.getvalue().to_pybytes())


def from_bytes(data: bytes | pa.Buffer) -> pa.Table:
    """The inverse of `to_bytes`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def as_changes(entries: pa.Table) -> pa.Table:
    """The images of entries, as changes before all others."""
    rows = entries.num_rows
    return pa.table(
        [
            *(entries.column(name) for name in IMAGE.names),
            pa.array(np.full(rows, -1, np.int64)),
            pa.array(np.zeros(rows, np.int32)),
            pa.array(np.zeros(rows, np.int32)),
        ],
        schema=CHANGE,
    )


def lines_of(rows: pa.Table, lines: Numbers) -> pa.Table:
    """Some lines of a table: without a copy where these are all of them, in order."""
    if len(lines) == rows.num_rows and np.array_equal(lines, np.arange(len(lines))):
        return rows
    return rows.take(pa.array(lines))


def counts_by_kind(kinds: pa.Array | pa.ChunkedArray) -> dict[str, int]:
    """How many there are of each kind of change."""
    found = {row["values"]: row["counts"] for row in pc.value_counts(kinds).to_pylist()}
    return {kind: int(found.get(kind, 0)) for kind in KINDS}


def identities_of(images: pa.Table) -> list[str]:
    """The name of each row: shard, source table and key; no two rows share one."""
    columns = (images.column(name).to_pylist() for name in ("shard", "table", "key"))
    return [name_of(*values) for values in zip(*columns, strict=True)]


def name_of(shard: str, table: str, key: Sequence[str | None]) -> str:
    """The name of one row; unambiguous, whatever the key holds."""
    return json.dumps([shard, table, *key], ensure_ascii=False)


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
