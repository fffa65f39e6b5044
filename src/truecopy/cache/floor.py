"""The floor: up to where the objects of a cache were invalidated or filled, whatever the cache has forgotten since.

An entry that is not there says nothing: it may have been a token, and what is newer than a lagging replica's
answer may have been thrown out. So objects are spread over buckets, and each bucket has a record of its own:
for each shard, a position that contains every change for which one of its objects was invalidated, and
everything that a value showed which was put into one. A value may be put only when it contains the floor. No two
shards of a record share rows: of shards that give way to each other, only one has a floor.

The record may be thrown out, too. It is then made anew at the end of the shard's log, which contains whatever the
lost one did; without a record nothing is put. So no guarantee rests on what a cache keeps.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Protocol

from truecopy.cache.entry import read_token
from truecopy.cache.store import Cache, Held, Write
from truecopy.model.errors import UsageError
from truecopy.model.keyspace import parse_key_range
from truecopy.model.position import contains, union
from truecopy.model.token import EventToken

BUCKETS = 1 << 14
"""The same for everybody who uses a cache: it is part of what the records mean, so it is no option."""

_TRIES = 8

Floor = Mapping[str, EventToken]
"""A token of each shard, by the shard's name."""


class Ends(Protocol):
    """Whoever knows where the logs of the shards end."""

    def end(self, shard: str) -> EventToken | None:
        """The furthest end of the logs of all servers of a serving shard, now; None where one does not answer."""
        ...


def bucket_of(key: str) -> str:
    """The name of the record that an object's floor is in."""
    return f"floor:{zlib.crc32(key.encode()) % BUCKETS}"


def join(one: EventToken, other: EventToken) -> EventToken:
    """The least token of a shard that contains both; the second where they have diverged."""
    try:
        both = union(one.position, other.position)
    except UsageError:
        return other
    return one if both == one.position else other if both == other.position else _joined(one, other)


def _joined(one: EventToken, other: EventToken) -> EventToken:
    at = max(one.committed_at, other.committed_at)
    return EventToken(at, one.shard, union(one.position, other.position))


def raise_floors(cache: Cache, tokens: Mapping[str, Iterable[EventToken]]) -> None:
    """Raises the floors of buckets to these tokens; a record that is not there stays away, and so do values."""
    left = {bucket: list(some) for bucket, some in tokens.items()}
    while left:
        names = list(left)
        writes = [
            Write(name, _pack(raised), held.version)
            for name, held in zip(names, cache.get(names), strict=True)
            if held is not None and (raised := _raised(held, left[name])) is not None
        ]
        done = cache.put(writes)
        left = {
            write.key: left[write.key]
            for write, is_done in zip(writes, done, strict=True)
            if not is_done
        }


def admit(cache: Cache, key: str, token: EventToken, bound: EventToken, ends: Ends) -> bool:
    """Whether a value may be put that contains `token` and shows nothing beyond `bound`; raises the floor to that.

    Asked after the entry was read in whose place the value shall come: what was invalidated before is in the floor,
    and what is invalidated later changes the entry.
    """
    name = bucket_of(key)
    for _ in range(_TRIES):
        (held,) = cache.get([name])
        floor = _unpack(held)
        near = _sharing(floor, token.shard)
        if near == {token.shard}:
            if not contains(token.position, floor[token.shard].position):
                return False
            raised = {**floor, token.shard: join(floor[token.shard], bound)}
            if raised == floor:
                return True
        else:
            # Lost, or of shards that gave way to this one, which has everything of theirs.
            end = ends.end(token.shard)
            if end is None:
                return False
            raised = {shard: one for shard, one in floor.items() if shard not in near}
            raised[token.shard] = end
        (done,) = cache.put([Write(name, _pack(raised), held.version if held else None)])
        if done and near == {token.shard}:
            return True
    return False


def _raised(held: Held, tokens: Iterable[EventToken]) -> Floor | None:
    """None where nothing changes.

    A change of a shard that has no floor, but shares rows with one that has, makes that one void: it does not tell
    of this shard's changes.
    """
    floor = _unpack(held)
    raised = dict(floor)
    for token in tokens:
        if token.shard in raised:
            raised[token.shard] = join(raised[token.shard], token)
        else:
            for shard in _sharing(raised, token.shard):
                del raised[shard]
    return raised if raised != floor else None


def _sharing(floor: Floor, shard: str) -> set[str]:
    return {one for one in floor if _may_share(one, shard)}


def _may_share(one: str, other: str) -> bool:
    """Whether two shards may hold, or have held, the same rows: known of names that are key ranges."""
    if one == other:
        return True
    try:
        return parse_key_range(one).overlaps(parse_key_range(other))
    except UsageError:
        return True


def _pack(floor: Floor) -> bytes:
    return "\n".join(str(token) for token in floor.values()).encode()


def _unpack(held: Held | None) -> Floor:
    tokens = map(read_token, filter(None, held.content.split(b"\n"))) if held else ()
    return {token.shard: token for token in tokens}
