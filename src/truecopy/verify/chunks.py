"""Cutting a comparison into chunks: key ranges of about equal size, known before the work starts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from truecopy.engines.protocols import Reads
from truecopy.model.relation import WHOLE, Chunk, Key
from truecopy.model.types import Integer
from truecopy.verify.matching import Comparison
from truecopy.verify.options import Options

DEFAULT_ROWS = 100_000
CHUNK_BYTES = 32 * 2**20
"""What a chunk may weigh if all of its rows must travel: bounds the memory of a task."""
MOST_CHUNKS = 20_000
SPARSE = 0.2
"""Below this share of used numbers a key is cut where its rows are, not where its numbers are."""


def chunk_rows(comparison: Comparison, options: Options) -> int:
    """Rows of a chunk: enough to be worth a task, few enough to fit into its memory."""
    if options.chunk_rows:
        return options.chunk_rows
    fitting = max(1000, CHUNK_BYTES // comparison.row_bytes)
    return max(min(DEFAULT_ROWS, fitting), comparison.rows // MOST_CHUNKS)


def plan_chunks(reader: Reads, comparison: Comparison, options: Options) -> list[Chunk]:
    """Chunks that cover the whole key space, open at both ends so that no row falls outside."""
    rows = chunk_rows(comparison, options)
    if not comparison.ordered or comparison.rows <= rows:
        return [WHOLE]
    relation = comparison.source
    if relation.key_width == 1 and isinstance(relation.types[0], Integer):
        extent = reader.extent(relation)
        if extent is None:
            return [WHOLE]
        low, high = extent
        if comparison.rows >= SPARSE * (high - low + 1):
            return even_chunks(low, high, comparison.rows, rows)
    return chunks_between(reader.boundaries(relation, WHOLE, rows))


def even_chunks(low: int, high: int, total: int, rows: int) -> list[Chunk]:
    """Equal ranges of a number: no chunk can hold more rows than its range has numbers."""
    count = max(1, -(-total // rows))
    width = max(1, -(-(high - low + 1) // count))
    return chunks_between([(str(at),) for at in range(low + width, high + 1, width)])


def chunks_between(boundaries: Sequence[Key], inside: Chunk = WHOLE) -> list[Chunk]:
    """The ranges that some boundaries cut a range into."""
    ends = [inside.low, *boundaries, inside.high]
    return [Chunk(low, high) for low, high in pairwise(ends)]


def sample_chunks(numbered: Sequence[int], options: Options) -> list[int]:
    """The chunks to compare: all, or the sample that the user asked for."""
    if options.sample is None or not numbered:
        return list(numbered)
    count = max(1, round(options.sample * len(numbered)))
    return sorted(random.Random(options.sample_seed).sample(list(numbered), count))
