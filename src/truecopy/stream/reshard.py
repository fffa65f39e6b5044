"""Which shards give way to which, when those that serve change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.keyspace import KeyRange, Shard, parse_key_range

FedBy = Callable[[Shard], Collection[str] | None]
"""The names of the shards from which filtered replication has fed a shard; None where nobody can say."""


@dataclass(frozen=True)
class Hop:
    """Shards that are left together, and those to go on from."""

    sources: tuple[Shard, ...]
    destinations: tuple[Shard, ...]


@dataclass(frozen=True)
class Standing:
    """Where the stream stands while the serving shards are others than those that it reads.

    Attributes:
        leaving: Shards that it stands on and that do not serve any more.
        staying: Shards that it stands on and that serve.
        arriving: Shards that serve and that it does not stand on.
        others: The rest of the keyspace. Where one reshard followed another before the stream took part in
            the first, the way leads over them: only they have the changes between the two.
        key_range: What is wanted of all of them.
    """

    leaving: tuple[Shard, ...]
    staying: tuple[Shard, ...]
    arriving: tuple[Shard, ...]
    others: tuple[Shard, ...]
    key_range: KeyRange

    def is_covered(self, shard: Shard, by: Iterable[Shard]) -> bool:
        """Whether others hold together what is wanted of a shard."""
        low = max(shard.key_range.low, self.key_range.low)
        highs = [high for high in (shard.key_range.high, self.key_range.high) if high]
        reached: bytes | None = low
        for other in sorted(by, key=lambda other: other.key_range.low):
            if reached is not None and other.key_range.low <= reached:
                high = other.key_range.high
                reached = max(reached, high) if high else None
        return reached is None or (bool(highs) and reached >= min(highs))


def plan_hops(standing: Standing, fed_by: FedBy) -> list[Hop]:
    """The next hop of each group of shards that hang together by overlapping."""
    way = _Way(standing, fed_by)
    stops = {stop for shard in standing.arriving for stop in way.begin(shard)}
    between = sorted((s for s in stops if s not in standing.arriving), key=lambda s: s.name)
    _refuse_overlap(between, standing.staying)
    # A shard in between leads on to all that overlap it, later.
    found = [*between, *(s for s in standing.arriving if s in stops and not _touches(s, between))]
    hops = []
    for group in _groups((*standing.leaving, *found)):
        sources = tuple(shard for shard in group if shard in standing.leaving)
        destinations = tuple(shard for shard in group if shard in found)
        beside = [shard for shard in standing.leaving if shard not in sources]
        if all(standing.is_covered(source, (*destinations, *beside)) for source in sources):
            hops.append(Hop(sources, destinations))
    if not hops:
        raise _lost([shard.name for shard in standing.leaving])
    return hops


class _Way:
    """The way from shards that are left to one that serves, found from its end."""

    def __init__(self, standing: Standing, fed_by: FedBy) -> None:
        self._leaving = standing.leaving
        self._others = (*standing.arriving, *standing.others)
        self._fed_by = fed_by

    def begin(self, shard: Shard) -> list[Shard]:
        """Where the way to a shard begins: at the shard itself, or at others over which it was fed."""
        if found := self._stops(shard, (shard,)):
            return found
        # Changes that were made only on shards in between would be lost, if the way led over them.
        names = self._fed_by(shard) or ()
        if feeders := self._feeders(shard, names):
            raise CannotFinish(
                f"the way from {', '.join(self._missing(shard, names))} to {shard.name} leads over"
                f" {' or '.join(feeders)}, which cannot be read any more"
            )
        if not names and (in_doubt := self._fed_beside(shard)):
            raise UsageError(
                f"filtered replication recorded nothing on shard {shard.name}, so it may have been fed from"
                f" {' or '.join(in_doubt)}: if these never served, take them out of the keyspace file"
            )
        return [shard]

    def _stops(self, shard: Shard, path: tuple[Shard, ...]) -> list[Shard]:
        names = self._fed_by(shard)
        if names is None or not self._missing(shard, names):
            return [shard]
        feeders = self._feeders(shard, names)
        known = [other for other in self._others if other.name in feeders and other not in path]
        return [stop for other in known for stop in self._stops(other, (*path, other))]

    def _missing(self, shard: Shard, names: Collection[str]) -> list[str]:
        """The shards that are left, overlap this one, and did not feed it."""
        near = (source for source in self._leaving if _overlap(source, shard))
        return [source.name for source in near if source.name not in names]

    def _feeders(self, shard: Shard, names: Collection[str]) -> list[str]:
        """The shards that fed this one in the place of those that are missing."""
        missing = [parse_key_range(name) for name in self._missing(shard, names)]
        left = {source.name for source in self._leaving}
        return [
            name
            for name in sorted(names)
            if name not in left and any(parse_key_range(name).overlaps(gap) for gap in missing)
        ]

    def _fed_beside(self, shard: Shard) -> list[str]:
        """Shards that were fed from the same ones as this one may have been, and are not what those came from."""
        wanted = {source.name for source in self._leaving if _overlap(source, shard)}
        came_from = {name for source in self._leaving for name in self._fed_by(source) or ()}
        near = (other for other in self._others if other != shard and _overlap(other, shard))
        fed = (other.name for other in near if wanted.intersection(self._fed_by(other) or ()))
        return [name for name in fed if name not in came_from]


def _refuse_overlap(between: Sequence[Shard], staying: Sequence[Shard]) -> None:
    """Two shards that hold the same rows cannot both be read: which of their changes is newer is not known."""
    for i, one in enumerate(between):
        for other in (*between[i + 1 :], *staying):
            if _overlap(one, other):
                raise _lost([one.name, other.name])


def _lost(names: Sequence[str]) -> UsageError:
    return UsageError(
        f"the keyspace was resharded several times while the stream stood still, and no way over"
        f" {' and '.join(names)} leads to the shards that serve: take shards that never served out of the keyspace"
        " file, or start a new stream"
    )


def _touches(shard: Shard, others: Iterable[Shard]) -> bool:
    return any(_overlap(shard, other) for other in others)


def _overlap(one: Shard, other: Shard) -> bool:
    return one.key_range.overlaps(other.key_range)


def _groups(shards: Iterable[Shard]) -> list[list[Shard]]:
    groups: list[list[Shard]] = []
    for shard in shards:
        touching = [group for group in groups if _touches(shard, group)]
        groups = [group for group in groups if group not in touching]
        groups.append([other for group in touching for other in group] + [shard])
    return [sorted(group, key=lambda shard: shard.key_range.low) for group in groups]
