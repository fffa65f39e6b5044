"""The stream of a keyspace: its shards' logs side by side, through reshards.

An endpoint is a keyspace of one shard, so there is one kind of stream. Its offset holds a mark per
shard. When the serving shards change, the shards that stop serving are read to their end; then, in one
step that reads nothing, they leave the offset and the shards that took over enter it, at the place in
their logs up to which filtered replication had brought them what was read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.keyspace import Shard
from truecopy.model.position import contains, parse_position
from truecopy.model.token import EventToken, KeyspacePosition
from truecopy.stream.log import Lag, Mark, Part, Wanted
from truecopy.stream.parts import HeartbeatPart, ShardPart
from truecopy.stream.request import Point, Request
from truecopy.stream.shard import ShardLog

_TURN_SECONDS = 0.02
_UNREADABLE_SECONDS = 10.0


class Resharded(CannotFinish):
    """The serving shards changed, and the stream was asked to end then."""


@dataclass(frozen=True)
class Offset:
    """Where the stream of a keyspace stands; `beat` is the time of its last heartbeat, in microseconds."""

    marks: Mapping[str, Mark]
    beat: int = 0

    def plain(self) -> dict[str, Any]:
        return {"shards": {s: m.plain() for s, m in self.marks.items()}, "beat": self.beat}

    @classmethod
    def parse(cls, plain: Mapping[str, Any]) -> Offset:
        marks = {shard: Mark(**mark) for shard, mark in plain["shards"].items()}
        return cls(marks, plain.get("beat", 0))

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
        self._request = request
        self._keyspace = request.keyspace()
        self._stamp = self._file_stamp()
        self._unreadable_since = 0.0
        self._shards: dict[str, ShardLog] = {}
        self._stops: dict[str, Mark] = {}
        self._beat_at = time.monotonic()
        if request.is_keyspace and request.shard:
            raise UsageError("a keyspace's shards have names of their own: leave shard out")

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
        known = {self._name(shard) for shard in self._keyspace.shards}
        for name in tokens:
            if name not in known:
                raise UsageError(
                    f"the token is of shard {name}, and there is none of that name here"
                )
        times = [token.committed_at for token in tokens.values() if token.committed_at]
        marks = {}
        shards = [shard for shard in self._keyspace.shards if self._name(shard) in tokens]
        # A token of one shard says when the others are wanted from.
        for serving in self._wanted_shards():
            if serving not in shards and not any(
                serving.key_range.overlaps(other.key_range) for other in shards
            ):
                shards.append(serving)
        for shard in shards:
            name = self._name(shard)
            if name in tokens:
                token = tokens[name]
                mark = self._log(shard).seek(str(token.position))
                marks[name] = replace(mark, committed_at=token.committed_at)
            elif times:
                marks[name] = self._log(shard).seek_time(min(times))
            else:
                raise UsageError(f"the token says nothing of shard {name}: use one of the keyspace")
        return Offset(marks)

    def current(self) -> Offset:
        """The ends of the logs now."""
        return Offset({log.name: log.current() for log in self._serving()})

    # Going on

    def advance(
        self, start: Offset, max_bytes: int, wait: float, limit: Offset | None = None
    ) -> Offset:
        """The next offset, at most `max_bytes` further and not beyond `limit`; `start` when there are no news."""
        self._reload()
        resharding = self._resharding(start)
        if resharding is not None:
            return resharding
        deadline = time.monotonic() + wait
        while True:
            marks = self._step(start, max_bytes, limit, self._turn(start, deadline))
            if marks != start.marks:
                self._beat_at = time.monotonic()
                return Offset(marks, start.beat)
            if time.monotonic() >= deadline:
                return self._beat(start)

    def has_reached(self, offset: Offset, limit: Offset) -> bool:
        """Whether every shard of the offset is at the limit or beyond."""
        return all(
            _reached(mark, limit.marks[name])
            for name, mark in offset.marks.items()
            if name in limit.marks
        )

    def _turn(self, start: Offset, deadline: float) -> float:
        """How long to wait for one shard: all the time for a single one, else each its turn."""
        left = max(deadline - time.monotonic(), 0.0)
        return left if len(start.marks) == 1 else min(left, _TURN_SECONDS)

    def _step(
        self, start: Offset, max_bytes: int, limit: Offset | None, turn: float
    ) -> dict[str, Mark]:
        budget = max(max_bytes // max(len(start.marks), 1), 1)
        marks = {}
        for name, mark in start.marks.items():
            end = self._stops.get(name) or (limit.marks.get(name) if limit else None)
            if end is not None and _reached(mark, end):
                marks[name] = mark
                continue
            moved = self._log(self._find(name)).advance(mark, budget, turn)
            marks[name] = _clip(moved, end) if end is not None else moved
        return self._hold_back(start.marks, marks)

    def _hold_back(self, before: Mapping[str, Mark], after: dict[str, Mark]) -> dict[str, Mark]:
        """Leaves a shard where it was that would run too far ahead of the slowest one."""
        moved = {name: mark for name, mark in after.items() if mark != before[name]}
        if len(moved) < 2:
            return after
        slowest = min(mark.committed_at for mark in moved.values())
        bound = slowest + int(self._request.skew * 1_000_000)
        return {
            name: before[name] if name in moved and before[name].committed_at > bound else mark
            for name, mark in after.items()
        }

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
        lags = [self._log(self._find(name)).lag(mark) for name, mark in offset.marks.items()]
        return Lag(sum(lag.bytes for lag in lags), max((lag.seconds for lag in lags), default=0.0))

    def release(self, offset: Offset) -> None:
        """Nothing before this offset will be asked for again."""
        for name, mark in offset.marks.items():
            if any(self._name(shard) == name for shard in self._keyspace.shards):
                self._log(self._find(name)).release(mark)

    # Reshards

    def _resharding(self, start: Offset) -> Offset | None:
        """The step from old shards to new ones, once all old ones of a group are read to their end."""
        serving = {self._name(shard): shard for shard in self._wanted_shards()}
        leaving = [self._find(name) for name in start.marks if name not in serving]
        if not leaving:
            self._stops.clear()
            return None
        arriving = [shard for name, shard in serving.items() if name not in start.marks]
        for shard in leaving:
            name = self._name(shard)
            if name not in self._stops:
                self._stops[name] = self._log(shard).current()
        for group in _groups(leaving, arriving):
            sources = {self._name(s): s for s in group if s in leaving}
            if all(_reached(start.marks[name], self._stops[name]) for name in sources):
                return self._hop(start, sources, [s for s in group if s in arriving])
        return None

    def _hop(
        self, start: Offset, sources: Mapping[str, Shard], destinations: Sequence[Shard]
    ) -> Offset:
        if self._request.stop_on_reshard:
            names = ", ".join(self._name(shard) for shard in destinations)
            raise Resharded(
                f"the keyspace {self._keyspace.name} was resharded: {', '.join(sources)} gave way to {names};"
                f" everything up to {start.token()} was given"
            )
        marks = {name: mark for name, mark in start.marks.items() if name not in sources}
        for shard in destinations:
            origins = {
                name: start.marks[name].position
                for name, source in sources.items()
                if source.key_range.overlaps(shard.key_range)
            }
            marks[self._name(shard)] = self._log(shard).seek_origin(origins)
        return Offset(marks, start.beat)

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

    def _file_stamp(self) -> tuple[int, int]:
        if not self._request.is_keyspace:
            return 0, 0
        try:
            stat = Path(self._request.endpoint).stat()
        except OSError:
            return 0, 0
        return stat.st_mtime_ns, stat.st_size

    # Shards

    def _wanted_shards(self) -> list[Shard]:
        wanted = self._request.key_range
        return [shard for shard in self._keyspace.serving if wanted.overlaps(shard.key_range)]

    def _serving(self) -> list[ShardLog]:
        return [self._log(shard) for shard in self._wanted_shards()]

    def _name(self, shard: Shard) -> str:
        return shard.name if self._request.is_keyspace else self._request.name

    def _find(self, name: str) -> Shard:
        for shard in self._keyspace.shards:
            if self._name(shard) == name:
                return shard
        raise UsageError(
            f"the stream stands on shard {name}, which the keyspace {self._keyspace.name} does not have any more:"
            " keep old shards in the file, with serving: false, until the stream has left them"
        )

    def _log(self, shard: Shard) -> ShardLog:
        name = self._name(shard)
        if name not in self._shards:
            servers = tuple(parse_endpoint(url) for url in shard.servers)
            wanted = wanted_of(self._request, name)
            self._shards[name] = ShardLog(servers, wanted, self._request.max_lag)
        return self._shards[name]


def wanted_of(request: Request, shard: str) -> Wanted:
    """What the request wants of one shard."""
    return Wanted(shard, request.tables, request.keys_only, dict(request.settings))


def _find_point(log: ShardLog, point: str | int) -> Mark:
    if isinstance(point, int):
        return log.seek_time(point)
    return log.oldest() if point == "start" else log.current()


def _reached(mark: Mark, end: Mark) -> bool:
    if mark.position == end.position:
        return True
    try:
        return contains(parse_position(mark.position), parse_position(end.position))
    except UsageError:
        return False


def _clip(mark: Mark, end: Mark) -> Mark:
    """The end itself where the mark is at it or beyond; the definitions of the mark hold there, too."""
    if not _reached(mark, end):
        return mark
    return replace(end, schemas=mark.schemas, committed_at=end.committed_at or mark.committed_at)


def _groups(leaving: Iterable[Shard], arriving: Iterable[Shard]) -> list[list[Shard]]:
    """Shards that hang together by overlapping: each group can hop on its own."""
    groups: list[list[Shard]] = []
    for shard in (*leaving, *arriving):
        touching = [g for g in groups if any(s.key_range.overlaps(shard.key_range) for s in g)]
        groups = [g for g in groups if g not in touching]
        groups.append([s for g in touching for s in g] + [shard])
    return groups
