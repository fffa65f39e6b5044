"""Events of a binary log: framing, checksums, compression, and the fields of the small ones."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
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

_HEAD = np.dtype(
    [
        *(("when", "<u4"), ("kind", "u1"), ("server", "<u4")),
        *(("length", "<u4"), ("end_at", "<u4"), ("flags", "<u2")),
    ]
)
# Length and number of a packet, its status; then the event's header.
_PACKET = 5
_HEADER = _HEAD.itemsize
_unpack_length = struct.Struct("<I").unpack_from
_LONGEST = 0xFFFFFF
_ARTIFICIAL, _MAY_BE_IGNORED = 0x20, 0x80
_NEWEST = TAGGED_GTID
# The checksum of anything that is followed by its own checksum, and what makes it 0 again, as it is in
# front of the next event: so that one sum over many events tells what one over each would tell.
_WITH_ITS_CHECKSUM = 0x2144DF1C
_BETWEEN = b"\x00\x80\xfd\xfb\xab"
# Events of fewer bytes than this cost less to copy than to look at one by one.
_SMALL = 1024

Numbers = npt.NDArray[Any]


class Block(NamedTuple):
    """Events that came together, field by field: the body of each is `buf[start:end]`, without its checksum.

    `end_at` is the offset in the file at which an event ends; 0 for events that are not in it.
    """

    buf: bytes
    kind: Numbers
    when: Numbers
    server: Numbers
    end_at: Numbers
    start: Numbers
    end: Numbers

    def choose(self, which: slice | npt.NDArray[np.bool_] | list[int]) -> Block:
        return Block(self.buf, *(field[which] for field in self[1:]))

    def events(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """The fields behind `buf`, event by event."""
        return zip(*(field.tolist() for field in self[1:]), strict=True)


def gather(buf: bytes, kind: npt.DTypeLike, places: Numbers) -> npt.NDArray[Any]:
    """The values of a type that lie at these places."""
    kind = np.dtype(kind)
    everywhere = np.ndarray(len(buf) - kind.itemsize + 1, f"V{kind.itemsize}", buf, strides=(1,))
    return everywhere[places].view(kind)


def blocks(pieces: Pieces, endpoint: Endpoint, verify: bool = True) -> Iterator[Block]:
    """Every event in order; ends where a log that is not waited for ends.

    Without `verify` checksums are passed over, by a reader whose findings are read again.
    """
    buf, at = b"", 0
    checksum = 4 if pieces.checksums else 0
    while True:
        found, end = _packets(buf, at)
        if not found:
            buf, at = pieces.more(buf[at:], _wanted(buf, at)), 0
            continue
        if _length(buf, at) == _LONGEST:  # only the first can be: a piece is far shorter
            buf, end = _joined(pieces, buf[at:])
            found = [0]
        if buf[found[-1] + 4]:
            end = found.pop()
            if not found:
                _check_end(buf, end, endpoint)
                return
        places = np.fromiter(found, np.int64, len(found)) + _PACKET
        heads = gather(buf, _HEAD, places)
        kinds = heads["kind"].tobytes()
        described = kinds.find(FORMAT_DESCRIPTION)
        if described >= 0:
            # It says whether the events of its file have checksums: so it is a block of its own.
            count = described or 1
            places, heads, kinds = places[:count], heads[:count], kinds[:count]
            end = found[count] if count < len(found) else end
            if described == 0:
                checksum = 4 if buf[end - 5] == 1 else 0
        if verify and checksum:
            _check(buf, places, end, endpoint)
        block = _block(buf, places, heads, checksum)
        if ANNOTATE_ROWS in kinds:
            block = _without_plain_notes(block)
        if PAYLOAD in kinds:
            yield from _unpacked(block)
        else:
            yield block
        at = end


def _packets(buf: bytes, at: int) -> tuple[list[int], int]:
    """Where the packets begin that are here as a whole, and where the last of them ends."""
    found: list[int] = []
    append, last = found.append, len(buf) - 4
    while at <= last:
        append(at)
        at += 4 + (_unpack_length(buf, at)[0] & _LONGEST)
    return (found, at) if at <= len(buf) else (found, found.pop())


def _length(buf: bytes, at: int) -> int:
    return buf[at] | buf[at + 1] << 8 | buf[at + 2] << 16


def _wanted(buf: bytes, at: int) -> int:
    return 4 + _length(buf, at) if len(buf) - at >= 4 else 4


def _joined(pieces: Pieces, buf: bytes) -> tuple[bytes, int]:
    """An event that is longer than a packet can be, its packets joined; and where it ends."""
    length = _LONGEST
    bodies, rest = [buf[: 4 + length]], buf[4 + length :]
    while length == _LONGEST:
        while len(rest) < (wanted := _wanted(rest, 0)):
            rest = pieces.more(rest, wanted)
        length = _length(rest, 0)
        bodies.append(rest[4 : 4 + length])
        rest = rest[4 + length :]
    event = b"".join(bodies)
    return event + rest, len(event)


def _check(buf: bytes, places: Numbers, end: int, endpoint: Endpoint) -> None:
    first = int(places[0])
    if end - first < _SMALL * len(places):
        whole = np.frombuffer(buf, np.uint8, end - first, first).copy()
        everywhere = np.ndarray(len(whole) - _PACKET + 1, "V5", whole, strides=(1,))
        everywhere[places[1:] - (first + _PACKET)] = np.void(_BETWEEN)
        if zlib.crc32(whole.data) == _WITH_ITS_CHECKSUM:
            return
    view = memoryview(buf)
    for place, after in pairwise([*places.tolist(), end + _PACKET]):
        if zlib.crc32(view[place : after - _PACKET]) != _WITH_ITS_CHECKSUM:
            (end_at,) = _unpack_length(buf, place + 13)
            raise CannotFinish(
                f"{endpoint} sent an event at {end_at} whose checksum is wrong: its log, or the way"
                " from it, is damaged"
            )


def _block(buf: bytes, places: Numbers, heads: npt.NDArray[Any], checksum: int) -> Block:
    """The events whose heads are at these places."""
    kind, flags, end_at = heads["kind"], heads["flags"], heads["end_at"]
    if (flags & (_ARTIFICIAL | _MAY_BE_IGNORED)).any():
        # What tells the reader where it is, is not part of the file.
        end_at[flags & _ARTIFICIAL != 0] = 0
        unknown = (kind > _NEWEST) & (kind < ANNOTATE_ROWS)
        kind[unknown & (flags & _MAY_BE_IGNORED != 0)] = IGNORABLE
    start, end = places + _HEADER, places + heads["length"] - checksum
    return Block(buf, kind, heads["when"], heads["server"], end_at, start, end)


def _without_plain_notes(block: Block) -> Block:
    """Of a statement's text only a comment in front is of interest."""
    kept = block.kind != ANNOTATE_ROWS
    kept[~kept] = gather(block.buf, np.uint8, block.start[~kept]) == ord("/")
    return block.choose(kept)


def _unpacked(block: Block) -> Iterator[Block]:
    """The block, with MySQL's compressed transactions as blocks of their own."""
    done = 0
    for at in np.flatnonzero(block.kind == PAYLOAD).tolist():
        yield block.choose(slice(done, at))
        yield _payload(block.buf, int(block.start[at]), int(block.end_at[at]))
        done = at + 1
    yield block.choose(slice(done, None))


def _check_end(buf: bytes, at: int, endpoint: Endpoint) -> None:
    """What is no event is the end of the log, or an error."""
    length = _length(buf, at)
    status = buf[at + 4]
    if status == 0xFE and length < 9:
        return
    if status == 0xFF:
        raise refusal(buf[at + 4 : at + 4 + length], endpoint)
    raise CannotFinish(f"{endpoint} sent a packet of {length} bytes that is no event")


def _payload(buf: bytes, start: int, end_at: int) -> Block:
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
    found, at = [], 0
    while at < len(inside):
        found.append(at)
        at += _unpack_length(inside, at + 9)[0]
    places = np.array(found, np.int64)
    heads = gather(inside, _HEAD, places)
    heads["end_at"] = end_at
    return _block(inside, places, heads, 0)


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
    for block in blocks(pieces, endpoint):
        if block.when.any():
            return int(block.when[block.when > 0][0]) * 1_000_000
    return 0
