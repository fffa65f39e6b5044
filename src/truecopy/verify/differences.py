"""Differing rows: how they are found in two sets of fingerprints, kept in Arrow, and judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from truecopy.model.relation import Key
from truecopy.model.text import shortest_float
from truecopy.model.types import Float, Type

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("key", pa.list_(pa.string())),
        ("source", pa.list_(pa.string())),
        ("target", pa.list_(pa.string())),
    ]
)
"""Differences as they travel and are kept: canonical text, whole rows, null where a side has no row."""

Row = tuple[str | None, ...]


@dataclass(frozen=True)
class Difference:
    """One differing row; `source` and `target` are whole rows of canonical text."""

    kind: str
    key: Key
    source: Row | None
    target: Row | None


@dataclass(frozen=True)
class Suspects:
    """Rows of which one side has fingerprints that the other has not: (key, fingerprint) pairs."""

    source: tuple[tuple[Key, int], ...] = ()
    target: tuple[tuple[Key, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.source or self.target)

    def first(self, count: int) -> Suspects:
        """The suspects of the first keys, for a user who wants to see no more."""
        if not any(key for key, _ in (*self.source, *self.target)):
            return Suspects(self.source[:count], self.target[:count])
        keys = set(sorted({key for key, _ in (*self.source, *self.target)})[:count])
        return Suspects(
            tuple(pair for pair in self.source if pair[0] in keys),
            tuple(pair for pair in self.target if pair[0] in keys),
        )


def find_suspects(source: pa.Table, target: pa.Table) -> Suspects:
    """Compares two tables of keys and fingerprints as multisets, in Arrow.

    Anti-joins see no surplus of equal rows; the digests of what they matched do, and then every
    row is counted.
    """
    names = source.column_names
    only_source = source.join(target, names, join_type="left anti")
    only_target = target.join(source, names, join_type="left anti")
    matched_source = np.subtract(_checksum(source), _checksum(only_source))
    matched_target = np.subtract(_checksum(target), _checksum(only_target))
    if (matched_source == matched_target).all():
        return Suspects(_pairs(only_source), _pairs(only_target))
    left, right = Counter(_pairs(source)), Counter(_pairs(target))
    return Suspects(tuple((left - right).elements()), tuple((right - left).elements()))


def differing_columns(
    source: Row, target: Row, types: Sequence[Type], tolerance: float
) -> tuple[int, ...]:
    """The columns in which two rows of one key differ."""
    return tuple(
        i
        for i, (a, b, kind) in enumerate(zip(source, target, types, strict=True))
        if a != b and not (tolerance and isinstance(kind, Float) and _close(a, b, tolerance))
    )


def judge(
    source_rows: Sequence[Row],
    target_rows: Sequence[Row],
    types: Sequence[Type],
    key_width: int,
    tolerance: float,
) -> list[Difference]:
    """Pairs rows by key and says how they differ; equal ones give nothing."""
    sources, targets = (_by_key(rows, key_width) for rows in (source_rows, target_rows))
    found: list[Difference] = []
    for key in {**sources, **targets}:
        here, there = sources.get(key, []), targets.get(key, [])
        if len(here) > 1 or len(there) > 1:  # a key that is none: only a surplus counts
            left, right = Counter(here), Counter(there)
            here, there = list((left - right).elements()), list((right - left).elements())
        shown = key if key_width else ()
        paired = min(len(here), len(there))
        found += [
            Difference("differs", shown, a, b)
            for a, b in zip(here[:paired], there[:paired], strict=True)
            if a != b and differing_columns(a, b, types, tolerance)
        ]
        found += [Difference("missing", shown, row, None) for row in here[paired:]]
        found += [Difference("extra", shown, None, row) for row in there[paired:]]
    return found


def _by_key(rows: Sequence[Row], key_width: int) -> dict[Row, list[Row]]:
    """Rows by key; without a key, the whole row is its own."""
    found: dict[Row, list[Row]] = {}
    for row in rows:
        found.setdefault(row[:key_width] if key_width else row, []).append(row)
    return found


def to_arrow(differences: Sequence[Difference]) -> pa.Table:
    """Differences as a table of `SCHEMA`."""
    columns = [
        [d.kind for d in differences],
        [list(d.key) for d in differences],
        [d.source and list(d.source) for d in differences],
        [d.target and list(d.target) for d in differences],
    ]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def from_arrow(table: pa.Table) -> Iterator[Difference]:
    """The differences of a table of `SCHEMA`, one batch in memory at a time."""
    for batch in table.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            source, target = row["source"], row["target"]
            yield Difference(
                row["kind"], tuple(row["key"]), source and tuple(source), target and tuple(target)
            )


def to_bytes(table: pa.Table) -> bytes:
    """A table as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_bytes(data: bytes) -> pa.Table:
    """The inverse of `to_bytes`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of a small table of texts."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _pairs(table: pa.Table) -> tuple[tuple[Key, int], ...]:
    *keys, fingerprints = [column.to_pylist() for column in table.columns]
    rows = zip(*keys, strict=True) if keys else ((),) * len(fingerprints)
    return tuple(
        (tuple(key), fingerprint) for key, fingerprint in zip(rows, fingerprints, strict=True)
    )


def _checksum(table: pa.Table) -> tuple[int, int, int]:
    """Count and sum of the fingerprints; the sum in halves, which cannot overflow."""
    values = table.column("fingerprint").to_numpy()
    return len(values), int((values >> 30).sum()), int((values & (2**30 - 1)).sum())


def _close(a: str | None, b: str | None, tolerance: float) -> bool:
    if a is None or b is None or a.startswith("?") or b.startswith("?"):
        return False
    x, y = float(shortest_float(a)), float(shortest_float(b))
    return x == y or abs(x - y) <= tolerance * max(abs(x), abs(y))
