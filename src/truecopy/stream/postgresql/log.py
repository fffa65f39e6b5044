"""PostgreSQL's log as the driver sees it: boundaries in the spool, which a receiver fills."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Self

from truecopy.engines.postgresql import PostgreSQL
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import ORIGIN_TABLE
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.spark import state_folder
from truecopy.stream.log import Lag, Level, LogGone, Mark, Part, Wanted
from truecopy.stream.origins import hop_point
from truecopy.stream.postgresql import server
from truecopy.stream.postgresql.folder import Folder, open_folder
from truecopy.stream.postgresql.lsn import lsn_text, parse_lsn, time_text
from truecopy.stream.postgresql.names import number_setting, stream_names
from truecopy.stream.postgresql.part import SpoolPart
from truecopy.stream.postgresql.receiver import Home, Passed, Receiver
from truecopy.stream.postgresql.relations import load_relation
from truecopy.stream.postgresql.spool import STREAM, Boundary, Spool, Transaction

_POLL_SECONDS = 0.05
"""How often to look for what the receiver of another process has written."""
_HOLD_WARNING_BYTES = 1 << 30
_RETRY_SECONDS = 60.0
_CLOCK_DOUBT = 1_000_000
"""A commit may be stamped a moment before it is in the log."""

_NOW = """
SELECT system_identifier::text, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM pg_control_system()
"""
_TARGET = """
SELECT pg_current_wal_insert_lsn()::text, pg_current_wal_flush_lsn()::text,
    3 * extract(epoch FROM current_setting('wal_writer_delay')::interval)::float8
"""


def open_log(endpoint: Endpoint, wanted: Wanted) -> PostgreSQLLog:
    """Opens the stream of a database; makes its publication and its slot where they are missing."""
    return PostgreSQLLog(endpoint, wanted)


def drop(endpoint: Endpoint, wanted: Wanted) -> None:
    """Removes everything that `open_log` made: the slot, the publication, the work folder."""
    names = stream_names(endpoint, wanted)
    with PostgreSQL(endpoint) as session:
        server.drop_from_server(session, names)
    folder = open_folder(names.work)
    folder.clear()
    shutil.rmtree(_home(names.slot, folder).path, ignore_errors=True)


class PostgreSQLLog:
    """See `truecopy.stream.log.ChangeLog`.

    Attributes:
        warnings: What the stream does not carry, and what endangers it; a line each.
        left_out: The tables that it does not carry, and why.
    """

    level = Level.TRANSACTION

    def __init__(self, endpoint: Endpoint, wanted: Wanted) -> None:
        self.endpoint = endpoint
        self.warnings: list[str] = []
        self.left_out: dict[str, str] = {}
        self._wanted = wanted
        self._names = stream_names(endpoint, wanted)
        self._folder = open_folder(self._names.work)
        self._home = _home(self._names.slot, self._folder)
        self._definitions: Definitions | None = None
        self._remembered: set[str] = set()
        self._receiver: Receiver | None = None
        self._spool_: Spool | None = None
        self._session: PostgreSQL | None = None
        try:
            plan = server.plan_publication(self._connect(), self._names, wanted.tables)
            self.left_out = dict(plan.left_out)
            self.warnings += [f"{table} is not streamed: {why}" for table, why in plan.left_out]
            self.warnings += plan.warnings
            self._missing = server.missing(self._connect(), self._names, plan)
            if not self._missing:
                self._prepare(plan)
        except BaseException:
            self.close()
            raise

    # The contract

    def missing(self) -> list[str]:
        return list(self._missing)

    def oldest(self) -> Mark:
        self._spool.reload()
        return self._mark(self._spool.start)

    def current(self) -> Mark:
        passed = self._catch_up(self._target())
        self._spool.refresh()
        end = self._spool.end
        idle_at = max(end.at, passed.at - _CLOCK_DOUBT)
        if passed.lsn <= end.lsn:
            return self._mark(end)
        return replace(self._mark(end), position=lsn_text(passed.lsn), committed_at=idle_at)

    def visible(self) -> Mark:
        from truecopy.stream.postgresql.visibility import visible_position  # which needs this class

        self.current()
        return self.seek(visible_position(self, self._connect(), self.oldest()))

    def seek(self, position: str) -> Mark:
        lsn = parse_lsn(position)
        self._spool.reload()
        if lsn < self._spool.start.lsn:
            raise LogGone(
                f"the stream of {self.endpoint} starts at {lsn_text(self._spool.start.lsn)}, and"
                f" {position} is before that: start anew from a copy"
            )
        if lsn > self._spool.end.lsn:
            if lsn > self._target():
                raise UsageError(
                    f"{position} is behind the end of the log of {self.endpoint}:"
                    " it is a position of another server"
                )
            self._catch_up(lsn)
            self._spool.refresh()
        return replace(self._mark(self._spool.behind(lsn)), position=position)

    def seek_time(self, at: int) -> Mark:
        self._spool.reload()
        if at <= self._spool.start.latest:
            raise LogGone(
                f"no log reaches back to {time_text(at)}: the stream of {self.endpoint} starts at"
                f" {time_text(self._spool.start.latest)}"
            )
        return self._mark(self._spool.before_time(at))

    def advance(self, start: Mark, max_bytes: int, wait: float) -> Mark:
        place = self._place(start)
        deadline = time.monotonic() + wait
        while not (found := self._spool.furthest(place, place + max_bytes)):
            if self._news(deadline - time.monotonic()):
                continue
            passed = self._passed()
            if not self._news(0):  # what it speaks of may have come after the last look
                return _idle(start, passed)
        return self._mark(found)

    def split(self, start: Mark, end: Mark, parts: int) -> Sequence[Part]:
        return self._parts(start, end, parts)

    def _parts(self, start: Mark, end: Mark, parts: int) -> list[SpoolPart]:
        first, last = self._place(start), self._place(end)
        spool = self._spool
        size = last - first
        cuts = {first, last}
        for i in range(1, parts):
            cuts.add(min(last, spool.at_or_after(first + size * i // parts).written))
        places = sorted(cuts)
        self._remember(first, last)
        return [
            SpoolPart(
                folder=self._folder.where,
                pieces=tuple(spool.pieces(begin, stop)),
                relations=tuple(spool.relations_at(begin).items()),
                shard=self._wanted.shard,
                tables=self._wanted.tables,
                keys_only=self._wanted.keys_only,
                renames=self._wanted.settings.get("redefinitions") == "told",
            )
            for begin, stop in pairwise(places)
        ]

    def lag(self, mark: Mark) -> Lag:
        """Bytes of the spool that were not read, and of the WAL that was not received."""
        self._look_at_slot()
        place = self._place(mark)
        self._spool.refresh()
        passed = self._passed()
        target = self._target()
        unreceived = max(0, target - max(passed.lsn if passed else 0, self._spool.end.lsn))
        unread = self._spool.end.written - place
        now = time.time_ns() // 1000
        oldest = next(self._spool.transactions(place), None) if unread else None
        since = oldest.at if oldest else passed.at if passed and passed.at and unreceived else now
        return Lag(unread + unreceived, max(0.0, (now - since) / 1e6))

    def release(self, mark: Mark) -> None:
        keep = int(number_setting(self._wanted, "retain_bytes", 0))
        limit = self._place(mark) - keep
        done = [number for number, end in self._spool.segments()[:-1] if end <= limit]
        if done:
            self._spool.forget(done[-1])

    def seek_origin(self, origins: Mapping[str, str]) -> Mark:
        """Reads the whole spool for what filtered replication recorded."""
        start, end = self.oldest(), self.current()
        log = (
            applied
            for part in self._parts(start, end, 1)
            for applied in part.changing_transactions()
        )
        # What came before the slot was made is not in the spool.
        point = hop_point(
            log, origins, self.fed_by(), start, is_complete=False, where=str(self.endpoint)
        )
        return self.seek(point.position)

    def fed_by(self) -> dict[str, str]:
        session = self._connect()
        name = session.find(ORIGIN_TABLE)
        if name is None:
            return {}
        table = table_sql(session.dialect, name)
        rows = session.fetch(Statement(f"SELECT shard, position FROM {table}"))
        return {str(shard): str(position) for shard, position in rows}

    def fed_since(self) -> int:
        return 0  # a spool begins with its slot, whatever was there before

    def segments(self) -> list[tuple[int, int]]:
        """First and last byte of each segment, counted as marks count them."""
        return self._spool.segments()

    def transactions(self, start: Mark) -> Iterator[Transaction]:
        """The transactions behind a boundary, as far as they were received."""
        place = self._place(start)
        self._spool.refresh()
        return self._spool.transactions(place)

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.stop()
            self._receiver = None
        if self._session is not None:
            self._session.close()
            self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What is made

    def _prepare(self, plan: server.Plan) -> None:
        """The publication comes before the slot: what a slot decodes, it decodes as of its time."""
        session = self._connect()
        server.sync_publication(session, self._names, plan)
        self._folder.make()
        self._home.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        known = self._folder.read(STREAM)
        ((system, now),) = session.fetch(Statement(_NOW))
        slot = server.find_slot(session, self._names)
        if known is None:
            slot = slot or server.make_slot(session, self._names)
            # Numbers of segments go up also when a stream is made anew, as LSNs do.
            origin = Boundary(slot.confirmed, slot.confirmed, now, now)
            document = {"slot": self._names.slot, "system": system, "origin": vars(origin)}
            self._folder.write(STREAM, json.dumps(document).encode())
        else:
            document = json.loads(known)
            origin = Boundary(**document["origin"])
            if slot is None or document["system"] != system:
                reason = (
                    f"{self.endpoint} is another server than the one that"
                    if document["system"] != system
                    else f"the slot {self._names.slot} on {self.endpoint} is gone, from which"
                )
                raise LogGone(
                    f"{reason} the changes in {self._names.work} come: later ones are lost; drop the"
                    " stream, and start anew from a copy"
                )
        self._origin = origin
        self._stream = f"{origin.lsn:x}"
        self._look_at_slot()

    def _look_at_slot(self) -> None:
        slot = server.find_slot(self._connect(), self._names)
        most = int(number_setting(self._wanted, "hold_warning_bytes", _HOLD_WARNING_BYTES))
        if slot is None:
            return
        self._confirmed = slot.confirmed
        fresh = server.slot_warnings(self._names, slot, most)
        kept = [line for line in self.warnings if " holds back " not in line]
        self.warnings[:] = [*kept, *fresh]

    def _connect(self) -> PostgreSQL:
        """A session; another one after the server went away."""
        if self._session is not None:
            try:
                self._session.fetch(Statement("SELECT 1"))
            except TruecopyError:
                self._session.close()
                self._session = None
        if self._session is None:
            self._session = PostgreSQL(self.endpoint)
        return self._session

    # The spool and its receiver

    @property
    def _spool(self) -> Spool:
        if self._spool_ is None:
            self._receive()
            self._spool_ = Spool(self._folder, self._origin)
        return self._spool_

    def _receive(self) -> None:
        """Starts the receiver, unless one is at work: in this process, or in another one."""
        if self._missing:
            raise CannotFinish(f"{self.endpoint} cannot be streamed: {'; '.join(self._missing)}")
        if self._receiver is not None:
            if self._receiver.error is not None:
                raise self._receiver.error
            return
        lock = self._home.lock()
        if lock is None:
            return
        self._look_at_slot()
        self._receiver = Receiver(
            self.endpoint,
            self._names,
            self._folder,
            self._home,
            lock,
            self._origin,
            self._confirmed,
            number_setting(self._wanted, "retry_seconds", _RETRY_SECONDS),
        )
        self._receiver.start()

    def _passed(self) -> Passed | None:
        return self._receiver.passed if self._receiver else self._home.passed()

    def _news(self, seconds: float) -> bool:
        """Waits until the spool has more; False when the time is over."""
        deadline = time.monotonic() + seconds
        while not self._spool.refresh():
            self._receive()
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._wait(left)
        return True

    def _wait(self, seconds: float) -> None:
        receiver = self._receiver
        if receiver is None:
            time.sleep(min(seconds, _POLL_SECONDS))
            return
        with receiver.news:
            # A sign that came between the look and the wait is seen after a short while.
            receiver.news.wait(min(seconds, _POLL_SECONDS))

    def _target(self) -> int:
        """Behind everything that is committed now."""
        ((insert, _, _),) = self._connect().fetch(Statement(_TARGET))
        return parse_lsn(insert)

    def _catch_up(self, target: int) -> Passed:
        """Waits until everything before an LSN is in the spool.

        The end of the WAL may not be on the disk yet, and will not be while nothing is committed. A
        commit that does not wait for the disk is there after three delays of the WAL writer: then
        what is on the disk is enough.
        """
        started = time.monotonic()
        lowered = False
        while True:
            self._receive()
            passed = self._passed()
            if passed and passed.lsn >= target:
                return passed
            waited = time.monotonic() - started
            if not lowered and waited > 0.3:
                ((_, flushed, delay),) = self._connect().fetch(Statement(_TARGET))
                if waited > 0.1 + delay:
                    target, lowered = min(target, parse_lsn(flushed)), True
                    continue
            self._wait(_POLL_SECONDS)

    def _place(self, mark: Mark) -> int:
        """Where a mark is in the spool: by its place, unless the spool is another one by now."""
        stream, _, place = mark.place.partition("+")
        spool = self._spool
        if stream == self._stream and spool.start.written <= int(place) <= spool.end.written:
            return int(place)
        return self.seek(mark.position).written

    def _mark(self, boundary: Boundary) -> Mark:
        return Mark(
            position=lsn_text(boundary.lsn),
            place=f"{self._stream}+{boundary.written}",
            committed_at=boundary.at,
            written=boundary.written,
        )

    def _remember(self, first: int, last: int) -> None:
        """Definitions go to the metastore before rows refer to them."""
        names = set(self._spool.relations_at(first).values())
        names |= self._spool.relations_between(first, last)
        fresh = names - self._remembered
        if fresh:
            self._definitions = self._definitions or Definitions()
            self._definitions.remember(
                load_relation(self._folder.where, name).definition for name in fresh
            )
            self._remembered |= fresh


def _idle(start: Mark, passed: Passed | None) -> Mark:
    """Where a stream stands that has read everything: at its last change, at the time of the receiver's last sign."""
    idle_at = passed.at - _CLOCK_DOUBT if passed else 0
    return replace(start, committed_at=max(start.committed_at, idle_at))


def _home(slot: str, folder: Folder) -> Home:
    """The work folder itself, unless it is on another machine."""
    return Home(Path(folder.root) if folder.local else state_folder() / "streams" / slot)
