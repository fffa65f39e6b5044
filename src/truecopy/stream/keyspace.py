"""The stream of a keyspace: its shards' logs side by side, through reshards.

An endpoint is a keyspace of one shard, so there is one kind of stream. Its offset holds a mark per
shard. When the serving shards change, the shards that stop serving are read to their end; then, in one
step that reads nothing, they leave the offset and the shards that took over enter it, at the place in
their logs up to which filtered replication had brought them what was read. A source that cannot be read
any more is left where the stream stands: what is missing comes from the destinations.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.keyspace import Shard, parse_key_range
from truecopy.model.position import contains, parse_position
from truecopy.model.token import CLOCK_BOUND, EventToken, KeyspacePosition
from truecopy.stream.log import Lag, LogGone, Mark, Part, Wanted
from truecopy.stream.parts import HeartbeatPart, ShardPart
from truecopy.stream.request import Point, Request
from truecopy.stream.reshard import Hop, Standing, plan_hops
from truecopy.stream.shard import PATIENCE_SECONDS, ShardLog

SOURCE_SECONDS = 10.0
"""How long a shard that stops serving is waited for, when it does not answer, before it is left as it is."""

RESTART_MARGIN = timedelta(minutes=1)
"""A log dates a transaction by its last statement's beginning: one that is committed now may be dated before."""

_TURN_SECONDS = 0.02
_UNREADABLE_SECONDS = 10.0
_MICROSECOND = timedelta(microseconds=1)


class Resharded(CannotFinish):
    """The serving shards changed, and the stream was asked to end then."""


@dataclass(frozen=True)
class Offset:
    """Where the stream of a keyspace stands.

    Attributes:
        beat: The time of its last heartbeat, in microseconds.
        left: Up to where it read shards that gave way to others: should they serve again, it goes on there.
    """

    marks: Mapping[str, Mark]
    beat: int = 0
    left: Mapping[str, Mark] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"shards": _plain(self.marks), "beat": self.beat}
        return {**plain, "left": _plain(self.left)} if self.left else plain

    @classmethod
    def parse(cls, plain: Mapping[str, Any]) -> Offset:
        marks, left = (
            {shard: Mark(**mark) for shard, mark in plain.get(name, {}).items()}
            for name in ("shards", "left")
        )
        return cls(marks, plain.get("beat", 0), left)

    def token(self) -> KeyspacePosition:
        """The printable form of where this is."""
        return KeyspacePosition(
            tuple(
                EventToken(mark.committed_at, shard, parse_position(mark.position))
                for shard, mark in self.marks.items()
            )
        )


class KeyspaceStream:
    """The driver's side of a stream; used by one thread."""

    def __init__(self, request: Request) -> None:
        if request.is_keyspace and request.shard:
            raise UsageError("a keyspace's shards have names of their own: leave shard out")
        self._request = request
        # Before the file is read: what is written meanwhile is then seen as a change.
        self._stamp = self._file_stamp()
        self._keyspace = request.keyspace()
        self._unreadable_since = 0.0
        self._shards: dict[str, ShardLog] = {}
        self._beat_at = time.monotonic()
        # Of shards that stop serving: where they end, since when they do not answer, which are given up.
        self._stops: dict[str, Mark] = {}
        self._silent_since: dict[str, float] = {}
        self._given_up: set[str] = set()
        self._failing_since: float | None = None
        # Of shards without news: where they stand, and up to when nothing can come from them any more.
        self._idle: dict[str, tuple[str, int]] = {}

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()

    def __enter__(self) -> KeyspaceStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def driver_local(self) -> bool:
        """Whether a shard is a file of this machine, which executors elsewhere cannot open."""
        return any(log.is_driver_local() for log in self._serving())

    # Where to start

    def missing(self) -> list[str]:
        """What keeps the stream from starting, a line each."""
        return [line for log in self._serving() for line in log.missing()]

    def warnings(self) -> list[str]:
        """What the user should know of the sources."""
        return [line for log in self._serving() for line in log.warnings()]

    def start(self, point: Point) -> Offset:
        """The offset that a user means by `--from`."""
        if isinstance(point, KeyspacePosition):
            return self._resume({token.shard: token for token in point.tokens})
        if isinstance(point, EventToken):
            return self._resume({point.shard: point})
        return Offset({log.name: _find_point(log, point) for log in self._serving()})

    def _resume(self, tokens: Mapping[str, EventToken]) -> Offset:
        serving = {self._name(shard): shard for shard in self._wanted_shards()}
        stood_on = {name: self._find(name) for name in tokens}
        marks = {}
        for name, token in tokens.items():
            position = str(token.position)
            # A shard that gave way to others need not be there any more.
            mark = self._log(serving[name]).seek(position) if name in serving else Mark(position)
            marks[name] = replace(mark, committed_at=token.committed_at)
        for name, shard in serving.items():
            covered = any(shard.key_range.overlaps(other.key_range) for other in stood_on.values())
            if name not in tokens and not covered:
                marks[name] = self._seek_like(name, tokens)
        return Offset(marks)

    def _seek_like(self, name: str, tokens: Mapping[str, EventToken]) -> Mark:
        """Where a shard is wanted from that the tokens say nothing of: as much earlier as it may lag behind."""
        times = [token.committed_at for token in tokens.values()]
        if not all(times):
            raise UsageError(f"the token says nothing of shard {name}: use one of the keyspace")
        behind = timedelta(seconds=self._request.skew) + CLOCK_BOUND
        at = min(times) - behind // _MICROSECOND
        return _find_point(self._log(self._find(name)), max(at, 1))

    def visible(self) -> Offset:
        """Where a snapshot may start: everything before can be read in the tables."""
        return Offset({log.name: log.visible() for log in self._serving()})

    def current(self) -> Offset:
        """The ends of the logs now."""
        return Offset({log.name: log.current() for log in self._serving()})

    # Going on

    def advance(
        self, start: Offset, max_bytes: int, wait: float, limit: Offset | None = None
    ) -> Offset:
        """The next offset, at most `max_bytes` further and not beyond `limit`; `start` when there are no news."""
        self._reload()
        if hopped := self._resharding_in_time(start, limit):
            return hopped
        deadline = time.monotonic() + wait
        while True:
            marks = self._step(start, max_bytes, limit, self._turn(start, deadline))
            if marks != start.marks:
                self._beat_at = time.monotonic()
                return replace(start, marks=marks)
            if time.monotonic() >= deadline:
                return self._beat(start)

    def has_reached(self, offset: Offset, limit: Offset) -> bool:
        """Whether every shard of the limit was read to there, or was left for others."""
        return all(self._has_passed(offset, name, mark) for name, mark in limit.marks.items())

    def _has_passed(self, offset: Offset, name: str, end: Mark) -> bool:
        if name in offset.marks:
            return _reached(offset.marks[name], end)
        serving = {self._name(shard) for shard in self._wanted_shards()}
        if name in serving:
            return False  # the stream is on its way there
        return name in offset.left or serving.issuperset(offset.marks)

    def _turn(self, start: Offset, deadline: float) -> float:
        """How long to wait for one shard: all the time for a single one, else each its turn."""
        left = max(deadline - time.monotonic(), 0.0)
        return left if len(start.marks) == 1 else min(left, _TURN_SECONDS)

    def _step(
        self, start: Offset, max_bytes: int, limit: Offset | None, turn: float
    ) -> dict[str, Mark]:
        budget = max(max_bytes // max(len(start.marks), 1), 1)
        limits = limit.marks if limit else {}
        ends = {name: limits.get(name) or self._stops.get(name) for name in start.marks}
        marks = {
            name: self._move(name, mark, ends[name], budget, turn)
            for name, mark in start.marks.items()
        }
        if len(marks) == 1:
            return marks
        bound = self._slowest(start.marks, marks, ends) + int(self._request.skew * 1_000_000)
        return {
            name: self._hold_back(name, start.marks[name], mark, ends[name], bound)
            for name, mark in marks.items()
        }

    def _move(self, name: str, mark: Mark, end: Mark | None, budget: int, turn: float) -> Mark:
        if name in self._given_up or (end is not None and _reached(mark, end)):
            return mark
        try:
            moved = self._log(self._find(name)).advance(mark, budget, turn)
        except CannotFinish:
            if end is None or end is not self._stops.get(name):
                raise
            self._given_up.add(name)
            return mark
        return moved if end is None else _clip(mark, moved, end)

    # Skew

    def _slowest(
        self,
        before: Mapping[str, Mark],
        after: Mapping[str, Mark],
        ends: Mapping[str, Mark | None],
    ) -> int:
        """The time up to which every shard was read."""
        latest = max(mark.committed_at for mark in after.values())
        times = [latest]
        for name, mark in after.items():
            end = ends[name]
            is_at_end = name in self._given_up or (end is not None and _reached(mark, end))
            if mark != before[name]:
                times.append(mark.committed_at or latest)
            elif not is_at_end:
                times.append(self._quiet_until(name, mark, latest))
        return min(times)

    def _quiet_until(self, name: str, mark: Mark, latest: int) -> int:
        """Up to when nothing can come any more from a shard that has no news; its log is asked if need be."""
        position, until = self._idle.get(name, ("", 0))
        known = max(until if position == mark.position else 0, mark.committed_at)
        if latest <= known + int(self._request.skew * 1_000_000):
            return known
        try:
            end = self._log(self._find(name)).current()
        except CannotFinish:
            return known
        if not _reached(mark, end):
            return known
        # Others had got this far when its log had nothing more: what comes from now on is later.
        self._idle[name] = mark.position, latest
        return latest

    def _hold_back(
        self, name: str, before: Mark, after: Mark, end: Mark | None, bound: int
    ) -> Mark:
        """The furthest of the shard's steps that does not run ahead of the bound."""
        if after == before or after.committed_at <= bound:
            return after
        if before.committed_at > bound:
            return before
        budget = after.written - before.written
        while budget > 1:
            budget //= 2
            shorter = self._move(name, before, end, budget, 0.0)
            if shorter == before:
                return before
            after = shorter
            if after.committed_at <= bound or after.written - before.written > budget:
                break
        return after

    def _beat(self, start: Offset) -> Offset:
        period = self._request.heartbeat
        if not period or time.monotonic() - self._beat_at < period:
            return start
        self._beat_at = time.monotonic()
        return replace(start, beat=time.time_ns() // 1000)

    def parts(self, start: Offset, end: Offset, count: int) -> list[Part]:
        """What executors read between two offsets."""
        times = [mark.committed_at for mark in start.marks.values()]
        restart_at = min(times) if times and all(times) else 0
        found: list[Part] = []
        for name, mark in end.marks.items():
            before = start.marks.get(name)
            if before is None or before == mark:
                continue
            shard = self._find(name)
            pieces = self._log(shard).split(before, mark, count)
            found += [self._shard_part(shard, piece, restart_at) for piece in pieces]
        if end.beat != start.beat:
            found.append(HeartbeatPart(dict(end.marks), end.beat, restart_at))
        return found

    def _shard_part(self, shard: Shard, part: Part, restart_at: int) -> ShardPart:
        name = self._name(shard)
        if self._request.key_range.covers(shard.key_range):
            return ShardPart(name, part, restart_at)
        return ShardPart(name, part, restart_at, self._request.key_range, self._keyspace.sharding)

    def lag(self, offset: Offset) -> Lag:
        """Of the shard that is furthest behind in time, and the bytes of all."""
        lags = []
        for name, mark in offset.marks.items():
            # One that does not answer is told of by `advance`, if it still matters.
            with suppress(CannotFinish):
                lags.append(self._log(self._find(name)).lag(mark))
        return Lag(sum(lag.bytes for lag in lags), max((lag.seconds for lag in lags), default=0.0))

    def release(self, offset: Offset) -> None:
        """Nothing before this offset will be asked for again."""
        for name, mark in offset.marks.items():
            # What is not released now is released next time.
            with suppress(CannotFinish):
                self._log(self._find(name)).release(mark)

    # Reshards

    def _resharding_in_time(self, start: Offset, limit: Offset | None) -> Offset | None:
        """The step to new shards; their servers may need a while."""
        try:
            hopped = self._resharding(start, limit)
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

    def _resharding(self, start: Offset, limit: Offset | None) -> Offset | None:
        """The step from old shards to new ones, once all old ones of a group are read to their end."""
        serving = {self._name(shard): shard for shard in self._wanted_shards()}
        leaving = {name: self._find(name) for name in start.marks if name not in serving}
        self._forget_stops(leaving)
        if not leaving:
            return None
        read = [
            shard
            for name, shard in leaving.items()
            if self._is_read(name, start.marks[name], limit)
        ]
        if not read:
            return None
        standing = Standing(
            tuple(leaving.values()),
            tuple(shard for name, shard in serving.items() if name in start.marks),
            tuple(shard for name, shard in serving.items() if name not in start.marks),
            tuple(
                s for s in self._keyspace.shards if s not in (*leaving.values(), *serving.values())
            ),
            self._request.key_range,
        )
        for hop in plan_hops(standing, self._fed_by):
            if set(read).issuperset(hop.sources):
                return self._hop(start, hop)
        return None

    def _forget_stops(self, leaving: Collection[str]) -> None:
        """A shard that serves again has no end."""
        for name in self._stops.keys() - leaving:
            del self._stops[name]
        self._given_up.intersection_update(leaving)
        for name in self._silent_since.keys() - leaving:
            del self._silent_since[name]

    def _is_read(self, name: str, mark: Mark, limit: Offset | None) -> bool:
        """Whether a shard that stops serving was read to its end, or cannot be read any more."""
        if name in self._given_up:
            return True
        if name not in self._stops:
            try:
                self._stops[name] = self._log(self._find(name)).current()
            except CannotFinish:
                now = time.monotonic()
                is_patient = now - self._silent_since.setdefault(name, now) < SOURCE_SECONDS
                if limit is not None and name in limit.marks:
                    raise  # its end was asked for, and only it has that end
                if self._find(name).servers and is_patient:
                    return False
                self._given_up.add(name)
                return True
        return _reached(mark, self._stops[name])

    def _fed_by(self, shard: Shard) -> Collection[str] | None:
        try:
            return self._log(shard).fed_by()
        except CannotFinish:
            if shard.serving:
                raise
            return ()  # an old shard that is not there any more leads nowhere

    def _hop(self, start: Offset, hop: Hop) -> Offset:
        sources = {self._name(shard): shard for shard in hop.sources}
        if self._request.stop_on_reshard:
            names = ", ".join(self._name(shard) for shard in hop.destinations)
            raise Resharded(
                f"the keyspace {self._keyspace.name} was resharded: {', '.join(sources)} gave way to {names};"
                f" everything up to {start.token()} was given"
            )
        entered = {}
        for shard in hop.destinations:
            origins = {
                name: start.marks[name].position
                for name, source in sources.items()
                if source.key_range.overlaps(shard.key_range)
            }
            entered[self._name(shard)] = self._enter(shard, origins, start.left)
        return self._leave(start, sources, entered)

    def _leave(self, start: Offset, names: Collection[str], entered: Mapping[str, Mark]) -> Offset:
        """The offset without some shards and with others, which remembers where it left the former."""
        marks = {name: mark for name, mark in start.marks.items() if name not in names}
        marks.update(entered)
        known = {self._name(shard) for shard in self._keyspace.shards} - marks.keys()
        left = {**start.left, **{name: start.marks[name] for name in names}}
        return Offset(marks, start.beat, {n: m for n, m in left.items() if n in known})

    def _enter(self, shard: Shard, origins: Mapping[str, str], left: Mapping[str, Mark]) -> Mark:
        """Where a destination is read from; not before the point up to which it was read when it served before."""
        before = left.get(self._name(shard))
        try:
            mark = self._log(shard).seek_origin(origins)
        except LogGone:
            if before is None:
                raise
            return before
        return before if before is not None and _reached(before, mark) else mark

    def _reload(self) -> None:
        stamp = self._file_stamp()
        if stamp == self._stamp:
            return
        try:
            self._keyspace = self._request.keyspace()
        except UsageError:
            # Somebody is writing it; a file that stays wrong is told.
            now = time.monotonic()
            self._unreadable_since = self._unreadable_since or now
            if now - self._unreadable_since > _UNREADABLE_SECONDS:
                raise
            return
        self._unreadable_since = 0.0
        self._stamp = stamp

    def _file_stamp(self) -> tuple[int, ...]:
        if not self._request.is_keyspace:
            return ()
        try:
            stat = Path(self._request.endpoint).stat()
        except OSError:
            return ()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    # Shards

    def _wanted_shards(self) -> list[Shard]:
        wanted = self._request.key_range
        return [shard for shard in self._keyspace.serving if wanted.overlaps(shard.key_range)]

    def _serving(self) -> list[ShardLog]:
        return [self._log(shard) for shard in self._wanted_shards()]

    def _name(self, shard: Shard) -> str:
        return shard.name if self._request.is_keyspace else self._request.name

    def _find(self, name: str) -> Shard:
        """A shard by its name; one that was taken out of the file is known by its key range alone."""
        for shard in self._keyspace.shards:
            if self._name(shard) == name:
                return shard
        unknown = UsageError(f"the token is of shard {name}, and there is none of that name here")
        if not self._request.is_keyspace:
            raise unknown
        try:
            return Shard(parse_key_range(name), (), serving=False)
        except UsageError:
            raise unknown from None

    def _log(self, shard: Shard) -> ShardLog:
        name = self._name(shard)
        servers = tuple(parse_endpoint(url) for url in shard.servers)
        known = self._shards.get(name)
        if known is None or known.servers != servers:
            if known is not None:
                known.close()
            wanted = wanted_of(self._request, name)
            known = self._shards[name] = ShardLog(servers, wanted, self._request.max_lag)
        return known


def wanted_of(request: Request, shard: str) -> Wanted:
    """What the request wants of one shard."""
    return Wanted(shard, request.tables, request.keys_only, dict(request.settings))


def _find_point(log: ShardLog, point: str | int) -> Mark:
    now = time.time_ns() // 1000
    if isinstance(point, int):
        try:
            mark = log.seek_time(point)
        except LogGone as error:
            when = datetime.fromtimestamp(point / 1e6, UTC).isoformat(timespec="seconds")
            raise LogGone(f"no log of shard {log.name} reaches back to {when}: {error}") from None
        # The same time leads to the same place again.
        return replace(mark, committed_at=min(point, now - RESTART_MARGIN // _MICROSECOND))
    mark = log.oldest() if point == "start" else log.current()
    if mark.committed_at or (point == "start" and not _reached(mark, log.current())):
        return mark
    return replace(mark, committed_at=now - RESTART_MARGIN // _MICROSECOND)


def _plain(marks: Mapping[str, Mark]) -> dict[str, Any]:
    return {shard: mark.plain() for shard, mark in marks.items()}


def _reached(mark: Mark, end: Mark) -> bool:
    if mark.position == end.position:
        return True
    try:
        return contains(parse_position(mark.position), parse_position(end.position))
    except UsageError:
        return False


def _clip(before: Mark, moved: Mark, end: Mark) -> Mark:
    """The end itself where the moved mark is at it or beyond; the definitions there hold here, too."""
    if not _reached(moved, end):
        return moved
    if moved.position == end.position:
        return moved
    # Its time is that of the last transaction before it, which is not earlier than that of the start.
    return replace(
        end,
        schemas=moved.schemas,
        written=moved.written,
        committed_at=end.committed_at or before.committed_at,
    )
