"""The stream of a keyspace: its shards' logs side by side, through reshards.

An endpoint is a keyspace of one shard, so there is one kind of stream. Its offset holds a mark per shard.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.token import CLOCK_BOUND, EventToken, KeyspacePosition
from truecopy.stream.log import Lag, LogGone, Mark, Part
from truecopy.stream.offset import Offset, clip, has_reached
from truecopy.stream.parts import HeartbeatPart, ShardPart
from truecopy.stream.request import Point, Request
from truecopy.stream.resharding import Resharding
from truecopy.stream.shard import ShardLog
from truecopy.stream.shards import Shards
from truecopy.stream.skew import Skew, hold_back

RESTART_MARGIN = timedelta(minutes=1)
"""A log dates a transaction by its last statement's beginning: one that is committed now may be dated before."""

_TURN_SECONDS = 0.02
_MICROSECOND = timedelta(microseconds=1)


class KeyspaceStream:
    """The driver's side of a stream; used by one thread."""

    def __init__(self, request: Request) -> None:
        if request.is_keyspace and request.shard:
            raise UsageError("a keyspace's shards have names of their own: leave shard out")
        self._request = request
        self._shards = Shards(request)
        self._resharding = Resharding(request, self._shards)
        self._skew = Skew(request.skew, self._shards)
        self._beat_at = time.monotonic()

    def close(self) -> None:
        self._shards.close()

    def __enter__(self) -> KeyspaceStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def driver_local(self) -> bool:
        """Whether a shard is a file of this machine, which executors elsewhere cannot open."""
        return any(log.is_driver_local() for log in self._shards.serving_logs())

    # Where to start

    def missing(self) -> list[str]:
        """What keeps the stream from starting, a line each."""
        return [line for log in self._shards.serving_logs() for line in log.missing()]

    def warnings(self) -> list[str]:
        """What the user should know of the sources."""
        return [line for log in self._shards.serving_logs() for line in log.warnings()]

    def left_out(self) -> dict[str, str]:
        """Tables whose changes are not in the stream, and why."""
        logs = self._shards.serving_logs()
        return {table: why for log in logs for table, why in log.left_out().items()}

    def start(self, point: Point) -> Offset:
        """The offset that a user means by `--from`."""
        if isinstance(point, KeyspacePosition):
            return self._resume({token.shard: token for token in point.tokens})
        if isinstance(point, EventToken):
            return self._resume({point.shard: point})
        return Offset({log.name: _find_point(log, point) for log in self._shards.serving_logs()})

    def _resume(self, tokens: Mapping[str, EventToken]) -> Offset:
        serving = self._shards.serving()
        stood_on = [self._shards.find(name) for name in tokens]
        marks = {}
        for name, token in tokens.items():
            position = str(token.position)
            # A shard that gave way to others need not be there any more.
            mark = self._shards.log(name).seek(position) if name in serving else Mark(position)
            marks[name] = replace(mark, committed_at=token.committed_at)
        for name, shard in serving.items():
            is_covered = any(shard.key_range.overlaps(other.key_range) for other in stood_on)
            if name not in tokens and not is_covered:
                marks[name] = self._seek_like(name, tokens)
        return Offset(marks)

    def _seek_like(self, name: str, tokens: Mapping[str, EventToken]) -> Mark:
        """Where a shard is wanted from that the tokens say nothing of: as much earlier as it may lag behind."""
        times = [token.committed_at for token in tokens.values()]
        if not all(times):
            raise UsageError(f"the token says nothing of shard {name}: use one of the keyspace")
        behind = timedelta(seconds=self._request.skew) + CLOCK_BOUND
        return _find_point(self._shards.log(name), max(min(times) - behind // _MICROSECOND, 1))

    def visible(self) -> Offset:
        """Where a snapshot may start: everything before can be read in the tables."""
        return Offset({log.name: log.visible() for log in self._shards.serving_logs()})

    def current(self) -> Offset:
        """The ends of the logs now."""
        return Offset({log.name: log.current() for log in self._shards.serving_logs()})

    # Going on

    def advance(
        self, start: Offset, max_bytes: int, wait: float, limit: Offset | None = None
    ) -> Offset:
        """The next offset, at most `max_bytes` further and not beyond `limit`; `start` when there are no news."""
        self._shards.reload()
        after = self._next(start, max_bytes, wait, limit)
        if after == start:
            return start
        is_resharding = not self._shards.serving().keys() >= after.marks.keys()
        earlier = max(start.slowest - RESTART_MARGIN // _MICROSECOND, 0)
        return replace(after, restart_at=(start.restart_at or earlier) if is_resharding else 0)

    def _next(self, start: Offset, max_bytes: int, wait: float, limit: Offset | None) -> Offset:
        if hopped := self._resharding.next(start, limit):
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
            return has_reached(offset.marks[name], end)
        serving = self._shards.serving()
        if name in serving:
            return False  # the stream is on its way there
        return name in offset.left or serving.keys() >= offset.marks.keys()

    def _turn(self, start: Offset, deadline: float) -> float:
        """How long to wait for one shard: all the time for a single one, else each its turn."""
        left = max(deadline - time.monotonic(), 0.0)
        return left if len(start.marks) == 1 else min(left, _TURN_SECONDS)

    def _step(
        self, start: Offset, max_bytes: int, limit: Offset | None, turn: float
    ) -> dict[str, Mark]:
        budget = max(max_bytes // max(len(start.marks), 1), 1)
        limits = limit.marks if limit else {}
        ends = {name: limits.get(name) or self._resharding.stops.get(name) for name in start.marks}
        after = {
            name: self._move(name, mark, ends[name], budget, turn)
            for name, mark in start.marks.items()
        }
        if len(after) == 1:
            return after
        done = {name for name, mark in after.items() if self._is_done(name, mark, ends[name])}
        bound = self._skew.bound(start.marks, after, done)
        return {
            name: hold_back(
                before, after[name], bound, partial(self._move, name, before, ends[name])
            )
            for name, before in start.marks.items()
        }

    def _is_done(self, name: str, mark: Mark, end: Mark | None) -> bool:
        is_at_end = end is not None and has_reached(mark, end)
        return is_at_end or name in self._resharding.given_up

    def _move(
        self, name: str, mark: Mark, end: Mark | None, budget: int, turn: float = 0.0
    ) -> Mark:
        if self._is_done(name, mark, end):
            return mark
        try:
            moved = self._shards.log(name).advance(mark, budget, turn)
        except CannotFinish:
            if end is None or end is not self._resharding.stops.get(name):
                raise
            self._resharding.given_up.add(name)
            return mark
        return moved if end is None else clip(mark, moved, end)

    def _beat(self, start: Offset) -> Offset:
        period = self._request.heartbeat
        if not period or time.monotonic() - self._beat_at < period:
            return start
        self._beat_at = time.monotonic()
        return replace(start, beat=time.time_ns() // 1000)

    # Reading

    def parts(self, start: Offset, end: Offset, count: int) -> list[Part]:
        """What executors read between two offsets."""
        restart_at = end.restart_at or start.restart_at or start.slowest
        found: list[Part] = []
        for name, mark in end.marks.items():
            before = start.marks.get(name)
            if before is None or before == mark:
                continue
            pieces = self._shards.log(name).split(before, mark, count)
            found += [self._shard_part(name, piece, restart_at) for piece in pieces]
        if end.beat != start.beat:
            found.append(HeartbeatPart(dict(end.marks), end.beat, restart_at))
        return found

    def _shard_part(self, name: str, part: Part, restart_at: int) -> ShardPart:
        wanted = self._request.key_range
        if wanted.covers(self._shards.find(name).key_range):
            return ShardPart(name, part, restart_at)
        return ShardPart(name, part, restart_at, wanted, self._shards.keyspace.sharding)

    def lag(self, offset: Offset) -> Lag:
        """Of the shard that is furthest behind in time, and the bytes of all."""
        lags = []
        for name, mark in offset.marks.items():
            # One that does not answer is told of by `advance`, if it still matters.
            with suppress(CannotFinish):
                lags.append(self._shards.log(name).lag(mark))
        return Lag(sum(lag.bytes for lag in lags), max((lag.seconds for lag in lags), default=0.0))

    def release(self, offset: Offset) -> None:
        """Nothing before this offset will be asked for again."""
        for name, mark in offset.marks.items():
            # What is not released now is released next time.
            with suppress(CannotFinish):
                self._shards.log(name).release(mark)


def _find_point(log: ShardLog, point: str | int) -> Mark:
    latest = time.time_ns() // 1000 - RESTART_MARGIN // _MICROSECOND
    if isinstance(point, int):
        try:
            mark = log.seek_time(point)
        except LogGone as error:
            when = datetime.fromtimestamp(point / 1e6, UTC).isoformat(timespec="seconds")
            raise LogGone(f"no log of shard {log.name} reaches back to {when}: {error}") from None
        # The same time leads to the same place again.
        return replace(mark, committed_at=min(point, latest))
    mark = log.oldest() if point == "start" else log.current()
    if mark.committed_at or (point == "start" and not has_reached(mark, log.current())):
        return mark
    return replace(mark, committed_at=latest)
