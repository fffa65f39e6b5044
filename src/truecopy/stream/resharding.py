"""The step from shards that stop serving to those that take over.

The shards that stop serving are read to their end; then, in one step that reads nothing, they leave the
offset and the shards that took over enter it, at the place in their logs up to which filtered replication had
brought them what was read. A source that cannot be read any more is left where the stream stands: what is
missing comes from the destinations.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from truecopy.model.errors import CannotFinish
from truecopy.model.keyspace import Shard
from truecopy.stream.log import LogGone, Mark
from truecopy.stream.offset import Offset, has_reached
from truecopy.stream.request import Request
from truecopy.stream.reshard import Hop, Standing, plan_hops
from truecopy.stream.shard import PATIENCE_SECONDS
from truecopy.stream.shards import Shards

SOURCE_SECONDS = 10.0
"""How long a shard that stops serving is waited for, when it does not answer, before it is left as it is."""


class Resharded(CannotFinish):
    """The serving shards changed, and the stream was asked to end then."""


class Resharding:
    """Follows the shards that serve.

    Attributes:
        stops: Where shards end that stop serving.
        given_up: Those of them that cannot be read any more.
    """

    def __init__(self, request: Request, shards: Shards) -> None:
        self._request = request
        self._shards = shards
        self.stops: dict[str, Mark] = {}
        self.given_up: set[str] = set()
        self._silent_since: dict[str, float] = {}
        self._failing_since: float | None = None

    def next(self, start: Offset, limit: Offset | None) -> Offset | None:
        """The offset after a step to new shards, whose servers may need a while; None where there is none to take."""
        try:
            hopped = self._next(start, limit)
        except (LogGone, Resharded):
            raise
        except CannotFinish:
            now = time.monotonic()
            if self._failing_since is None:
                self._failing_since = now
            if now - self._failing_since > PATIENCE_SECONDS:
                raise
            return None
        self._failing_since = None
        return hopped

    def _next(self, start: Offset, limit: Offset | None) -> Offset | None:
        serving = self._shards.serving()
        leaving = {name: self._shards.find(name) for name in start.marks if name not in serving}
        self._forget(leaving)
        if not leaving:
            return None
        read = {
            shard
            for name, shard in leaving.items()
            if self._is_read(name, start.marks[name], limit)
        }
        if not read:
            return None
        known = {*leaving.values(), *serving.values()}
        standing = Standing(
            leaving=tuple(leaving.values()),
            staying=tuple(shard for name, shard in serving.items() if name in start.marks),
            arriving=tuple(shard for name, shard in serving.items() if name not in start.marks),
            others=tuple(s for s in self._shards.keyspace.shards if s not in known),
            key_range=self._request.key_range,
        )
        for hop in plan_hops(standing, self._fed_by):
            if read.issuperset(hop.sources):
                return self._hop(start, hop)
        return None

    def _forget(self, leaving: Collection[str]) -> None:
        """A shard that serves again has no end."""
        for name in self.stops.keys() - leaving:
            del self.stops[name]
        for name in self._silent_since.keys() - leaving:
            del self._silent_since[name]
        self.given_up.intersection_update(leaving)

    def _is_read(self, name: str, mark: Mark, limit: Offset | None) -> bool:
        """Whether a shard that stops serving was read to its end, or cannot be read any more."""
        if name in self.given_up:
            return True
        if name not in self.stops:
            try:
                self.stops[name] = self._shards.log(name).current()
            except CannotFinish:
                if limit is not None and name in limit.marks:
                    raise  # its end was asked for, and only it has that end
                now = time.monotonic()
                is_patient = now - self._silent_since.setdefault(name, now) < SOURCE_SECONDS
                if self._shards.find(name).servers and is_patient:
                    return False
                self.given_up.add(name)
                return True
        return has_reached(mark, self.stops[name])

    def _fed_by(self, shard: Shard) -> Collection[str] | None:
        try:
            return self._shards.log(shard.name).fed_by()
        except CannotFinish:
            if shard.serving:
                raise
            return ()  # an old shard that is not there any more leads nowhere

    def _hop(self, start: Offset, hop: Hop) -> Offset:
        sources = [shard.name for shard in hop.sources]
        if self._request.stop_on_reshard:
            names = ", ".join(shard.name for shard in hop.destinations)
            raise Resharded(
                f"the keyspace {self._shards.keyspace.name} was resharded: {', '.join(sources)} gave way to"
                f" {names}; everything up to {start.token()} was given"
            )
        marks = {name: mark for name, mark in start.marks.items() if name not in sources}
        for shard in hop.destinations:
            origins = {
                source.name: start.marks[source.name].position
                for source in hop.sources
                if source.key_range.overlaps(shard.key_range)
            }
            marks[shard.name] = self._enter(shard.name, origins, start.left)
        known = {shard.name for shard in self._shards.keyspace.shards} - marks.keys()
        left = {**start.left, **{name: start.marks[name] for name in sources}}
        return replace(start, marks=marks, left={n: m for n, m in left.items() if n in known})

    def _enter(self, name: str, origins: Mapping[str, str], left: Mapping[str, Mark]) -> Mark:
        """Where a destination is read from; not before the point up to which it was read when it served before."""
        before = left.get(name)
        try:
            mark = self._shards.log(name).seek_origin(origins)
        except LogGone:
            if before is None:
                raise
            return before
        return before if before is not None and has_reached(before, mark) else mark
