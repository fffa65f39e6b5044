"""Events as they come out of a connection: however the bytes are cut, and no damage unseen."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from socket import socket, socketpair

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.stream.binlog import events as ev
from truecopy.stream.binlog.wire import Pieces

SERVER = parse_endpoint("mariadb://root@localhost/shop")
END = b"\x05\x00\x00\x00\xfe\x00\x00\x00\x00"
Event = tuple[int, bytes]

events_of_a_file = st.lists(
    st.tuples(st.sampled_from([ev.XID, ev.MARIADB_GTID, ev.TABLE_MAP]), st.binary(max_size=40)),
    min_size=1,
    max_size=12,
)


def packets(events: Sequence[Event], checksums: bool) -> Iterator[bytes]:
    """As a server sends them, one after the other in a file of its own."""
    offset = 4
    for number, (kind, body) in enumerate(events):
        length = 19 + len(body) + 4 * checksums
        offset += length
        event = struct.pack("<IBIIIH", 1_700_000_000, kind, 7, length, offset, 0) + body
        if checksums:
            event += struct.pack("<I", zlib.crc32(event))
        yield struct.pack("<I", length + 1 | number % 256 << 24) + b"\0" + event


def description(checksums: bool) -> Event:
    """It has room for a checksum in any case."""
    return ev.FORMAT_DESCRIPTION, bytes(57) + (b"\1" if checksums else b"\0" + bytes(4))


class Slow:
    """A connection that gives a few bytes at a time."""

    def __init__(self, connection: socket, most: int) -> None:
        self._connection, self._most = connection, most

    def recv(self, size: int) -> bytes:
        return self._connection.recv(min(size, self._most))


def read(sent: bytes, checksums: bool, most: int = 1 << 20) -> list[Event]:
    here, there = socketpair()
    with here, there:
        there.sendall(sent)
        pieces = Pieces(Slow(here, most), SERVER, None, checksums)
        return [
            (kind, block.buf[start:end])
            for block in ev.blocks(pieces, SERVER)
            for kind, _, _, _, start, end in block.events()
            if kind != ev.FORMAT_DESCRIPTION
        ]


@given(st.lists(st.tuples(events_of_a_file, st.booleans()), min_size=1, max_size=3), st.data())
def test_events_come_out_however_the_bytes_are_cut(
    files: list[tuple[list[Event], bool]], data: st.DataObject
) -> None:
    sent = b""
    for events, checksums in files:
        sent += b"".join(packets([description(checksums), *events], checksums))
    found = read(sent + END, files[0][1], data.draw(st.sampled_from([1, 3, 50, 1000])))
    assert found == [event for events, _ in files for event in events]


@given(events_of_a_file, st.data())
def test_a_damaged_byte_is_seen_wherever_it_is(events: list[Event], data: st.DataObject) -> None:
    sent = list(packets(events, checksums=True))
    number = data.draw(st.integers(0, len(sent) - 1))
    at = data.draw(st.integers(5, len(sent[number]) - 1))
    damaged = bytearray(sent[number])
    damaged[at] ^= data.draw(st.integers(1, 255))
    sent[number] = bytes(damaged)
    if damaged[9] == ev.FORMAT_DESCRIPTION:
        return  # the damage made it one, which says of itself whether it has a checksum
    with pytest.raises(CannotFinish, match="checksum is wrong"):
        read(b"".join(sent) + END, checksums=True)


def test_a_statement_is_of_interest_where_it_begins_with_a_comment() -> None:
    plain, marked = (ev.ANNOTATE_ROWS, b"INSERT"), (ev.ANNOTATE_ROWS, b"/*a*/ INSERT")
    sent = b"".join(packets([plain, marked, (ev.XID, b"x"), plain], checksums=True))
    assert read(sent + END, checksums=True) == [marked, (ev.XID, b"x")]
