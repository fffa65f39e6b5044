"""Where changes stand to positions: which are in, which are not, and what happened to a row up to one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.model.position import Position, contains, parse_position
from truecopy.transfer.continuous.entries import Numbers, plain
from truecopy.transfer.effect import in_order


class Past:
    """What happened to rows up to a position, in the new changes."""

    def __init__(self, changes: pa.Table, codes: Numbers) -> None:
        self._changes = changes
        order = in_order(changes)
        ranks = np.zeros(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        self._by_row = order[np.argsort(codes[order], kind="stable")]
        self._width = len(order) + 1
        self._places = codes[self._by_row] * self._width + ranks[self._by_row]
        self._order = order

    def until(
        self, lines: Numbers, shards: pa.ChunkedArray, positions: pa.ChunkedArray
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Where the changes of each row begin, where those up to its position end, and where all end."""
        cuts = by_pair(shards, positions, self._cut)
        first = lines * self._width
        return tuple(  # type: ignore[return-value]
            np.searchsorted(self._places, first + offset) for offset in (0, cuts, self._width)
        )

    def at(self, places: Numbers) -> Numbers:
        """The numbers of changes by their places; what is out of range gives some number."""
        if not len(self._by_row):
            return np.zeros(len(places), np.int64)
        found: Numbers = self._by_row[np.clip(places, 0, len(self._by_row) - 1)]
        return found

    def are_beside(self, shards: pa.ChunkedArray, positions: pa.ChunkedArray) -> Numbers:
        """Which positions no state of the source had: domains that are applied in parallel, one of them late."""
        return by_pair(shards, positions, self._is_beside).astype(bool)

    def _is_beside(self, shard: str, position: str) -> bool:
        here, at = self._of(shard), parse_position(position)
        first = self._first_not_in(at, here)
        return first < len(here) and not contains(self._position(here[first]), at)

    def _cut(self, shard: str, position: str) -> int:
        """How many of all changes come before the first one of the shard that cannot be in a position."""
        here, at = self._of(shard), parse_position(position)
        if self._is_beside(shard, position):  # whatever the log had when it had all of that
            whole = _first(len(here), lambda i: contains(self._position(here[i]), at))
            at = self._position(here[min(whole, len(here) - 1)])
        first = self._first_not_in(at, here)
        return int(here[first]) if first < len(here) else len(self._order)

    def _first_not_in(self, at: Position, here: Numbers) -> int:
        return _first(len(here), lambda i: not contains(at, self._position(here[i])))

    def _of(self, shard: str) -> Numbers:
        """The places of a shard's changes among all, in their order."""
        of_shard = np.asarray(pc.equal(self._changes.column("shard"), shard)).astype(bool)
        return np.flatnonzero(of_shard[self._order])

    def _position(self, place: int) -> Position:
        return parse_position(self._changes.column("position")[int(self._order[place])].as_py())


def _first(count: int, holds: Callable[[int], bool]) -> int:
    """The first number from which on something holds, as commits come in the order of the log; else the count."""
    return bisect_left(range(count), True, key=holds)


def are_known(
    shards: pa.ChunkedArray | pa.Array,
    positions: pa.ChunkedArray | pa.Array,
    reached: Mapping[str, str],
) -> Numbers:
    """Whether the stream was read up to each position; what has none counts as read."""

    def is_known(shard: str, position: str | None) -> int:
        if position is None:
            return 1
        read = reached.get(shard)
        return int(read is not None and contains(parse_position(read), parse_position(position)))

    return by_pair(shards, positions, is_known).astype(bool)


def by_pair(
    shards: pa.ChunkedArray | pa.Array,
    positions: pa.ChunkedArray | pa.Array,
    answer: Callable[[str, Any], int],
) -> Numbers:
    """A number for each pair of shard and position; few of them differ."""
    texts = pc.binary_join_element_wise(plain(shards), pc.fill_null(plain(positions), "\0"), "\x1f")
    coded = pc.dictionary_encode(texts)
    answers = []
    for text in coded.dictionary.to_pylist():
        shard, _, position = text.rpartition("\x1f")
        answers.append(answer(shard, None if position == "\0" else position))
    found: Numbers = np.array(answers, np.int64)[np.asarray(coded.indices)]
    return found
