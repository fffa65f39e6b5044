"""A limit on how far ahead of the slowest one a shard of a keyspace is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from truecopy.model.errors import CannotFinish
from truecopy.stream.log import Mark
from truecopy.stream.offset import has_reached
from truecopy.stream.shards import Shards


class Skew:
    """Knows up to when each shard was read; one without news was read up to when the others were."""

    def __init__(self, seconds: float, shards: Shards) -> None:
        self._most = int(seconds * 1_000_000)
        self._shards = shards
        # Of shards without news: where they stand, and up to when nothing can come from them any more.
        self._idle: dict[str, tuple[str, int]] = {}

    def bound(
        self, before: Mapping[str, Mark], after: Mapping[str, Mark], done: Collection[str]
    ) -> int:
        """The time beyond which no shard may be read now.

        Args:
            before: Where the shards stand.
            after: Where they would go.
            done: Shards from which nothing more is wanted.
        """
        latest = max(mark.committed_at for mark in after.values())
        times = [latest]
        for name, mark in after.items():
            if mark != before[name]:
                times.append(mark.committed_at or latest)
            elif name not in done:
                times.append(self._quiet_until(name, mark, latest))
        return min(times) + self._most

    def _quiet_until(self, name: str, mark: Mark, latest: int) -> int:
        """Up to when nothing can come any more from a shard that has no news; its log is asked if need be."""
        position, until = self._idle.get(name, ("", 0))
        known = max(until if position == mark.position else 0, mark.committed_at)
        if latest <= known + self._most:
            return known
        try:
            end = self._shards.log(name).current()
        except CannotFinish:
            return known
        if not has_reached(mark, end):
            return known
        # Others had got this far when its log had nothing more: what comes from now on is later.
        self._idle[name] = mark.position, latest
        return latest


def hold_back(before: Mark, after: Mark, bound: int, step: Callable[[int], Mark]) -> Mark:
    """The furthest of a shard's steps that does not run ahead of the bound.

    Args:
        before: Where it stands.
        after: Where it would go.
        bound: The time beyond which it must not be read.
        step: Where it goes within so many bytes.
    """
    if after == before or after.committed_at <= bound:
        return after
    if before.committed_at > bound:
        return before
    budget = after.written - before.written
    while budget > 1:
        budget //= 2
        shorter = step(budget)
        if shorter == before:
            return before
        after = shorter
        if after.committed_at <= bound or after.written - before.written > budget:
            break
    return after
