"""A log as transactions: begin, tables, rows, statements, end; with the position as it grows.

Both readers of a log use this: the tail on the driver, which wants boundaries, and the parts on
executors, which want rows.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from truecopy.model.endpoint import Endpoint
from truecopy.model.running import RunningGtids, RunningGtidSet
from truecopy.stream.binlog import events as ev
from truecopy.stream.binlog.tagged import parse_tagged_gtid
from truecopy.stream.binlog.wire import Pieces

# What a step of a walk is: plain numbers, since a step is made for every event of a log.
BEGIN, TABLE, ROWS, NOTE, STATEMENT, END = range(6)

INSERTED, UPDATED, DELETED, PARTLY_UPDATED = "insert", "update", "delete", "partial"


class RowsKind(NamedTuple):
    """What a rows event is: `header` bytes come before its columns, and its rows may be compressed."""

    change: str
    header: int
    compressed: bool = False


_ROW_KINDS = {
    ev.WRITE_ROWS_V1: RowsKind(INSERTED, 8),
    ev.UPDATE_ROWS_V1: RowsKind(UPDATED, 8),
    ev.DELETE_ROWS_V1: RowsKind(DELETED, 8),
    ev.WRITE_ROWS: RowsKind(INSERTED, 10),
    ev.UPDATE_ROWS: RowsKind(UPDATED, 10),
    ev.DELETE_ROWS: RowsKind(DELETED, 10),
    ev.PARTIAL_UPDATE_ROWS: RowsKind(PARTLY_UPDATED, 10),
    ev.WRITE_ROWS_COMPRESSED_V1: RowsKind(INSERTED, 8, compressed=True),
    ev.UPDATE_ROWS_COMPRESSED_V1: RowsKind(UPDATED, 8, compressed=True),
    ev.DELETE_ROWS_COMPRESSED_V1: RowsKind(DELETED, 8, compressed=True),
    ev.WRITE_ROWS_COMPRESSED: RowsKind(INSERTED, 10, compressed=True),
    ev.UPDATE_ROWS_COMPRESSED: RowsKind(UPDATED, 10, compressed=True),
    ev.DELETE_ROWS_COMPRESSED: RowsKind(DELETED, 10, compressed=True),
}
_unpack_mariadb_gtid = struct.Struct("<QIB").unpack_from
_unpack_mysql_gtid = struct.Struct("<B16sq").unpack_from
_STANDALONE = 1
_MICROSECONDS = 1_000_000
_HAS_ORIGINAL = 1 << 55


class Walk:
    """A walk along a log; its attributes say where it is.

    Attributes:
        file, offset: The end of the last event.
        begun_at: The offset at which the transaction begins.
        txn: The transaction's own id.
        committed_at: When it was committed, in microseconds.
    """

    def __init__(
        self, pieces: Pieces, endpoint: Endpoint, place: tuple[str, int], position: str, server: str
    ) -> None:
        self._events = ev.events(pieces, endpoint)
        self.file, self.offset = place
        self._server = server
        self._start = position
        self._running: RunningGtids | RunningGtidSet | None = None
        self.begun_at = self.offset
        self.txn = ""
        self.committed_at = 0
        self._length = 0

    @property
    def position(self) -> str:
        """After the transaction that has begun last."""
        if self._running is not None:
            return self._running.text()
        if not self.txn:
            return self._start
        # Without GTIDs a transaction is known by where it ends; since MySQL 8 it says so beforehand.
        end = self.begun_at + self._length if self._length else self.offset
        return f"{self.file}:{end}@{self._server}"

    def steps(self) -> Iterator[tuple[int, Any, bytes, int, int]]:
        """What happens in the log, a detail of it, and where the body of the event is.

        The detail of `ROWS` is its kind, that of `STATEMENT` an `events.Query`.
        """
        framed = in_group = False
        row_kinds = _ROW_KINDS
        for kind, when, server, end_at, buf, start, end in self._events:
            if end_at:
                self.offset = end_at
            rows = row_kinds.get(kind)
            if rows is not None:
                yield ROWS, rows, buf, start, end
            elif kind == ev.TABLE_MAP:
                yield TABLE, "", buf, start, end
            elif kind == ev.MARIADB_GTID:
                number, domain, flags = _unpack_mariadb_gtid(buf, start)
                framed, in_group = not flags & _STANDALONE, True
                self.begun_at = end_at - (end - start) - 23
                self.committed_at = when * _MICROSECONDS
                self.txn = f"{domain}-{server}-{number}"
                running = self._running
                if running is None:
                    running = self._running = RunningGtids(self._start)
                running.add(domain, server, number)
                yield BEGIN, "", buf, start, end
            elif kind == ev.XID:
                framed = in_group = False
                yield END, "", buf, start, end
            elif kind in (ev.ANNOTATE_ROWS, ev.ROWS_QUERY):
                # MySQL's own form starts with a byte for its length, cut off at 255.
                yield NOTE, "", buf, start + (kind == ev.ROWS_QUERY), end
            elif kind in (ev.QUERY, ev.QUERY_COMPRESSED):
                query = ev.parse_query(buf, start, end, kind == ev.QUERY_COMPRESSED)
                word = query.text[:9].upper().rstrip("; \n")
                if word == "BEGIN" or word.startswith("XA START"):
                    framed = True
                    if not in_group:
                        in_group = True
                        self._begin_without_gtid(when, end_at - (end - start) - 23)
                        yield BEGIN, "", buf, start, end
                    continue
                if framed and word in ("COMMIT", "ROLLBACK"):
                    if word == "ROLLBACK":
                        yield STATEMENT, query, buf, start, end
                    framed = in_group = False
                    yield END, "", buf, start, end
                    continue
                if not in_group:
                    self._begin_without_gtid(when, end_at - (end - start) - 23)
                    yield BEGIN, "", buf, start, end
                yield STATEMENT, query, buf, start, end
                if not framed:
                    in_group = False
                    yield END, "", buf, start, end
            elif kind == ev.GTID:
                framed, in_group = False, True
                self._begin_with_gtid(when, end_at, buf, start, end)
                yield BEGIN, "", buf, start, end
            elif kind == ev.TAGGED_GTID:
                framed, in_group = False, True
                gtid = parse_tagged_gtid(buf, start, end)
                self._begin_mysql(gtid.uuid, gtid.number, gtid.tag, end_at - (end - start) - 23)
                self.committed_at = gtid.committed_at or when * _MICROSECONDS
                yield BEGIN, "", buf, start, end
            elif kind == ev.ANONYMOUS_GTID:
                framed, in_group = False, True
                self._begin_without_gtid(when, end_at - (end - start) - 23)
                self._read_times(when, buf, start, end)
                yield BEGIN, "", buf, start, end
            elif kind == ev.ROTATE:
                self.file, self.offset = ev.parse_rotate(buf, start, end)
            elif kind == ev.XA_PREPARE:
                one_phase = buf[start]
                if not one_phase:
                    yield STATEMENT, ev.Query("", "XA PREPARE"), buf, start, end
                framed = in_group = False
                yield END, "", buf, start, end

    def _begin_with_gtid(self, when: int, end_at: int, buf: bytes, start: int, end: int) -> None:
        _, uuid, number = _unpack_mysql_gtid(buf, start)
        self._begin_mysql(str(UUID(bytes=uuid)), number, "", end_at - (end - start) - 23)
        self._read_times(when, buf, start, end)

    def _begin_mysql(self, uuid: str, number: int, tag: str, begun_at: int) -> None:
        self.begun_at = begun_at
        self.txn = f"{uuid}:{tag}:{number}" if tag else f"{uuid}:{number}"
        if self._running is None:
            self._running = RunningGtidSet(self._start)
        self._running.add(uuid, number, tag)  # type: ignore[arg-type]

    def _begin_without_gtid(self, when: int, begun_at: int) -> None:
        self.begun_at = begun_at
        self.txn = f"{self.file}:{self.begun_at}"
        self.committed_at = when * _MICROSECONDS
        self._length = 0

    def _read_times(self, when: int, buf: bytes, start: int, end: int) -> None:
        """Since MySQL 8 a transaction carries its commit time in microseconds, and its length."""
        self.committed_at = when * _MICROSECONDS
        self._length = 0
        at = start + 42
        if end - at < 7:
            return
        stamp = int.from_bytes(buf[at : at + 7], "little")
        at += 7
        if stamp & _HAS_ORIGINAL:
            stamp &= _HAS_ORIGINAL - 1
            at += 7
        self.committed_at = stamp
        if at < end:
            self._length, _ = ev.packed_integer(buf, at)


def now() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000
