"""The replication protocol: a log's bytes from a server, from a place or a position on.

The log arrives as packets of one event each. They are handed on as large pieces of memory with the
offsets in them left to the caller: copying each event would cost as much as decoding it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.constants import COMMAND

from truecopy.engines.mysql import explain_error, open_connection
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.position import Beginning, MariaDBPosition, MySQLPosition, Position
from truecopy.stream.log import LogGone

HEARTBEAT_SECONDS = 1.0
"""How often an idle server says that it is idle: what it last said dates the end of its log."""

SILENCE_SECONDS = 15.0
"""A blocking dump that says nothing for so long is dead: heartbeats would have come."""

_PIECE = 1 << 18
_LARGEST_PIECE = 1 << 24
_NON_BLOCK = 1
_SEND_ANNOTATE = 2
_DUMP_GTID = 0x1E
_GONE = (1236,)
DEFAULT_SERVER_IDS = range(1_000_000_000, 2_000_000_000)


class ConnectionLost(CannotFinish):
    """The server went away in the middle of the log; the same range can be read again."""


@contextmanager
def dump(
    endpoint: Endpoint,
    server_ids: range,
    *,
    place: tuple[str, int] | None = None,
    position: Position | None = None,
    blocking: bool,
    annotations: bool = False,
) -> Iterator[Pieces]:
    """The log from a file and offset, or from a position where the file is not known."""
    connection = open_connection(endpoint)
    try:
        yield _start(connection, endpoint, server_ids, place, position, blocking, annotations)
    except (pymysql.MySQLError, OSError) as error:
        raise explain_error(error, endpoint) from None
    finally:
        # `close` would say goodbye and wait; the server may be sending gigabytes.
        connection._force_close()


class Pieces:
    """The bytes of a log, as they come.

    Attributes:
        checksums: Whether events end with one, until a file says something else of its own.
    """

    def __init__(self, sock: Any, endpoint: Endpoint, checksums: bool) -> None:
        self.checksums = checksums
        self._receive = sock.recv
        self._endpoint = endpoint

    def more(self, rest: bytes, wanted: int) -> bytes:
        """The unread rest with what has arrived behind it, at least `wanted` bytes in all."""
        pieces, length = [rest], len(rest)
        while True:
            try:
                piece = self._receive(max(_PIECE, min(wanted - length, _LARGEST_PIECE)))
            except TimeoutError:
                raise ConnectionLost(
                    f"{self._endpoint} has been silent for {SILENCE_SECONDS:.0f} s in the middle of its log"
                ) from None
            except OSError as error:
                raise ConnectionLost(f"lost the connection to {self._endpoint}: {error}") from None
            if not piece:
                raise ConnectionLost(
                    f"{self._endpoint} closed the connection in the middle of its log"
                )
            pieces.append(piece)
            length += len(piece)
            if length >= wanted:
                return b"".join(pieces) if rest or len(pieces) > 2 else piece


def _start(
    connection: Any,
    endpoint: Endpoint,
    server_ids: range,
    place: tuple[str, int] | None,
    position: Position | None,
    blocking: bool,
    annotations: bool,
) -> Pieces:
    server_id = random.choice(server_ids)
    is_mariadb = "mariadb" in connection.server_version.lower()
    statements = [
        # Without it the server would refuse to send events that carry checksums.
        "SET @master_binlog_checksum = @@global.binlog_checksum",
        "SET @source_binlog_checksum = @@global.binlog_checksum",
        f"SET @master_heartbeat_period = {int(HEARTBEAT_SECONDS * 1e9)}",
        f"SET @source_heartbeat_period = {int(HEARTBEAT_SECONDS * 1e9)}",
        # A consumer that is slower than the log is not dead.
        "SET SESSION net_write_timeout = 3600",
    ]
    if is_mariadb:
        statements.append("SET @mariadb_slave_capability = 4")
        if place is None:
            state = str(position) if position is not None else ""
            statements.append(
                f"SET @slave_connect_state = '{state}', @slave_gtid_strict_mode = 0,"
                " @slave_gtid_ignore_duplicates = 0"
            )
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        cursor.execute("SELECT @@global.binlog_checksum")
        checksums = cursor.fetchone()[0] != "NONE"
    flags = (0 if blocking else _NON_BLOCK) | (_SEND_ANNOTATE if annotations and is_mariadb else 0)
    file, offset = place or ("", 4)
    if place is None and isinstance(position, MySQLPosition):
        encoded = encode_gtid_set(position)
        payload = struct.pack("<HII", flags, server_id, 0)
        payload += struct.pack("<QI", 4, len(encoded)) + encoded
        connection._execute_command(_DUMP_GTID, payload)
    else:
        if place is None and not isinstance(position, MariaDBPosition | Beginning | None):
            raise LogGone(f"{endpoint} cannot find the position {position} in its log")
        payload = struct.pack("<IHI", offset, flags, server_id) + file.encode()
        connection._execute_command(COMMAND.COM_BINLOG_DUMP, payload)
    connection._sock.settimeout(SILENCE_SECONDS)
    return Pieces(connection._sock, endpoint, checksums)


def refusal(packet: bytes, endpoint: Endpoint) -> TruecopyError:
    """The error that a server sent instead of an event."""
    (code,) = struct.unpack_from("<H", packet, 1)
    message = packet[3:].decode("utf-8", "replace")
    if message.startswith("#"):
        message = message[6:]
    if code in _GONE:
        return LogGone(
            f"{endpoint} cannot give its log from there on: {message};"
            " start from a newer point (--from current), or from a server that keeps its log longer"
        )
    return CannotFinish(f"{endpoint} ended its log: {message}")


def encode_gtid_set(position: MySQLPosition) -> bytes:
    """A GTID set as COM_BINLOG_DUMP_GTID takes it; the form with tags only where there are some."""
    tagged = any(tag for (_, tag), _ in position.sources)
    count = len(position.sources)
    parts = [struct.pack("<Q", count) if not tagged else _tagged_count(count)]
    for (uuid, tag), runs in position.sources:
        parts.append(bytes.fromhex(uuid.replace("-", "")))
        if tagged:
            # The length as a number whose lowest bit says that it is one byte.
            parts.append(bytes([len(tag) << 1]) + tag.encode())
        parts.append(struct.pack("<Q", len(runs)))
        parts += [struct.pack("<QQ", first, last + 1) for first, last in runs]
    return b"".join(parts)


def _tagged_count(count: int) -> bytes:
    return bytes([1]) + count.to_bytes(6, "little") + bytes([1])
