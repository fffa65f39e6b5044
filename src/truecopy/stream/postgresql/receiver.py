"""The receiver: a thread that streams the slot into the spool, and lets the slot advance.

A transaction is told to readers when it is durable, and only then to the server: whatever dies, at
whatever instant, the server still has what the spool has not. What the server sends a second time is
recognised by its position.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import psycopg

from truecopy.engines.postgresql import PostgreSQL
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.stream.log import LogGone
from truecopy.stream.postgresql import pgoutput
from truecopy.stream.postgresql.folder import Folder
from truecopy.stream.postgresql.lsn import from_server_time
from truecopy.stream.postgresql.names import Names
from truecopy.stream.postgresql.relations import load_relation, resolve_relation, store_relation
from truecopy.stream.postgresql.replication import (
    HEADER,
    WAL_DATA,
    Refused,
    Replication,
    parse_keepalive,
)
from truecopy.stream.postgresql.spool import Boundary
from truecopy.stream.postgresql.writer import BUFFER_BYTES, SpoolWriter

FLUSH_SECONDS = 0.05
"""Between two syncs under load; while nothing else arrives, a transaction is synced at once."""
OBJECT_SECONDS = 1.0
"""The same where each sync makes a file of its own."""
FLUSH_BYTES = 4 << 20
IDLE_SECONDS = 1.0
"""How often an idle stream asks for a sign of life: it tells readers that there is nothing to read."""
BUSY_SECONDS = 15.0
"""How long to try for a slot that another process holds: it may just be dying."""

_PASSED = struct.Struct(">QqI")
_PASSED_FILE, _LOCK_FILE = "passed", "lock"
_IN_USE, _NO_SUCH, _NOT_READY, _NO_TEXT = "55006", "42704", "55000", "22021"


@dataclass(frozen=True)
class Passed:
    """How far a receiver is: everything committed before `lsn` is in the spool.

    Attributes:
        at: The server's clock when it said so; microseconds since the epoch.
    """

    lsn: int
    at: int


@dataclass(frozen=True)
class Home:
    """Files of this machine by which the processes of one stream know of each other."""

    path: Path

    def lock(self) -> int | None:
        """A handle that makes its holder the receiver; None while another one lives."""
        handle = os.open(self.path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle

    def passed(self) -> Passed | None:
        """What the receiver said last, this or another process."""
        try:
            data = (self.path / _PASSED_FILE).read_bytes()
        except FileNotFoundError:
            return None
        if len(data) != _PASSED.size:
            return None
        lsn, at, checksum = _PASSED.unpack(data)
        return Passed(lsn, at) if checksum == _checksum(lsn, at) else None

    def tell(self, passed: Passed) -> None:
        """Not synced, and perhaps read while it is written: a checksum tells."""
        handle = os.open(self.path / _PASSED_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            checksum = _checksum(passed.lsn, passed.at)
            os.pwrite(handle, _PASSED.pack(passed.lsn, passed.at, checksum), 0)
        finally:
            os.close(handle)


class Receiver(threading.Thread):
    """Streams one slot until it is stopped, or cannot go on: then `error` says why."""

    def __init__(
        self,
        endpoint: Endpoint,
        names: Names,
        folder: Folder,
        home: Home,
        lock: int,
        origin: Boundary,
        confirmed: int,
        retry_seconds: float,
    ) -> None:
        super().__init__(name=f"receiver of {names.slot}", daemon=True)
        self.news = threading.Condition()
        self.error: TruecopyError | None = None
        # What the slot let go of was durable: it is never told less than that.
        self.passed = Passed(confirmed, 0)
        self._endpoint, self._names, self._folder, self._home = endpoint, names, folder, home
        self._lock = lock
        self._retry_seconds = retry_seconds
        self._stopping = threading.Event()
        self._wake = os.pipe()
        self._pause = FLUSH_SECONDS if folder.local else OBJECT_SECONDS
        self._writer = SpoolWriter(folder, origin, home.path)
        self._session: PostgreSQL | None = None
        self._keeps = False  # whether the open transaction is new
        self._flushed_at = self._told_at = self._confirmed_at = 0.0
        self._confirmed = 0
        self._told: Passed | None = None
        self._healthy_at = time.monotonic()

    def stop(self) -> None:
        """Ends the thread, within the time of one wait."""
        self._stopping.set()
        os.write(self._wake[1], b"x")
        self.join()
        for handle in self._wake:
            os.close(handle)

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._stream()
                except (Refused, TruecopyError, psycopg.Error) as error:
                    self._writer.abandon()
                    self._close_session()
                    self._consider(error)
        except TruecopyError as error:
            self.error = error
        except OSError as error:
            self.error = CannotFinish(
                f"cannot write to the work folder {self._folder.where}: {error.strerror or error};"
                " run the same command again to go on"
            )
        except Exception as error:  # noqa: BLE001 - a reader must not wait for a thread that is gone
            self.error = CannotFinish(f"the receiver of {self._names.slot} failed: {error!r}")
        finally:
            self._close_session()
            self._writer.close()
            os.close(self._lock)
            with self.news:
                self.news.notify_all()

    def _consider(self, error: Refused | TruecopyError | psycopg.Error) -> None:
        """Raises what trying again cannot mend; else waits a little."""
        waited = time.monotonic() - self._healthy_at
        slot, where = self._names.slot, self._endpoint
        if isinstance(error, LogGone | UsageError):
            raise error
        if isinstance(error, Refused):
            if error.code == _IN_USE:
                if waited > max(BUSY_SECONDS, self._retry_seconds if self._confirmed else 0):
                    raise CannotFinish(
                        f"{error} on {where}: another stream reads it; stop that one,"
                        " or choose another slot for this one"
                    )
            elif error.code == _NO_SUCH and "publication" in str(error):
                raise LogGone(
                    f"{error} on {where}: it was dropped, or made after the slot; changes cannot be"
                    " decoded any more: drop the stream, and start anew from a copy"
                )
            elif error.code == _NO_SUCH or "can no longer get changes" in str(error):
                raise LogGone(
                    f"{error} on {where}: the changes since then are lost;"
                    " drop the stream, and start anew from a copy"
                )
            elif error.code == _NOT_READY and "invalid" in str(error):
                raise LogGone(
                    f"the slot {slot} on {where} was invalidated ({error}): changes are lost;"
                    " drop the stream, and start anew from a copy"
                )
            elif error.code == _NO_TEXT:
                raise CannotFinish(
                    f"a row in the log of {where} holds bytes that are no text ({error}): a database in"
                    " SQL_ASCII takes any; leave the table out, or drop the stream and convert them"
                )
            elif error.code and not error.code.startswith(("08", "57P", "53")):
                raise CannotFinish(f"{where} does not stream the slot {slot}: {error}")
        if waited > max(self._retry_seconds, BUSY_SECONDS):
            raise CannotFinish(
                f"lost the connection to {where}, and could not get it back in {waited:.0f} s"
                f" ({error}); run the same command again to go on"
            )
        self._stopping.wait(0.2)

    def _stream(self) -> None:
        start = max(self._writer.end.lsn, self.passed.lsn)
        stream = Replication(self._endpoint, self._names.slot, self._names.publication, start)
        try:
            self._confirm(stream, ask=True)
            self._receive(stream)
        finally:
            stream.close()

    def _receive(self, stream: Replication) -> None:
        receive, writer = stream.receive, self._writer
        rows = pgoutput.ROWS
        while True:
            size, data = receive(1)
            if size > 0:
                if data[0] != WAL_DATA:
                    self._keepalive(stream, data)
                elif data[HEADER] not in rows:
                    self._control(bytes(data[HEADER:]))
                    if writer.undurable and self._is_due():
                        self._flush(stream)
                elif self._keeps:
                    writer.add(data[HEADER:])
                    if writer.unwritten > BUFFER_BYTES:
                        writer.write()
                        self._in_time(stream)
            elif size == 0:
                stream.wait(self._rest(stream), self._wake[0])
            else:
                raise stream.ending()
            if self._stopping.is_set():
                self._flush(stream)
                self._writer.abandon()
                return

    def _is_due(self) -> bool:
        waited = time.monotonic() - self._flushed_at
        return waited > self._pause or (self._writer.undurable > FLUSH_BYTES and self._folder.local)

    def _rest(self, stream: Replication) -> float:
        """Nothing has arrived: what there is becomes durable now; says how long to wait for more."""
        now = time.monotonic()
        if self._writer.undurable:
            due = self._flushed_at + self._pause / 5
            if now < due:  # a trickle: one sync for several transactions
                return due - now
            self._flush(stream)
        self._in_time(stream)
        self._tell()
        return IDLE_SECONDS / 2

    def _in_time(self, stream: Replication) -> None:
        """Tells the server, now and then, that this side lives."""
        if time.monotonic() - self._confirmed_at > IDLE_SECONDS:
            self._confirm(stream, ask=True)

    def _flush(self, stream: Replication) -> None:
        self._writer.flush()
        self._flushed_at = time.monotonic()
        if self._writer.end.lsn > self._confirmed:
            self._pass(Passed(self._writer.end.lsn, self._writer.end.at))
            self._confirm(stream)

    def _keepalive(self, stream: Replication, data: memoryview) -> None:
        """Where the server stands: there is nothing of ours between the last transaction and that."""
        end, clock, wants_reply = parse_keepalive(data)
        if self._writer.undurable:
            self._flush(stream)
        if not self._writer.undurable and end >= self._writer.end.lsn:
            self._pass(Passed(end, from_server_time(clock)))
        due = time.monotonic() - self._confirmed_at > IDLE_SECONDS / 5
        if wants_reply or (due and end > self._confirmed):
            self._confirm(stream)

    def _control(self, message: bytes) -> None:
        kind = message[0]
        if kind == pgoutput.BEGIN:
            xid, commit_lsn, at = pgoutput.parse_begin(message)
            self._keeps = commit_lsn >= self._writer.last_lsn
            if self._keeps:
                self._writer.begin(xid, commit_lsn, at)
        elif kind == pgoutput.COMMIT:
            if self._keeps:
                self._writer.commit(pgoutput.parse_commit(message))
            self._keeps = False
        elif not self._keeps:
            return
        elif kind == pgoutput.RELATION:
            self._define(pgoutput.parse_relation(message))
        elif kind == pgoutput.MESSAGE and pgoutput.parse_annotation(message) is not None:
            self._writer.annotate(message)

    def _define(self, logged: pgoutput.LoggedRelation) -> None:
        """Keeps the definition of a table, where it is another one than before."""
        if self._session is None:
            self._session = PostgreSQL(self._endpoint)
        relation = resolve_relation(self._session, logged)
        if self._writer.relations.get(logged.oid) == relation.name:
            return
        store_relation(self._folder, relation)
        definition = relation.definition
        known = {
            oid: load_relation(self._folder.where, name).definition
            for oid, name in self._writer.relations.items()
        }
        changes = any(
            (oid == logged.oid or old.table == definition.table) and old != definition
            for oid, old in known.items()
        )
        self._writer.define(logged.oid, relation.name, changes=changes)

    def _confirm(self, stream: Replication, *, ask: bool = False) -> None:
        """Everything up to the place that was passed is durable: the server may forget it."""
        lsn = max(self._writer.end.lsn, self.passed.lsn)
        stream.confirm(lsn, ask=ask)
        self._confirmed = lsn
        self._confirmed_at = self._healthy_at = time.monotonic()

    def _pass(self, passed: Passed) -> None:
        if passed.lsn < self.passed.lsn:
            return
        with self.news:
            self.passed = passed
            self.news.notify_all()
        if time.monotonic() - self._told_at > FLUSH_SECONDS:
            self._tell()

    def _tell(self) -> None:
        """Tells the other processes."""
        if self._told != self.passed:
            self._home.tell(self.passed)
            self._told, self._told_at = self.passed, time.monotonic()

    def _close_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _checksum(lsn: int, at: int) -> int:
    return zlib.crc32(b"%d %d" % (lsn, at))
