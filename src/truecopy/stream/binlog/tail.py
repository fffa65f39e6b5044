"""The driver's eye on a log: follows it to its end and remembers where transactions end.

Executors decode; the tail only looks at what events are, so it stays far ahead of them. It keeps the
boundaries it has seen, some 100 KB apart, as places where a range of the log may be cut, and waits when
nobody has asked for anything near where it is.
"""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import dataclass, replace

from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.position import parse_position
from truecopy.stream.binlog import walk
from truecopy.stream.binlog.ddl import Statement, parse_statement
from truecopy.stream.binlog.place import Place
from truecopy.stream.binlog.schemas import Schemas
from truecopy.stream.binlog.server import Server
from truecopy.stream.binlog.table_map import parse_names, parse_table_map
from truecopy.stream.binlog.walk import Walk
from truecopy.stream.binlog.wire import ConnectionLost, Pieces, dump
from truecopy.stream.log import LogGone, Mark
from truecopy.stream.tables import Choice

SAMPLE_BYTES = 128 << 10
SAMPLE_MICROSECONDS = 1_000_000
"""Boundaries are no further apart in time, so that no shard of a keyspace has to run far ahead of others."""

MOST_BOUNDARIES = 50_000
AHEAD_BYTES = 1 << 30
RECONNECT_SECONDS = 0.5
GIVE_UP_SECONDS = 60.0
QUIET_SECONDS = 5.0
# A log that grows so much from one look to the next is a backlog: larger batches get through it sooner.
LOOK_SECONDS, BACKLOG_BYTES = 0.03, 1 << 20
_SEEN_MAPS = 65_536


@dataclass(frozen=True)
class Boundary:
    """The end of a transaction.

    Attributes:
        number: How many transactions the tail saw before it.
        hard: No batch may step over it: after it a table's definition is another one.
    """

    mark: Mark
    number: int
    hard: bool = False


class Tail:
    """Follows the log of one server from a boundary on, in a thread of its own.

    Boundaries are kept some `apart` bytes from each other: near enough for batches of few bytes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        choice: Choice,
        server_ids: range,
        start: Mark,
        schemas: Schemas,
        apart: int = SAMPLE_BYTES,
    ) -> None:
        self._apart = apart
        self._endpoint = endpoint
        self._server = Server(endpoint)
        self._choice = choice
        self._server_ids = server_ids
        self._schemas = schemas
        self._later = _LaterStatements(endpoint, server_ids)
        self._news = threading.Condition()
        self._boundaries = [Boundary(start, 0)]
        # The end of the last transaction, as long as nobody was told of it.
        self._reached: tuple[str, str, int, int, int] | None = None
        self._number = 0
        # The end of the last transaction, the log's bytes until there, and what was said of last.
        self._end, self._written, self._sampled, self._dated = ("", 0), 0, 0, 0
        self._seen: set[bytes] = set()
        self._wanted_from = start.written
        self._given = 0
        self._error: TruecopyError | None = None
        self._failing_since: float | None = None
        self._heard = 0.0
        self._doubted: Place | None = None
        self._closed = False
        self._pieces: Pieces | None = None
        self._thread = threading.Thread(target=self._run, name="binlog-tail", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()
        if self._pieces is not None:
            self._pieces.stop()
        self._thread.join(5)

    def knows(self, mark: Mark) -> bool:
        with self._news:
            found = self._index(mark)
            if found is not None:
                self._given = max(self._given, self._boundaries[found].number)
            return found is not None

    def next(self, start: Mark, max_bytes: int, wait: float) -> Mark:
        """See `ChangeLog.advance`."""
        deadline = time.monotonic() + wait
        with self._news:
            self._wanted_from = start.written
            del self._boundaries[: self._index(start)]
            self._news.notify_all()
            gathered = None
            while True:
                found = self._choose(start, max_bytes)
                left = deadline - time.monotonic()
                if found is not None:
                    size = found.mark.written - start.written
                    grows = gathered is None or size - gathered >= BACKLOG_BYTES
                    if found.hard or not grows or size >= max_bytes // 2 or left <= 0:
                        self._given = max(self._given, found.number)
                        return found.mark
                    gathered = size
                    self._news.wait_for(lambda: self._error is not None, min(left, LOOK_SECONDS))
                    continue
                if self._error is not None:
                    raise self._error
                if left <= 0:
                    return start
                self._news.wait(left)

    def between(self, start: Mark, end: Mark) -> list[Boundary]:
        """The boundaries from `start` to `end`, both included; empty where the tail did not see them."""
        with self._news:
            first, last = self._index(start), self._index(end)
            if first is None or last is None:
                return []
            return self._boundaries[first : last + 1]

    def _choose(self, start: Mark, max_bytes: int) -> Boundary | None:
        chosen = None
        for boundary in self._boundaries[1:]:
            if chosen and boundary.mark.written - start.written > max_bytes:
                break
            chosen = boundary
            if boundary.hard:
                break
        return chosen

    def _index(self, mark: Mark) -> int | None:
        for i, boundary in enumerate(self._boundaries):
            if boundary.mark.position == mark.position and boundary.mark.place == mark.place:
                return i
        return None

    # The thread

    def _run(self) -> None:
        while not self._closed:
            try:
                self._follow()
            except LogGone as error:
                self._fail(error)
            except TruecopyError as error:
                # A server that restarts comes back, and refuses connections meanwhile.
                now = time.monotonic()
                if not isinstance(error, ConnectionLost) and self._failing_since is None:
                    self._fail(error)
                self._failing_since = self._failing_since or now
                if now - self._failing_since > GIVE_UP_SECONDS:
                    self._fail(error)
            except (ValueError, LookupError, struct.error) as error:
                self._fail(CannotFinish(f"the log of {self._endpoint} cannot be read: {error}"))
            with self._news:
                self._news.wait_for(lambda: self._closed, RECONNECT_SECONDS)
        self._server.close()

    def _fail(self, error: TruecopyError) -> None:
        with self._news:
            self._error = error
            self._closed = True
            self._news.notify_all()

    def _follow(self) -> None:
        start, self._number = self._boundaries[-1].mark, self._boundaries[-1].number
        place = Place.parse(start.place)
        if place is not None and not self._server.still_has(place, start.position):
            place = None
        with dump(
            self._endpoint,
            self._server_ids,
            place=place,
            position=parse_position(start.position),
            blocking=True,
        ) as pieces:
            self._pieces = pieces
            walked = Walk(pieces, self._endpoint, start.position, self._server.name, verify=False)
            self._heard = time.monotonic()
            pieces.before_waiting = lambda: self._pause(walked)
            try:
                self._watch(walked, start.written)
            finally:
                self._publish()

    def _pause(self, walked: Walk) -> None:
        """Everything that has arrived was looked at."""
        if self._closed:
            raise ConnectionLost("closed")
        now = time.monotonic()
        if self._reached is not None:
            self._failing_since, self._heard = None, now
            self._publish()
        elif now - self._heard > QUIET_SECONDS:
            self._heard = now
            self._doubt(walked)

    def _doubt(self, walked: Walk) -> None:
        """A log that was reset under a dump's eyes stays quiet for ever, while the new one grows."""
        here, end = Place(walked.file, walked.offset, self._server.name), self._server.end()
        if here != end and here == self._doubted:
            raise ConnectionLost(f"{self._endpoint} stopped sending its log at {here}")
        self._doubted = here

    def _watch(self, walked: Walk, written: int) -> None:
        """Notes boundaries until the connection ends; `written` is where the log stands at the start."""
        schemas, seen = self._schemas, self._seen
        seen.clear()
        self._end, self._written = (walked.file, walked.offset), written
        self._sampled, self._dated = written, 0
        for what, detail, buf, start, end in walked.strides():
            if what == walk.SMALL:
                starts, ends = detail.tables.start.tolist(), detail.tables.end.tolist()
                for table, table_end, position, offset, committed_at in zip(
                    starts, ends, detail.positions, detail.offsets, detail.committed_at, strict=True
                ):
                    if buf[table:table_end] not in seen:
                        self._see(buf[table:table_end], walked)
                    self._ended(walked, position, offset, committed_at)
            elif what == walk.END:
                self._ended(walked, walked.position, walked.offset, walked.committed_at)
            elif what == walk.TABLE:
                if buf[start:end] not in seen:
                    self._see(buf[start:end], walked)
            elif what == walk.STATEMENT:
                statement = parse_statement(detail.text, detail.database)
                if schemas.changes(statement):
                    self._publish(hard=True)
                    schemas.apply(statement)
                    seen.clear()

    def _ended(self, walked: Walk, position: str, offset: int, committed_at: int) -> None:
        """A transaction has ended there, in the file in which the walk is."""
        file, last = self._end
        if walked.file != file:
            last = walked.begun_at
        self._end = walked.file, offset
        self._written += offset - last
        self._number += 1
        self._reached = position, walked.file, offset, committed_at, self._written
        self._dated = self._dated or committed_at
        if (
            self._written - self._sampled >= self._apart
            or committed_at - self._dated >= SAMPLE_MICROSECONDS
        ):
            self._sampled, self._dated = self._written, committed_at
            self._publish()

    def _see(self, raw: bytes, walked: Walk) -> None:
        if len(self._seen) >= _SEEN_MAPS:
            self._seen.clear()
        self._seen.add(raw)
        if self._choice.wants(*parse_names(raw)):
            table_map = parse_table_map(raw)
            if self._schemas.contradicts(table_map):
                self._publish(hard=True)
            here = Place(walked.file, walked.offset, self._server.name)
            self._schemas.see(table_map, lambda: self._later.after(here))

    def _publish(self, hard: bool = False) -> None:
        """Tells of the last boundary, and waits while the tail is too far ahead of what was asked for."""
        reached, self._reached = self._reached, None
        with self._news:
            if reached is not None:
                position, file, offset, committed_at, written = reached
                place = f"{file}:{offset}@{self._server.name}"
                mark = Mark(position, place, committed_at, written, self._schemas.set_id)
                self._keep(Boundary(mark, self._number, hard))
            elif hard:
                self._boundaries[-1] = replace(self._boundaries[-1], hard=True)
            self._news.notify_all()
            while not self._closed and self._is_far_ahead():
                self._news.wait(1)

    def _is_far_ahead(self) -> bool:
        ahead = self._boundaries[-1].mark.written - self._wanted_from
        return ahead > AHEAD_BYTES or len(self._boundaries) > MOST_BOUNDARIES

    def _keep(self, boundary: Boundary) -> None:
        """In the place of the last one, where that is near, nobody has it, and it may be stepped over."""
        kept = self._boundaries
        is_free = len(kept) > 1 and kept[-1].number > self._given and not kept[-1].hard
        if is_free and self._is_near(kept[-2].mark, boundary.mark):
            kept[-1] = boundary
        else:
            kept.append(boundary)

    def _is_near(self, one: Mark, later: Mark) -> bool:
        in_bytes = later.written - one.written < self._apart
        return in_bytes and later.committed_at - one.committed_at < SAMPLE_MICROSECONDS


class _LaterStatements:
    """The statements between a place and the end of the log; what was read once is not read again."""

    def __init__(self, endpoint: Endpoint, server_ids: range) -> None:
        self._endpoint = endpoint
        self._server_ids = server_ids
        self._found: list[tuple[tuple[int, int], Statement]] = []
        self._until: Place | None = None

    def after(self, here: Place) -> list[Statement]:
        if self._until is None or self._until.order < here.order:
            self._until, self._found = here, []
        with dump(self._endpoint, self._server_ids, place=self._until, blocking=False) as pieces:
            ahead = Walk(pieces, self._endpoint, "", here.server, verify=False)
            for what, detail, *_ in ahead.steps():
                if what == walk.STATEMENT:
                    order = Place(ahead.file, ahead.offset, "").order
                    statement = parse_statement(detail.text, detail.database)
                    self._found.append((order, statement))
            self._until = Place(ahead.file, ahead.offset, here.server)
        return [statement for order, statement in self._found if order > here.order]
