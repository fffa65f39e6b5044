"""Invalidation: tokens without values in the place of what a change has made old."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from truecopy.cache.entry import Entry, unpack
from truecopy.cache.floor import bucket_of, join, raise_floors
from truecopy.cache.store import Cache, Held, Write
from truecopy.model.position import Comparison
from truecopy.model.token import EventToken, compare_tokens

ENTRY = "object:"
"""What the names of entries begin with; those of floors begin otherwise."""

_AT_ONCE = 5000
_PAUSE_SECONDS = 0.001

Changed = tuple[str, EventToken]
"""The key of an object, and the token of a change of it."""


@dataclass
class Counts:
    """What became of changes.

    Attributes:
        changes: Objects that changed, each once in a batch.
        stored: Tokens without a value that were stored.
        kept: Entries that were as new as the change, or newer.
        rereads: Entries that somebody else wrote in between.
    """

    changes: int = 0
    stored: int = 0
    kept: int = 0
    rereads: int = 0


class Invalidator:
    """Writes invalidations into a cache; any number of them may work on one, in any order."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.counts = Counts()

    def invalidate(self, changes: Iterable[Changed]) -> None:
        """Everything that was cached of these objects and is older than the change goes."""
        for some in _rounds(changes):
            self.counts.changes += len(some)
            # The floor first: an entry may be thrown out as soon as it is there.
            floors: dict[str, list[EventToken]] = {}
            for key, token in some.items():
                floors.setdefault(bucket_of(key), []).append(token)
            raise_floors(self._cache, floors)
            self._store(some)

    def clear(self) -> None:
        """Everything goes, as where a table was emptied and its rows are not named.

        Twice, since a cache may overlook what comes while it clears: after the first time there are no floors that
        do not contain the change, so what comes then is newer, and the second time meets what came before.
        """
        self._cache.clear()
        self._cache.clear()

    def _store(self, changes: Mapping[str, EventToken]) -> None:
        left = dict(changes)
        while left:
            keys = list(left)
            found = self._cache.get([ENTRY + key for key in keys])
            writes, chosen = [], []
            for key, held in zip(keys, found, strict=True):
                if is_older(held, left[key]):
                    version = held.version if held else None
                    writes.append(Write(ENTRY + key, Entry(left[key]).pack(), version))
                    chosen.append(key)
            done = self._cache.put(writes)
            stored = sum(done)
            self.counts.kept += len(left) - len(chosen)
            self.counts.stored += stored
            self.counts.rereads += len(done) - stored
            left = {
                key: left[key] for key, is_done in zip(chosen, done, strict=True) if not is_done
            }
            if left:
                time.sleep(_PAUSE_SECONDS)


def is_older(held: Held | None, change: EventToken) -> bool:
    """Whether an entry must give way to a change: unless it is known to contain it."""
    token = unpack(held.content).token if held else None
    if token is None:
        return True
    return compare_tokens(token, change) in (Comparison.OLDER, Comparison.UNKNOWN)


def _rounds(changes: Iterable[Changed]) -> Iterator[dict[str, EventToken]]:
    """Each key once at a time. Of several changes of one shard the last says it all; shards are not compared."""
    newest: dict[tuple[str, str], EventToken] = {}
    for key, token in changes:
        known = newest.get((key, token.shard))
        newest[key, token.shard] = join(known, token) if known else token
    some: dict[str, EventToken] = {}
    later: list[Changed] = []
    for (key, _), token in newest.items():
        if key in some:
            later.append((key, token))
            continue
        some[key] = token
        if len(some) == _AT_ONCE:
            yield some
            some = {}
    if some:
        yield some
    if later:
        yield from _rounds(later)
