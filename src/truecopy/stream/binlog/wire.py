"""The replication protocol: a log's bytes from a server, from a place or a position on.

The log arrives as packets of one event each. They are handed on as large pieces of memory with the
offsets in them left to the caller: copying each event would cost as much as decoding it.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR
from typing import Any
from uuid import uuid4

import pymysql
from pymysql.constants import COMMAND

from truecopy.engines.mysql import explain_error, open_connection
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.position import Beginning, MariaDBPosition, MySQLPosition, Position
from truecopy.stream.binlog.place import MARIADB_NAME, MYSQL_NAME, Place, server_name
from truecopy.stream.log import LogGone

HEARTBEAT_SECONDS = 1.0
"""How often an idle server says that it is idle."""

SILENCE_SECONDS = 15.0
"""A blocking dump that says nothing for so long is dead: heartbeats would have come."""

DEFAULT_SERVER_IDS = range(1_000_000_000, 2_000_000_000)

_PIECE = 1 << 18
_LARGEST_PIECE = 1 << 24
_NON_BLOCK = 1
_SEND_ANNOTATE = 2
_DUMP_GTID = 0x1E
_CANNOT_SEND = 1236
# Shutdown, killed connection, interrupted query, and what a broken network looks like to the server.
_GOING_AWAY = {1053, 1077, 1079, 1158, 1159, 1160, 1161, 1317, 1927, 3169}
_OFFSETS_END = 2**32


class ConnectionLost(CannotFinish):
    """The server went away in the middle of the log; the same range can be read again."""


class Pieces:
    """The bytes of a log, as they come.

    Attributes:
        place: Where they start; None where the server found the position by itself.
        checksums: Whether events end with one, until a file says something else of its own.
        before_waiting: Called when all that has arrived is used up.
    """

    def __init__(self, sock: Any, endpoint: Endpoint, place: Place | None, checksums: bool) -> None:
        self.place = place
        self.checksums = checksums
        self.before_waiting: Callable[[], None] = lambda: None
        self._sock = sock
        self._receive = sock.recv
        self._endpoint = endpoint

    def stop(self) -> None:
        """Lets a reader that waits in another thread find the connection lost."""
        with suppress(OSError):
            self._sock.shutdown(SHUT_RDWR)

    def more(self, rest: bytes, wanted: int) -> bytes:
        """The unread rest with what has arrived behind it, at least `wanted` bytes in all."""
        self.before_waiting()
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


@contextmanager
def dump(
    endpoint: Endpoint,
    server_ids: range,
    *,
    place: Place | None = None,
    position: Position | None = None,
    blocking: bool,
    annotations: bool = False,
) -> Iterator[Pieces]:
    """The log from a place, or from the position where the place is not known or on another server."""
    connection = open_connection(endpoint)
    try:
        is_mariadb = "mariadb" in connection.server_version.lower()
        server, checksums = _introduce(connection, is_mariadb)
        if place is not None and (place.server != server or place.offset >= _OFFSETS_END):
            if position is None:
                raise LogGone(f"{endpoint} does not have the log of {place.server}")
            place = None
        flags = 0 if blocking else _NON_BLOCK
        if annotations and is_mariadb:
            flags |= _SEND_ANNOTATE
        # Not by the process's generator: workers that are forked alike would choose alike, and end each other.
        server_id = secrets.choice(server_ids)
        if place is not None:
            request = struct.pack("<IHI", place.offset, flags, server_id) + place.file.encode()
            connection._execute_command(COMMAND.COM_BINLOG_DUMP, request)
        elif is_mariadb:
            _set_connect_state(connection, endpoint, position)
            request = struct.pack("<IHI", 4, flags, server_id)
            connection._execute_command(COMMAND.COM_BINLOG_DUMP, request)
        else:
            encoded = encode_gtid_set(_gtids(endpoint, position))
            request = struct.pack("<HIIQI", flags, server_id, 0, 4, len(encoded)) + encoded
            connection._execute_command(_DUMP_GTID, request)
        connection._sock.settimeout(SILENCE_SECONDS)
        yield Pieces(connection._sock, endpoint, place, checksums)
    except (pymysql.MySQLError, OSError) as error:
        raise explain_error(error, endpoint) from None
    finally:
        # `close` would say goodbye and wait; the server may be sending gigabytes.
        connection._force_close()


def _introduce(connection: Any, is_mariadb: bool) -> tuple[str, bool]:
    """Says what this reader can take. The server's name, and whether its events have checksums."""
    period = int(HEARTBEAT_SECONDS * 1e9)
    settings = [
        # Without it the server would refuse to send events that carry checksums.
        "SET @master_binlog_checksum = @@global.binlog_checksum",
        f"SET @master_heartbeat_period = {period}",
        # A consumer that is slower than the log is not dead.
        "SET SESSION net_write_timeout = 3600",
    ]
    if is_mariadb:
        settings.append("SET @mariadb_slave_capability = 4")
    else:
        settings += [
            "SET @source_binlog_checksum = @@global.binlog_checksum",
            f"SET @source_heartbeat_period = {period}",
            # MySQL ends an older dump by this, and only without it by the server id.
            f"SET @replica_uuid = '{uuid4()}', @slave_uuid = @replica_uuid",
        ]
    with connection.cursor() as cursor:
        for setting in settings:
            cursor.execute(setting)
        name = MARIADB_NAME if is_mariadb else MYSQL_NAME
        cursor.execute(f"SELECT {name}, @@global.binlog_checksum")
        server, checksum = cursor.fetchone()
    return server_name(server), checksum != "NONE"


def _set_connect_state(connection: Any, endpoint: Endpoint, position: Position | None) -> None:
    if not isinstance(position, MariaDBPosition | Beginning):
        raise LogGone(f"{endpoint} cannot find the position {position} in its log")
    with connection.cursor() as cursor:
        cursor.execute(
            "SET @slave_connect_state = %s, @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0",
            (str(position),),
        )


def _gtids(endpoint: Endpoint, position: Position | None) -> MySQLPosition:
    if isinstance(position, Beginning):
        return MySQLPosition(())
    if not isinstance(position, MySQLPosition):
        raise LogGone(f"{endpoint} cannot find the position {position} in its log")
    return position


def refusal(packet: bytes, endpoint: Endpoint) -> TruecopyError:
    """The error that a server sent instead of an event."""
    (code,) = struct.unpack_from("<H", packet, 1)
    message = packet[3:].decode("utf-8", "replace")
    if message.startswith("#"):
        message = message[6:]
    message = message.rstrip(". \0")
    if "same server_uuid/server_id" in message:
        return ConnectionLost(
            f"{endpoint} ended the connection because another reader came with the same server id: give each"
            " stream a range of its own (server_ids=FIRST-LAST)"
        )
    if code in _GOING_AWAY:
        return ConnectionLost(f"{endpoint} ended the connection: {message}")
    if code != _CANNOT_SEND:
        return CannotFinish(f"{endpoint} ended its log: {message}")
    return LogGone(
        f"{endpoint} cannot give its log from there on: {message};"
        " start from a newer point (--from current), or from a server that keeps its log longer"
    )


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
