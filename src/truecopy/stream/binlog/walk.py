"""A log as transactions: begin, tables, rows, statements, end; with the position as it grows.

Both readers of a log use this: the tail on the driver, which wants boundaries, and the parts on
executors, which want rows.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.position import Position, contains, parse_position
from truecopy.model.running import RunningGtids, RunningGtidSet
from truecopy.stream.binlog import events as ev
from truecopy.stream.binlog.tagged import TaggedGtid, parse_tagged_gtid
from truecopy.stream.binlog.wire import Pieces

# What a step of a walk is: plain numbers, since a step is made for every event of a log.
BEGIN, TABLE, ROWS, NOTE, STATEMENT, END, SMALL = range(7)

INSERTED, UPDATED, DELETED, PARTLY_UPDATED = "insert", "update", "delete", "partial"


@dataclass(frozen=True, eq=False, slots=True)
class RowsKind:
    """What a rows event is: `header` bytes come before its columns, and its rows may be compressed.

    There is one object of each kind, so that it is found by itself and not by its fields.
    """

    change: str
    header: int
    compressed: bool = False


ROW_KINDS = {
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
# What a reader of rows need not know.
_PASSED_OVER = {
    *(ev.STOP, ev.INTVAR, ev.RAND, ev.USER_VAR, ev.FORMAT_DESCRIPTION, ev.IGNORABLE),
    *(ev.APPEND_BLOCK, ev.DELETE_FILE, ev.BEGIN_LOAD),  # the statement that loads them comes next
    *(ev.PREVIOUS_GTIDS, ev.TRANSACTION_CONTEXT, ev.VIEW_CHANGE),
    *(ev.CHECKPOINT, ev.GTID_LIST, ev.START_ENCRYPTION),
}
# Transactions of one table and one rows event, as most are, one after the other.
_SMALL = re.compile(
    b"(?:%c%c[%b]%c)+" % (ev.MARIADB_GTID, ev.TABLE_MAP, bytes(ROW_KINDS), ev.XID), re.DOTALL
)
_QUERIES = (ev.QUERY, ev.QUERY_COMPRESSED, ev.EXECUTE_LOAD)
_HEARTBEATS = (ev.HEARTBEAT, ev.HEARTBEAT_V2)
_unpack_mariadb_gtid = struct.Struct("<QIB").unpack_from
_unpack_mysql_gtid = struct.Struct("<B16sq").unpack_from
_MARIADB_GTID = np.dtype([("number", "<u8"), ("domain", "<u4")])
_STANDALONE = 1
_MICROSECONDS = 1_000_000
_HAS_ORIGINAL = 1 << 55
_OFFSET_BITS = 0xFFFFFFFF


class Small(NamedTuple):
    """Transactions of one rows event each, one after the other: the maps of their tables, and their rows.

    Each of the lists has an item for each transaction; `offsets` are those at which they end.
    """

    offsets: list[int]
    positions: list[str]
    txns: list[str]
    committed_at: list[int]
    tables: ev.Block
    rows: ev.Block


class Walk:
    """A walk along a log; its attributes say where it is.

    Transactions that `until` does not contain are passed over; `verify` checks the events' checksums.

    Attributes:
        file, offset: The end of the last event.
        begun_at: The offset at which the transaction begins, or the first of many small ones.
        txn: The transaction's own id.
        committed_at: When it was committed, in microseconds.
    """

    def __init__(
        self,
        pieces: Pieces,
        endpoint: Endpoint,
        position: str,
        server: str,
        *,
        until: Position | None = None,
        verify: bool = True,
    ) -> None:
        self._endpoint = endpoint
        blocks = ev.blocks(pieces, endpoint, verify)
        self._blocks = blocks if until is None else _within(blocks, until)
        place = pieces.place
        self.file, self.offset = (place.file, place.offset) if place else ("", 4)
        self._server = server
        self._start = position
        self._running: RunningGtids | RunningGtidSet | None = None
        self.begun_at = self.offset
        self.txn = ""
        self.committed_at = 0
        self._length = 0
        self._framed = self._in_group = False

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

    @property
    def place(self) -> str:
        """The end of the last event, as marks have it."""
        return f"{self.file}:{self.offset}@{self._server}"

    def steps(self) -> Iterator[tuple[int, Any, bytes, int, int]]:
        """What happens in the log, a detail of it, and where the body of the event is.

        The detail of `ROWS` is its kind, that of `STATEMENT` an `events.Query`.
        """
        for block in self._blocks:
            yield from self._steps(block)

    def strides(self) -> Iterator[tuple[int, Any, bytes, int, int]]:
        """As `steps`, but many small transactions are one step: its detail is a `Small`."""
        for block in self._blocks:
            done = 0
            for found in _SMALL.finditer(block.kind.tobytes()):
                first, last = found.span()
                if first > done:
                    yield from self._steps(block.choose(slice(done, first)))
                some = block.choose(slice(first, last))
                small = self._small(some)
                if small is None:
                    yield from self._steps(some)
                else:
                    yield SMALL, small, block.buf, 0, 0
                done = last
            if done < len(block.kind):
                yield from self._steps(block.choose(slice(done, None)) if done else block)

    def _small(self, some: ev.Block) -> Small | None:
        """None where they are of several servers or domains, or out of order."""
        begin, tables, rows, end = (some.choose(slice(n, None, 4)) for n in range(4))
        gtids = ev.gather(some.buf, _MARIADB_GTID, begin.start)
        numbers, domains, servers = gtids["number"], gtids["domain"], begin.server
        is_one_row = (domains == domains[0]).all() and (servers == servers[0]).all()
        if not is_one_row or not (numbers[1:] > numbers[:-1]).all():
            return None
        texts = self._gtids().add_all(int(domains[0]), int(servers[0]), numbers.tolist())
        if texts is None:
            return None
        self._framed = self._in_group = False
        before = self.offset
        offsets = (before + (end.end_at.astype(np.int64) - before & _OFFSET_BITS)).tolist()
        times = (begin.when.astype(np.int64) * _MICROSECONDS).tolist()
        positions, txns = texts
        self.begun_at = before
        self.offset, self.txn, self.committed_at = offsets[-1], txns[-1], times[-1]
        return Small(offsets, positions, txns, times, tables, rows)

    def _gtids(self) -> RunningGtids:
        if self._running is None:
            self._running = RunningGtids(self._start)
        assert isinstance(self._running, RunningGtids)
        return self._running

    def _steps(self, block: ev.Block) -> Iterator[tuple[int, Any, bytes, int, int]]:
        buf, row_kinds = block.buf, ROW_KINDS
        offset = self.offset
        for kind, when, server, end_at, start, end in block.events():
            before = offset
            if end_at:
                # A huge transaction makes a file longer than the 32 bits that offsets have in events.
                offset = self.offset = before + (end_at - before & _OFFSET_BITS)
            rows = row_kinds.get(kind)
            if rows is not None:
                yield ROWS, rows, buf, start, end
            elif kind == ev.TABLE_MAP:
                yield TABLE, "", buf, start, end
            elif kind == ev.MARIADB_GTID:
                number, domain, flags = _unpack_mariadb_gtid(buf, start)
                self._framed, self._in_group = not flags & _STANDALONE, True
                self.begun_at = before
                self.committed_at = when * _MICROSECONDS
                gtids = self._gtids()
                if not gtids.add(domain, server, number):
                    raise self._out_of_order(f"{domain}-{server}-{number}")
                self.txn = gtids.last
                yield BEGIN, "", buf, start, end
            elif kind == ev.XID:
                self._framed = self._in_group = False
                yield END, "", buf, start, end
            elif kind in (ev.ANNOTATE_ROWS, ev.ROWS_QUERY):
                # MySQL's own form starts with a byte for its length, cut off at 255.
                yield NOTE, "", buf, start + (kind == ev.ROWS_QUERY), end
            elif kind in _QUERIES:
                query = ev.parse_query(kind, buf, start, end)
                word = query.text[:16].strip("; \n").upper()
                if word == "BEGIN" or word.startswith("XA START"):
                    self._framed = True
                    if not self._in_group:
                        self._in_group = True
                        self._begin_without_gtid(when, before)
                        yield BEGIN, "", buf, start, end
                    continue
                if self._framed and word in ("COMMIT", "ROLLBACK"):
                    if word == "ROLLBACK":
                        yield STATEMENT, query, buf, start, end
                    self._framed = self._in_group = False
                    yield END, "", buf, start, end
                    continue
                if not self._in_group:
                    self._begin_without_gtid(when, before)
                    yield BEGIN, "", buf, start, end
                yield STATEMENT, query, buf, start, end
                if not self._framed:
                    self._in_group = False
                    yield END, "", buf, start, end
            elif kind in (ev.GTID, ev.TAGGED_GTID, ev.ANONYMOUS_GTID):
                self._framed, self._in_group = False, True
                self.begun_at = before
                self._begin_mysql(kind, when, buf, start, end)
                yield BEGIN, "", buf, start, end
            elif kind == ev.ROTATE:
                self.file, self.offset = ev.parse_rotate(buf, start, end)
                offset = self.offset
            elif kind == ev.XA_PREPARE:
                one_phase = buf[start]
                if not one_phase:
                    yield STATEMENT, ev.Query("", "XA PREPARE"), buf, start, end
                self._framed = self._in_group = False
                yield END, "", buf, start, end
            elif kind in _HEARTBEATS:
                # It may speak of what the server passed over, or of a file that is still to come.
                offset = self.offset = before
            elif kind not in _PASSED_OVER:
                raise self._not_understood(kind)

    def _begin_mysql(self, kind: int, when: int, buf: bytes, start: int, end: int) -> None:
        if kind == ev.ANONYMOUS_GTID:
            self._begin_without_gtid(when, self.begun_at)
            self._read_times(when, buf, start, end)
            return
        uuid, tag, number, committed_at = _mysql_gtid(kind, buf, start, end)
        if kind == ev.TAGGED_GTID:
            self.committed_at = committed_at or when * _MICROSECONDS
        else:
            self._read_times(when, buf, start, end)
        self.txn = _mysql_txn(uuid, tag, number)
        running = self._running
        if running is None:
            running = self._running = RunningGtidSet(self._start)
        assert isinstance(running, RunningGtidSet)
        running.add(uuid, number, tag)

    def _begin_without_gtid(self, when: int, begun_at: int) -> None:
        self.begun_at = begun_at
        self.txn = f"{self.file}:{begun_at}"
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

    def _out_of_order(self, txn: str) -> CannotFinish:
        return CannotFinish(
            f"{txn} in the log of {self._endpoint} comes after a greater number of its domain, so that no"
            " position can tell what was read: was the log reset? Else give each writing server a gtid_domain_id"
            " of its own (or set gtid_strict_mode=ON), and start the stream after it"
        )

    def _not_understood(self, kind: int) -> CannotFinish:
        where = f"the log of {self._endpoint} at {self.file}:{self.offset}"
        if kind == ev.INCIDENT:
            return CannotFinish(
                f"{where} says that changes were lost before they could be logged: take a new snapshot, and"
                " start the stream after it"
            )
        return CannotFinish(
            f"{where} holds an event of kind {kind}, which is not known: what it changed cannot be told"
        )


def _within(blocks: Iterator[ev.Block], until: Position) -> Iterator[ev.Block]:
    """Without the transactions that a position does not contain.

    A server that got them from several others may have them in an order of its own.
    """
    is_wanted = True
    for block in blocks:
        chosen = []
        for number, (kind, _, server, _, start, end) in enumerate(block.events()):
            if kind == ev.MARIADB_GTID:
                sequence, domain, _ = _unpack_mariadb_gtid(block.buf, start)
                is_wanted = contains(until, parse_position(f"{domain}-{server}-{sequence}"))
            elif kind in (ev.GTID, ev.TAGGED_GTID):
                txn = _mysql_txn(*_mysql_gtid(kind, block.buf, start, end)[:3])
                is_wanted = contains(until, parse_position(txn))
            if is_wanted or kind == ev.ROTATE:
                chosen.append(number)
        yield block.choose(chosen)


def _mysql_gtid(kind: int, buf: bytes, start: int, end: int) -> TaggedGtid:
    if kind == ev.TAGGED_GTID:
        return parse_tagged_gtid(buf, start, end)
    _, uuid, number = _unpack_mysql_gtid(buf, start)
    return TaggedGtid(_uuid_text(uuid), "", number, 0)


def _mysql_txn(uuid: str, tag: str, number: int) -> str:
    return f"{uuid}:{tag}:{number}" if tag else f"{uuid}:{number}"


@lru_cache
def _uuid_text(raw: bytes) -> str:
    return str(UUID(bytes=raw))


def now() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000
