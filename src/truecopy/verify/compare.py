"""Comparing one chunk: digests in both databases first, rows only where they differ.

This is what a Spark task runs. It needs nothing but its arguments, and running it again gives the
same answer as long as the rows are the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa

from truecopy.engines import pool
from truecopy.engines.protocols import DatabaseSession
from truecopy.model.fingerprint import Digest
from truecopy.model.relation import WHOLE, Chunk, Key, Relation
from truecopy.model.types import Json
from truecopy.verify import throttle
from truecopy.verify.chunks import chunks_between
from truecopy.verify.differences import (
    SCHEMA,
    Suspects,
    find_suspects,
    from_bytes,
    judge,
    rows_of,
    to_arrow,
    to_bytes,
)
from truecopy.verify.matching import Comparison
from truecopy.verify.options import Options

FETCH_WHOLE_ABOVE = 0.5
"""Share of differing rows from which reading the range beats asking for single keys."""


@dataclass(frozen=True)
class ChunkResult:
    """What is known of a chunk once it was compared.

    Attributes:
        seconds: How long it took, waiting for a lagging replica not counted.
        differences: An Arrow stream of `differences.SCHEMA`, or empty.
        unsettled: Rows whose fingerprints differed but that were equal when they were read.
    """

    comparison: int
    chunk: int
    source: Digest
    target: Digest
    missing: int = 0
    extra: int = 0
    differing: int = 0
    unsettled: int = 0
    seconds: float = 0.0
    differences: bytes = field(default=b"", repr=False)

    @property
    def found(self) -> int:
        """Rows that differ."""
        return self.missing + self.extra + self.differing

    @property
    def table(self) -> pa.Table:
        """The differences as Arrow."""
        return from_bytes(self.differences) if self.differences else SCHEMA.empty_table()


def compare_chunk(
    comparison: Comparison, numbers: tuple[int, int], chunk: Chunk, rows: int, options: Options
) -> ChunkResult:
    """Compares one chunk of about `rows` rows; `numbers` are those of the comparison and of the chunk."""
    if options.replica is not None:
        throttle.wait_for_replica(options.replica, options.max_lag)
    start = time.monotonic()
    with (
        pool.lease(comparison.source.endpoint) as source,
        pool.lease(comparison.target.endpoint) as target,
        ThreadPoolExecutor(1, "target") as beside,
    ):
        sides = _Sides(
            comparison,
            cast(DatabaseSession, source),
            cast(DatabaseSession, target),
            beside,
            options,
            rows,
        )
        parts = [sides.compare(part) for part in sides.steps(chunk)]
    tables = [part.differences for part in parts if part.differences.num_rows]
    found = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
    kinds = found.column("kind").to_pylist()
    return ChunkResult(
        comparison=numbers[0],
        chunk=numbers[1],
        source=sum((part.source for part in parts), Digest()),
        target=sum((part.target for part in parts), Digest()),
        missing=kinds.count("missing"),
        extra=kinds.count("extra"),
        differing=kinds.count("differs"),
        # In a live run every suspected row is watched later; those that are equal by now are equal.
        unsettled=0 if options.live else sum(part.unsettled for part in parts),
        seconds=time.monotonic() - start,
        differences=to_bytes(found) if found.num_rows else b"",
    )


@dataclass(frozen=True)
class _Part:
    source: Digest
    target: Digest
    differences: pa.Table
    unsettled: int = 0


@dataclass(frozen=True)
class _Sides:
    """Both sides of a chunk, asked at the same time: the target from a thread beside this one."""

    comparison: Comparison
    source: DatabaseSession
    target: DatabaseSession
    beside: ThreadPoolExecutor
    options: Options
    rows: int

    def steps(self, chunk: Chunk) -> list[Chunk]:
        """The chunk in statements that should take no longer than the user allows."""
        allowed = throttle.rows_within(self.comparison.source.endpoint, self.options.chunk_seconds)
        if not self.comparison.ordered or allowed is None or self.rows <= 1.5 * allowed:
            return [chunk]
        return chunks_between(self.source.boundaries(self.comparison.source, chunk, allowed), chunk)

    def compare(self, chunk: Chunk) -> _Part:
        """Digests, and where they differ the rows; a large chunk is narrowed down first."""
        source, target = self._digests(chunk)
        if source == target:
            return _Part(source, target, SCHEMA.empty_table())
        largest = max(source.count, target.count)
        if largest > 2 * self.rows and self.comparison.ordered:
            return self._narrow(chunk, source, target)
        differences, unsettled = self._rows(chunk, largest)
        return _Part(source, target, differences, unsettled)

    def _digests(self, chunk: Chunk) -> tuple[Digest, Digest]:
        start = time.monotonic()
        later = self.beside.submit(self.target.digest, self.comparison.target, chunk)
        source = self.source.digest(self.comparison.source, chunk)
        target = later.result()
        throttle.note_speed(
            self.comparison.source.endpoint,
            max(source.count, target.count),
            time.monotonic() - start,
        )
        return source, target

    def _narrow(self, chunk: Chunk, source: Digest, target: Digest) -> _Part:
        larger = self.source if source.count >= target.count else self.target
        relation = self.comparison.source if larger is self.source else self.comparison.target
        boundaries = larger.boundaries(relation, chunk, self.rows)
        if not boundaries:  # rows of one key only: nothing left to cut
            differences, unsettled = self._rows(chunk, max(source.count, target.count))
            return _Part(source, target, differences, unsettled)
        parts = [self.compare(part) for part in chunks_between(boundaries, chunk)]
        return _Part(
            source,
            target,
            pa.concat_tables([p.differences for p in parts]),
            sum(p.unsettled for p in parts),
        )

    def _rows(self, chunk: Chunk, count: int) -> tuple[pa.Table, int]:
        """The differing rows of a chunk: keys and fingerprints from both sides, then only rows that differ."""
        left, right = by_meaning(self.comparison.source), by_meaning(self.comparison.target)
        later = self.beside.submit(self.target.fingerprints, right, chunk)
        here = self.source.fingerprints(left, chunk)
        suspects = find_suspects(here, later.result())
        if not suspects:
            # Equal by meaning, though not to the letter; or written to since the digests were taken.
            return SCHEMA.empty_table(), 0 if left.types != self.comparison.source.types else 1
        if self.options.limit is not None and not self.options.live:
            suspects = suspects.first(self.options.limit)
        return self._read(chunk, suspects, left, right, count)

    def _read(
        self, chunk: Chunk, suspects: Suspects, left: Relation, right: Relation, count: int
    ) -> tuple[pa.Table, int]:
        later = self.beside.submit(read_suspects, self.target, right, chunk, suspects, count)
        here = read_suspects(self.source, left, chunk, suspects, count)
        found = judge(
            rows_of(here),
            rows_of(later.result()),
            left.types,
            left.key_width,
            self.options.float_tolerance,
        )
        unsettled = 0
        if not self.options.float_tolerance:
            keys = {key for key, _ in (*suspects.source, *suspects.target)}
            unsettled = (
                len(keys - {difference.key for difference in found}) if left.key_width else 0
            )
        return to_arrow(found), unsettled


def read_suspects(
    session: DatabaseSession, relation: Relation, chunk: Chunk, suspects: Suspects, count: int
) -> pa.Table:
    """Whole rows of the suspects on one side, by key, by range or by fingerprint, whichever costs least."""
    if not relation.key_width:
        values = sorted({fingerprint for _, fingerprint in (*suspects.source, *suspects.target)})
        found = session.rows_by_fingerprint(relation, values)
        return found.drop_columns(["fingerprint"])
    keys: list[Key] = sorted({key for key, _ in (*suspects.source, *suspects.target)})
    whole_range = chunk != WHOLE and len(keys) > FETCH_WHOLE_ABOVE * count
    rows = session.rows(relation, chunk) if whole_range else session.rows_by_key(relation, keys)
    # Also after asking by key: a collation that ignores case answers with rows of other keys as well.
    return only_keys(rows, keys, relation.key_width)


def only_keys(rows: pa.Table, keys: Sequence[Key], key_width: int) -> pa.Table:
    """The rows with exactly these keys."""
    names = [f"c{i}" for i in range(key_width)]
    columns = [pa.array(column, pa.string()) for column in zip(*keys, strict=True)]
    return rows.join(pa.table(columns, names=names), names, join_type="left semi").select(
        rows.column_names
    )


def by_meaning(relation: Relation) -> Relation:
    """The relation with JSON compared by meaning, where digests took its raw text."""
    types = tuple(Json() if isinstance(kind, Json) else kind for kind in relation.types)
    return replace(relation, types=types)
