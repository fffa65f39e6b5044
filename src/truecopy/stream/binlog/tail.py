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
from truecopy.stream.binlog.table_map import parse_names
from truecopy.stream.binlog.walk import Walk
from truecopy.stream.binlog.wire import ConnectionLost, dump
from truecopy.stream.log import LogGone, Mark
from truecopy.stream.tables import Choice

SAMPLE_BYTES = 128 << 10
AHEAD_BYTES = 1 << 30
RECONNECT_SECONDS = 0.5
GIVE_UP_SECONDS = 60.0


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
    """Follows the log of one server from a boundary on, in a thread of its own."""

    def __init__(
        self, endpoint: Endpoint, choice: Choice, server_ids: range, start: Mark, schemas: Schemas
    ) -> None:
        self._endpoint = endpoint
        self._server = Server(endpoint)
        self._choice = choice
        self._server_ids = server_ids
        self._schemas = schemas
        self._news = threading.Condition()
        self._boundaries = [Boundary(start, 0)]
        self._latest = self._boundaries[0]
        self._wanted_from = start.written
        self._error: TruecopyError | None = None
        self._closed = False
        self._awaited = False
        self._later_statements: list[tuple[tuple[int, int], Statement]] = []
        self._looked_until: Place | None = None
        self._thread = threading.Thread(target=self._run, name="binlog-tail", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        with self._news:
            self._news.notify_all()

    def knows(self, mark: Mark) -> bool:
        return self._index(mark) is not None

    @property
    def latest(self) -> Mark:
        return self._latest.mark

    def next(self, start: Mark, max_bytes: int, wait: float) -> Mark:
        """See `ChangeLog.advance`."""
        deadline = time.monotonic() + wait
        with self._news:
            self._wanted_from = start.written
            self._forget_before(start)
            self._news.notify_all()
            while True:
                found = self._choose(start, max_bytes)
                if found is not None:
                    return found.mark
                if self._error is not None:
                    raise self._error
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._awaited = True
                self._news.wait(left)
                self._awaited = False
        return start

    def between(self, start: Mark, end: Mark) -> list[Boundary]:
        """The boundaries from `start` to `end`, both included; empty where the tail did not see them."""
        with self._news:
            first, last = self._index(start), self._index(end)
            if first is None or last is None:
                return []
            return self._boundaries[first : last + 1]

    def _choose(self, start: Mark, max_bytes: int) -> Boundary | None:
        latest = self._latest
        if latest.number > self._boundaries[-1].number:
            self._boundaries.append(latest)
        first = self._index(start)
        if first is None or first + 1 >= len(self._boundaries):
            return None
        chosen = self._boundaries[first + 1]
        for boundary in self._boundaries[first + 1 :]:
            if boundary.mark.written - start.written > max_bytes:
                break
            chosen = boundary
            if boundary.hard:
                break
        return chosen

    def _index(self, mark: Mark) -> int | None:
        for i, boundary in enumerate(self._boundaries):
            if boundary.mark.position == mark.position and (
                boundary.mark.place == mark.place or not mark.place
            ):
                return i
        return None

    def _forget_before(self, start: Mark) -> None:
        first = self._index(start)
        if first:
            del self._boundaries[:first]

    # The thread

    def _run(self) -> None:
        failing_since = 0.0
        while not self._closed:
            try:
                before = self._latest.number
                self._follow()
            except ConnectionLost as error:
                # A server that restarts comes back; what was seen stays seen.
                if self._latest.number > before or not failing_since:
                    failing_since = time.monotonic()
                if time.monotonic() - failing_since > GIVE_UP_SECONDS:
                    self._fail(error)
                    return
                time.sleep(RECONNECT_SECONDS)
            except LogGone as error:
                self._fail(error)
                return
            except TruecopyError as error:
                if failing_since and time.monotonic() - failing_since < GIVE_UP_SECONDS:
                    time.sleep(RECONNECT_SECONDS)
                    continue
                self._fail(error)
                return
            except (ValueError, LookupError, struct.error) as error:
                self._fail(CannotFinish(f"the log of {self._endpoint} cannot be read: {error}"))
                return

    def _fail(self, error: TruecopyError) -> None:
        with self._news:
            self._error = error
            self._news.notify_all()

    def _follow(self) -> None:
        start = self._latest.mark
        place = Place.parse(start.place)
        if place is not None and not self._server.still_has(place, start.position):
            place = None
        at = (place.file, place.offset) if place else None
        position = None if at else parse_position(start.position)
        with dump(
            self._endpoint, self._server_ids, place=at, position=position, blocking=True
        ) as pieces:
            walked = Walk(pieces, self._endpoint, at or ("", 4), start.position, self._server.name)
            self._watch(walked, start.written)

    def _watch(self, walked: Walk, written: int) -> None:
        """Notes boundaries until the connection ends; `written` is where the log stands at the start."""
        server, choice, schemas = self._server.name, self._choice, self._schemas
        number, sampled = self._latest.number, written
        offset, file = walked.offset, walked.file
        seen: set[bytes] = set()
        has_rows = changed = False
        for what, detail, buf, start, end in walked.steps():
            if what == walk.END:
                # Bytes of this file since the last boundary; a new file starts at its head.
                written += max(walked.offset - (offset if walked.file == file else 4), 0)
                offset, file = walked.offset, walked.file
                number += 1
                mark = Mark(
                    walked.position,
                    f"{file}:{offset}@{server}",
                    walked.committed_at,
                    written,
                    schemas.set_id,
                )
                self._latest = latest = Boundary(mark, number)
                if written - sampled >= SAMPLE_BYTES:
                    sampled = written
                    self._sample(latest)
                elif self._awaited:
                    with self._news:
                        self._news.notify_all()
                if self._closed:
                    return
            elif what == walk.TABLE:
                raw = buf[start:end]
                if raw not in seen and choice.wants(*parse_names(raw)):
                    if changed and has_rows:
                        self._sample(replace(self._latest, hard=True))
                        has_rows = False
                    changed = False
                    schemas.see(raw, lambda: self._later(walked))
                    has_rows = True
                    seen.add(raw)
            elif what == walk.STATEMENT:
                statement = parse_statement(detail.text, detail.database)
                if schemas.apply(statement):
                    changed = True
                    seen.clear()

    def _sample(self, boundary: Boundary) -> None:
        """Keeps a boundary, and waits while the tail is too far ahead of what was asked for."""
        with self._news:
            if boundary.number > self._boundaries[-1].number:
                self._boundaries.append(boundary)
            elif boundary.number == self._boundaries[-1].number:
                self._boundaries[-1] = boundary
            self._news.notify_all()
            while not self._closed and boundary.mark.written - self._wanted_from > AHEAD_BYTES:
                self._news.wait(1)

    def _later(self, walked: Walk) -> list[Statement]:
        """The statements from here to the end of the log as it is now."""
        here = Place(walked.file, walked.offset, self._server.name)
        start = self._looked_until
        if start is None or start.order < here.order:
            start, self._later_statements = here, []
        with dump(
            self._endpoint, self._server_ids, place=(start.file, start.offset), blocking=False
        ) as pieces:
            ahead = Walk(pieces, self._endpoint, (start.file, start.offset), "", self._server.name)
            for what, detail, *_ in ahead.steps():
                if what == walk.STATEMENT:
                    statement = parse_statement(detail.text, detail.database)
                    place = Place(ahead.file, ahead.offset, "")
                    self._later_statements.append((place.order, statement))
            self._looked_until = Place(ahead.file, ahead.offset, self._server.name)
        return [found for order, found in self._later_statements if order > here.order]
