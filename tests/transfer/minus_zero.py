"""A float of MariaDB that is -0.

A statement of its own cannot store one: -0e0 becomes 0 on its way into the row, whatever the engine. Rows that came by
replication have it, for they are taken as they were logged. So a change is logged with a number that nobody else has,
and applied again with the bits of -0 in its place.
"""

from __future__ import annotations

import base64
import os
import re
import struct
import subprocess
import zlib

from tests.servers import Database

_SINGLE, _DOUBLE = 1.5e-33, 1.25e-123
_ZEROS = {
    struct.pack("<f", _SINGLE): struct.pack("<f", -0.0),
    struct.pack("<d", _DOUBLE): struct.pack("<d", -0.0),
}
_CHECKSUM = 4


def make_minus_zero(database: Database, table: str, id_: int) -> None:
    """Of the columns `f`, a FLOAT, and `d`, a DOUBLE, of a row; it is logged as any other change."""
    ((file, position, *_),) = database.execute("SHOW MASTER STATUS")
    database.execute(f"UPDATE {table} SET f = {_SINGLE}, d = {_DOUBLE} WHERE id = {id_}")
    connection = database.connect()
    with connection.cursor() as cursor:
        for events in _logged(database, file, position):
            cursor.execute("BINLOG %s", (base64.b64encode(_with_minus_zero(events)).decode(),))
    connection.close()
    assert is_minus_zero(database, table, id_)


def is_minus_zero(database: Database, table: str, id_: int) -> bool:
    """By the angle: as text, MariaDB shows -0 as 0."""
    asked = f"SELECT ATAN2(f, -1) < 0 AND ATAN2(d, -1) < 0 FROM {table} WHERE id = {id_}"
    return database.execute(asked) == [(1,)]


def _logged(database: Database, file: str, position: int) -> list[bytes]:
    """Groups of events as the statement BINLOG takes them, the description of the log first."""
    server = database.server
    where = f"--host={server.host} --port={server.port} --user={server.user}"
    asked = f"--no-defaults --read-from-remote-server {where} --start-position={position} {file}"
    done = subprocess.run(
        ["mariadb-binlog", *asked.split()],
        env={**os.environ, "MYSQL_PWD": server.password},
        capture_output=True,
        text=True,
        check=True,
    )
    groups = re.findall(r"BINLOG '([^']+)'", done.stdout)
    # Each event is padded on its own.
    return [b"".join(map(base64.b64decode, group.splitlines())) for group in groups]


def _with_minus_zero(events: bytes) -> bytes:
    changed = b""
    while events:
        size = int.from_bytes(events[9:13], "little")
        event, events = events[: size - _CHECKSUM], events[size:]
        for number, zero in _ZEROS.items():
            event = event.replace(number, zero)
        changed += event + struct.pack("<I", zlib.crc32(event))
    return changed
