"""Row events of a server's own log, fetched with nothing of Truecopy's: only the decoder is under test."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pymysql

from tests.servers import Database
from truecopy.engines.mysql import MySQL
from truecopy.model.change import Definition
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.relation import WHOLE, Relation
from truecopy.model.table import Table
from truecopy.stream.binlog.columns import LoggedColumn, parse_columns

WRITE, UPDATE, DELETE = "write", "update", "delete"
_KINDS = {23: WRITE, 24: UPDATE, 25: DELETE, 30: WRITE, 31: UPDATE, 32: DELETE, 39: UPDATE}
_PARTIAL = 39


@dataclass(frozen=True)
class RowsEvent:
    """One event with rows; `present` and `after` are its bitmaps of columns."""

    kind: str
    columns: tuple[LoggedColumn, ...]
    present: bytes
    after: bytes | None
    partial: bool
    rows: bytes


def rows_events(database: Database, table: str, work: Callable[[], object]) -> list[RowsEvent]:
    """What the server logs of a table while `work` runs."""
    file, position = _log_position(database)
    work()
    found = []
    maps: dict[int, tuple[str, tuple[LoggedColumn, ...]]] = {}
    for kind, body in _events(database, file, position):
        if kind == 19:
            number, name, columns = _table_map(body)
            maps[number] = name, columns
        elif kind in _KINDS:
            number = int.from_bytes(body[:6], "little")
            name, columns = maps[number]
            if name == table:
                found.append(_rows(kind, body, columns))
    return found


def _log_position(database: Database) -> tuple[str, int]:
    for statement in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
        try:
            ((file, position, *_),) = database.execute(statement)
        except pymysql.MySQLError:
            continue
        return str(file), int(position)
    raise AssertionError("the server has no binary log")


def _events(database: Database, file: str, position: int) -> Iterator[tuple[int, bytes]]:
    with closing(database.connect()) as connection:
        with connection.cursor() as cursor:
            cursor.execute(
                "SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'"
            )
            cursor.execute("SET @mariadb_slave_capability = 4")
        # Not blocking: the dump ends where the log ends.
        request = struct.pack("<IHI", position, 1, 4_000_000_000) + file.encode()
        connection._execute_command(0x12, request)
        checksum = 0
        while True:
            packet = connection._read_packet()
            if packet.is_eof_packet():
                return
            event = packet.get_all_data()[1:]
            kind = event[4]
            if kind == 15:
                checksum = 4 if event[-5] == 1 else 0
            if checksum:
                assert zlib.crc32(event[:-4]) == int.from_bytes(event[-4:], "little")
            yield kind, event[19 : len(event) - checksum]


def _table_map(body: bytes) -> tuple[int, str, tuple[LoggedColumn, ...]]:
    number = int.from_bytes(body[:6], "little")
    at = 8
    at += body[at] + 2
    size = body[at]
    name = body[at + 1 : at + 1 + size].decode()
    at += size + 2
    count, at = _packed(body, at)
    types = body[at : at + count]
    at += count
    size, at = _packed(body, at)
    return number, name, parse_columns(types, body[at : at + size])


def _rows(kind: int, body: bytes, columns: tuple[LoggedColumn, ...]) -> RowsEvent:
    at = 8
    if kind >= 30:
        at += int.from_bytes(body[at : at + 2], "little")
    count, at = _packed(body, at)
    size = (count + 7) // 8
    present = body[at : at + size]
    at += size
    after = None
    if _KINDS[kind] == UPDATE:
        after = body[at : at + size]
        at += size
    return RowsEvent(_KINDS[kind], columns, present, after, kind == _PARTIAL, body[at:])


def _packed(body: bytes, at: int) -> tuple[int, int]:
    first = body[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(body[at + 1 : at + 1 + width], "little"), at + 1 + width


def describe(database: Database, table: str) -> Table:
    with closing(MySQL(parse_endpoint(database.url))) as session:
        found = session.find(table)
        assert found is not None
        return session.describe(found)


def definition(table: Table) -> Definition:
    return Definition(str(table.name), table.columns, table.keys[0] if table.keys else ())


def engine_texts(database: Database, table: Table) -> list[tuple[str | None, ...]]:
    """Every row's canonical texts as the engine's own SQL gives them, in the order of the first column."""
    endpoint = parse_endpoint(database.url)
    types = tuple(column.type for column in table.columns)
    relation = Relation(endpoint, (table.name,), table.columns, types, 1)
    with closing(MySQL(endpoint)) as session:
        rows = session.rows(relation, WHOLE)
    found = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    return sorted(found, key=lambda row: int(row[0]))
