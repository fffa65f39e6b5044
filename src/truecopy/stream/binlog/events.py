"""Events of a binary log: framing, checksums, compression, and the fields of the small ones."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.stream.binlog.wire import Pieces, refusal

QUERY, STOP, ROTATE, INTVAR, RAND, USER_VAR, FORMAT_DESCRIPTION = 2, 3, 4, 5, 13, 14, 15
APPEND_BLOCK, DELETE_FILE, XID, BEGIN_LOAD, EXECUTE_LOAD, TABLE_MAP = 9, 11, 16, 17, 18, 19
WRITE_ROWS_V1, UPDATE_ROWS_V1, DELETE_ROWS_V1, INCIDENT = 23, 24, 25, 26
HEARTBEAT, IGNORABLE, ROWS_QUERY = 27, 28, 29
WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = 30, 31, 32
GTID, ANONYMOUS_GTID, PREVIOUS_GTIDS, TRANSACTION_CONTEXT, VIEW_CHANGE = 33, 34, 35, 36, 37
XA_PREPARE, PARTIAL_UPDATE_ROWS, PAYLOAD, HEARTBEAT_V2, TAGGED_GTID = 38, 39, 40, 41, 42
ANNOTATE_ROWS, CHECKPOINT, MARIADB_GTID, GTID_LIST, START_ENCRYPTION = 160, 161, 162, 163, 164
QUERY_COMPRESSED = 165
WRITE_ROWS_COMPRESSED_V1, UPDATE_ROWS_COMPRESSED_V1, DELETE_ROWS_COMPRESSED_V1 = 166, 167, 168
WRITE_ROWS_COMPRESSED, UPDATE_ROWS_COMPRESSED, DELETE_ROWS_COMPRESSED = 169, 170, 171

_HEADER = 19
# Length and number of the packet, its status, then the event's header in one go.
_unpack_packet = struct.Struct("<IBIBIIIH").unpack_from
_unpack_event = struct.Struct("<IBIIIH").unpack_from
_PACKET_AND_HEADER = 5 + _HEADER
_LONGEST = 0xFFFFFF
_ARTIFICIAL, _MAY_BE_IGNORED = 0x20, 0x80
_UNUSUAL = _ARTIFICIAL | _MAY_BE_IGNORED
_NEWEST = TAGGED_GTID
# The checksum of anything that is followed by its own checksum.
_WITH_ITS_CHECKSUM = 0x2144DF1C


class Event(NamedTuple):
    """One event: its body is `buf[start:end]`, without header and checksum.

    `end_at` is the offset in the file at which the event ends; 0 for events that are not in it.
    """

    kind: int
    when: int
    server: int
    end_at: int
    buf: bytes
    start: int
    end: int


def events(
    pieces: Pieces, endpoint: Endpoint, verify: bool = True
) -> Iterator[tuple[int, int, int, int, bytes, int, int]]:
    """Every event in order, as the fields of `Event`; ends where a log that is not waited for ends.

    Without `verify` checksums are passed over, by a reader whose findings are read again.
    """
    buf, at, size = b"", 0, 0
    view = memoryview(buf)
    checksum = 4 if pieces.checksums else 0
    is_checked = verify and pieces.checksums
    unpack, crc, startswith = _unpack_packet, zlib.crc32, bytes.startswith
    while True:
        try:
            head, status, when, kind, server, _, end_at, flags = unpack(buf, at)
        except struct.error:
            # The end of the log and errors are shorter than any event: no more must be waited for.
            wanted = 5 if size - at < 5 else min(4 + _length(buf, at), _PACKET_AND_HEADER)
            if size - at >= wanted and _is_end(buf, at, endpoint):
                return
            buf = pieces.more(buf[at:], wanted)
            at, size, view = 0, len(buf), memoryview(buf)
            continue
        length = head & _LONGEST
        if status:
            if size - at < 4 + length:
                buf = pieces.more(buf[at:], 4 + length)
                at, size, view = 0, len(buf), memoryview(buf)
            if _is_end(buf, at, endpoint):
                return
        end = at + 4 + length
        if end > size or length == _LONGEST:
            buf, end = _whole_packet(pieces, buf, at, length)
            at, size, view = 0, len(buf), memoryview(buf)
        stop = end - checksum
        if kind == FORMAT_DESCRIPTION:
            # It says whether the events of its file have checksums, and has room for one in any case.
            checksum, stop = 4 if buf[end - 5] == 1 else 0, end - 4
            is_checked = verify and checksum > 0
        if is_checked and crc(view[at + 5 : end]) != _WITH_ITS_CHECKSUM:
            raise CannotFinish(
                f"{endpoint} sent an event at {end_at} whose checksum is wrong: its log, or the way"
                " from it, is damaged"
            )
        start = at + _PACKET_AND_HEADER
        at = end
        if kind == ANNOTATE_ROWS and not startswith(buf, b"/*", start):
            continue  # a statement without a mark in front: nobody asks for its text
        if flags & _UNUSUAL:
            if flags & _ARTIFICIAL:
                end_at = 0  # it tells the reader where it is, and is not part of the file
            elif _NEWEST < kind < ANNOTATE_ROWS:
                continue
        if kind == PAYLOAD:
            for inner in _payload(buf, start):
                yield inner[0], inner[1], inner[2], end_at, inner[4], inner[5], inner[6]
        else:
            yield kind, when, server, end_at, buf, start, stop


def _length(buf: bytes, at: int) -> int:
    return buf[at] | buf[at + 1] << 8 | buf[at + 2] << 16


def _whole_packet(pieces: Pieces, buf: bytes, at: int, length: int) -> tuple[bytes, int]:
    """An event that is longer than what has arrived, or than a packet can be: its packets joined."""
    buf = pieces.more(buf[at:], 4 + length) if len(buf) - at < 4 + length else buf[at:]
    if length < _LONGEST:
        return buf, 4 + length
    bodies, rest = [buf[: 4 + length]], buf[4 + length :]
    while length == _LONGEST:
        if len(rest) < 4:
            rest = pieces.more(rest, 4)
        length = _length(rest, 0)
        if len(rest) < 4 + length:
            rest = pieces.more(rest, 4 + length)
        bodies.append(rest[4 : 4 + length])
        rest = rest[4 + length :]
    event = b"".join(bodies)
    return event + rest, len(event)


def _is_end(buf: bytes, at: int, endpoint: Endpoint) -> bool:
    length = _length(buf, at)
    status = buf[at + 4]
    if status == 0xFE and length < 9:
        return True
    if status == 0xFF:
        raise refusal(buf[at + 4 : at + 4 + length], endpoint)
    raise CannotFinish(f"{endpoint} sent a packet of {length} bytes that is no event")


def _payload(buf: bytes, start: int) -> Iterator[tuple[int, int, int, int, bytes, int, int]]:
    """The events of a compressed transaction of MySQL: fields, then one Zstandard frame of events."""
    at, size, kind, whole = start, 0, 255, 0
    while True:
        field, at = _packed(buf, at)
        if field == 0:
            break
        length, at = _packed(buf, at)
        value, _ = _packed(buf, at)
        at += length
        if field == 1:
            size = value
        elif field == 2:
            kind = value
        elif field == 3:
            whole = value
    inside = buf[at : at + size]
    if kind == 0:
        inside = pa.Codec("zstd").decompress(inside, whole, asbytes=True)
    elif kind != 255:
        raise CannotFinish(f"a transaction is compressed in a way ({kind}) that is not known")
    at = 0
    while at < len(inside):
        when, event, server, length, end_at, _ = _unpack_event(inside, at)
        yield event, when, server, end_at, inside, at + _HEADER, at + length
        at += length


def packed_integer(buf: bytes, at: int) -> tuple[int, int]:
    """A length-encoded integer, and where it ends."""
    return _packed(buf, at)


def _packed(buf: bytes, at: int) -> tuple[int, int]:
    first = buf[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(buf[at + 1 : at + 1 + width], "little"), at + 1 + width


def decompress(buf: bytes, at: int, end: int) -> bytes:
    """What MariaDB compressed: a byte with the width of the length, the length, zlib's bytes."""
    kind, width = (buf[at] & 0x70) >> 4, buf[at] & 0x07
    if kind != 0:
        raise CannotFinish(f"an event is compressed in a way ({kind}) that is not known")
    return zlib.decompress(buf[at + 1 + width : end])


class Query(NamedTuple):
    """A statement in the log, with the database that was in use."""

    database: str
    text: str


def parse_query(kind: int, buf: bytes, start: int, end: int) -> Query:
    """The statement of an event; MariaDB may have compressed it."""
    _, _, database, _, status = struct.unpack_from("<IIBHH", buf, start)
    # A LOAD DATA has the number of the loaded file, and where in the statement its name is.
    at = start + 13 + (13 if kind == EXECUTE_LOAD else 0) + status
    name = buf[at : at + database].decode("utf-8", "replace")
    at += database + 1
    body = decompress(buf, at, end) if kind == QUERY_COMPRESSED else buf[at:end]
    return Query(name, body.decode("utf-8", "replace"))


def parse_rotate(buf: bytes, start: int, end: int) -> tuple[str, int]:
    """The file that comes next, and the offset in it."""
    return buf[start + 8 : end].decode(), int.from_bytes(buf[start : start + 8], "little")


def first_time(pieces: Pieces, endpoint: Endpoint) -> int:
    """When the first real event of a file was written, in microseconds."""
    for _, when, _, _, _, _, _ in events(pieces, endpoint):
        if when:
            return when * 1_000_000
    return 0
