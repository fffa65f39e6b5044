"""Eras: the times in which shards served, and which of them followed upon which.

A log of a keyspace holds events of shards that served side by side, and of shards that took over from others. A
row's last event in a shard that took over counts, whatever the shard before said of it; of two shards that
serve side by side each speaks for its own rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from truecopy.model.keyspace import parse_key_range


@dataclass(frozen=True)
class Era:
    """A shard from when it began to serve.

    Attributes:
        first: The first batch that may have events of it.
        ancestors: The eras that it followed upon, and those that they did.
    """

    number: int
    shard: str
    first: int
    ancestors: frozenset[int] = frozenset()


def first_eras(shards: Collection[str]) -> list[Era]:
    """Those that a log begins with."""
    return [Era(number, shard, 0) for number, shard in enumerate(sorted(shards), 1)]


def next_eras(
    known: Sequence[Era], before: Collection[str], after: Collection[str], batch: int
) -> list[Era]:
    """The eras that begin where the shards that are read change."""
    now = current(known)
    left = [now[shard] for shard in before if shard not in after]
    found: list[Era] = []
    for shard in sorted(set(after) - set(before)):
        parents = [era for era in left if _overlap(era.shard, shard)]
        ancestors = {era.number for era in parents}.union(*(era.ancestors for era in parents))
        number = len(known) + len(found) + 1
        found.append(Era(number, shard, batch, frozenset(ancestors)))
    return found


def current(known: Sequence[Era]) -> dict[str, Era]:
    """The last era of each shard."""
    return {era.shard: era for era in known}


def descendants(known: Sequence[Era], era: Era) -> set[int]:
    """The eras that followed upon one."""
    return {other.number for other in known if era.number in other.ancestors}


def _overlap(one: str, other: str) -> bool:
    return parse_key_range(one).overlaps(parse_key_range(other))
