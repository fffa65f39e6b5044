"""Results of MySQL and MariaDB as Arrow columns, and data to them, past the driver's own objects.

PyMySQL makes a Python object of every value: 100 thousand rows a second of eight columns. Here a
row's packet is kept as the bytes that came, and the columns of many rows are found in them at once:
the places and lengths of the values by NumPy, the values themselves by Arrow, as views of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql
from pymysql.connections import MySQLResult
from pymysql.constants import COMMAND, CR
from pymysql.protocol import EOFPacketWrapper, MysqlPacket, OKPacketWrapper

_BLOCK = 32 << 20
_LARGEST_PACKET = 0xFFFFFF
_PACKET = 128 << 10
_END, _ERROR = 0xFE, 0xFF
_INLINE = 12
"""Bytes of a value that an Arrow view holds itself."""


def read_columns(
    connection: Any, statements: Iterable[str], width: int, warned: Callable[[], None]
) -> list[pa.ChunkedArray]:
    """The columns of results as texts, one result after the other.

    Small results are put together first: to find the columns of one takes as long as of a thousand rows.

    Args:
        connection: The driver's.
        statements: All with as many columns.
        width: So many.
        warned: Called after a result with warnings, while the server still knows them.

    Raises:
        pyarrow.ArrowInvalid: The server sent bytes that are not UTF-8.
    """
    found: list[list[pa.Array]] = [[] for _ in range(width)]
    rows: list[bytes] = []
    size = 0

    def find_columns() -> None:
        for chunks, chunk in zip(found, _columns(rows, width), strict=True):
            chunks.append(chunk)
        rows.clear()

    for statement in statements:
        connection._execute_command(COMMAND.COM_QUERY, statement)
        result = MySQLResult(connection)
        result.init_unbuffered_query()
        # From here on the rows are read by us, and an error on the way leaves no result half read.
        result.unbuffered_active = False
        warnings = None
        while warnings is None:
            taken, warnings = _receive(connection, rows, _BLOCK - size)
            size += taken
            if size >= _BLOCK:
                find_columns()
                size = 0
        if warnings:
            warned()
    if rows:
        find_columns()
    return [pa.chunked_array(chunks, pa.string()) for chunks in found]


def send_file(connection: Any, statement: str, data: Iterable[memoryview]) -> Any:
    """Runs a LOAD DATA LOCAL whose file is this data; gives the server's answer.

    The driver itself is not allowed to send files, so that no server can ask it for one.
    """
    connection._execute_command(COMMAND.COM_QUERY, statement)
    packet = connection._read_packet()
    if not packet.is_load_local_packet():
        raise AssertionError(f"not a LOAD DATA LOCAL: {statement[:80]}")
    try:
        for part in data:
            for at in range(0, len(part), _PACKET):
                connection.write_packet(bytes(part[at : at + _PACKET]))
    finally:
        # The empty packet ends the file also where it could not be made; the caller rolls back.
        if connection.open:
            connection.write_packet(b"")
            answer = connection._read_packet()
    return OKPacketWrapper(answer)


def _receive(connection: Any, rows: list[bytes], most: int) -> tuple[int, int | None]:
    """Appends packets of rows, of so many bytes or up to the end of the result; its warnings at the end, else None."""
    # One call a value less than the driver's own reader; it sets the timeout once as well.
    receive = connection._rfile.read
    if connection._current_timeout != connection._read_timeout:
        connection._sock.settimeout(connection._read_timeout)
        connection._current_timeout = connection._read_timeout
    size = 0
    while size < most:
        header = receive(4)
        if len(header) < 4:
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, "the server ended the connection")
        length = header[0] | header[1] << 8 | header[2] << 16
        packet = receive(length)
        if len(packet) < length:
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, "the server ended the connection")
        if length == _LARGEST_PACKET:
            packet = _joined(connection._read_bytes, packet)
        kind = packet[0]
        if kind == _END and length < 9:
            end = EOFPacketWrapper(MysqlPacket(packet, connection.encoding))
            return size, int(end.warning_count)
        if kind == _ERROR:
            MysqlPacket(packet, connection.encoding).raise_for_error()
        rows.append(packet)
        size += length
    return size, None


def _joined(read: Any, first: bytes) -> bytes:
    """A row of 16 megabytes and more comes in several packets."""
    parts = [first]
    while len(parts[-1]) == _LARGEST_PACKET:
        header = read(4)
        parts.append(read(header[0] | header[1] << 8 | header[2] << 16))
    return b"".join(parts)


def _columns(rows: list[bytes], width: int) -> Iterator[pa.Array]:
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    data = np.frombuffer(b"".join(rows), np.uint8)
    buffer = pa.py_buffer(data)
    place = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    for _ in range(width):
        start, length, valid = _values(data, place)
        views = _views(data, start, length)
        bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        view = pa.Array.from_buffers(
            pa.binary_view(), len(rows), [bits, pa.py_buffer(views), buffer]
        )
        yield view.cast(pa.string())  # copies the values, and refuses what is not UTF-8
        place = start + length


def _values(data: Any, place: Any) -> tuple[Any, Any, Any]:
    """Start and length of the length-encoded values at these places, and which are not NULL."""
    first = data[place]
    length = first.astype(np.int64)
    start = place + 1
    valid = first != 0xFB
    length[~valid] = 0
    for mark, width in ((0xFC, 2), (0xFD, 3), (0xFE, 8)):
        long = np.flatnonzero(first == mark)
        if len(long):
            at = start[long]
            length[long] = sum(data[at + i].astype(np.int64) << 8 * i for i in range(width))
            start[long] += width
    return start, length, valid


def _views(data: Any, start: Any, length: Any) -> Any:
    """Arrow's views: the length, and either the bytes of a short value or where they are."""
    views = np.zeros((len(start), 16), np.uint8)
    views[:, :4] = length.astype("<i4").view(np.uint8).reshape(-1, 4)
    short = length <= _INLINE
    places = np.flatnonzero(short)
    if len(places):
        wide = int(length[places].max())
        steps = np.arange(wide)
        bytes_at = np.minimum(start[places, None] + steps, len(data) - 1)
        inside = steps < length[places, None]
        views[places, 4 : 4 + wide] = np.where(inside, data[bytes_at], 0)
    places = np.flatnonzero(~short)
    if len(places):
        views[places, 4:8] = data[start[places, None] + np.arange(4)]
        views[places, 12:16] = start[places].astype("<i4").view(np.uint8).reshape(-1, 4)
    return views
