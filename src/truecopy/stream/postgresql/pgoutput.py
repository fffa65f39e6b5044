"""Messages of the output plugin pgoutput that the receiver has to understand; rows pass unread."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from truecopy.stream.postgresql.lsn import from_server_time

INSERT, UPDATE, DELETE, TRUNCATE = b"I"[0], b"U"[0], b"D"[0], b"T"[0]
BEGIN, COMMIT, RELATION, MESSAGE = b"B"[0], b"C"[0], b"R"[0], b"M"[0]
ROWS = frozenset((INSERT, UPDATE, DELETE, TRUNCATE))
ANNOTATION_PREFIX = b"truecopy"

_BEGIN = struct.Struct(">cQqI")
_COMMIT = struct.Struct(">cBQQq")
_COLUMN = struct.Struct(">Ii")
_MESSAGE = struct.Struct(">cBQ")
_IS_KEY, _IN_TRANSACTION = 1, 1


@dataclass(frozen=True)
class LoggedColumn:
    """A column as the log describes it."""

    name: str
    type_oid: int
    modifier: int
    is_key: bool


@dataclass(frozen=True)
class LoggedRelation:
    """A table as the log describes it.

    Attributes:
        identity: `d` for the primary key, `i` for an index, `f` for whole rows, `n` for none.
    """

    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[LoggedColumn, ...]


def parse_begin(data: bytes) -> tuple[int, int, int]:
    """Transaction id, LSN of the commit, and its time since the Unix epoch."""
    _, lsn, at, xid = _BEGIN.unpack_from(data)
    return xid, lsn, from_server_time(at)


def parse_commit(data: bytes) -> int:
    """The LSN behind the transaction."""
    end: int = _COMMIT.unpack_from(data)[3]
    return end


def parse_relation(data: bytes) -> LoggedRelation:
    """What comes before the first row of a table, and again after the table may have changed."""
    (oid,) = struct.unpack_from(">I", data, 1)
    schema, place = _string(data, 5)
    table, place = _string(data, place)
    identity = chr(data[place])
    (count,) = struct.unpack_from(">H", data, place + 1)
    place += 3
    columns = []
    for _ in range(count):
        flags = data[place]
        name, place = _string(data, place + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, place)
        place += _COLUMN.size
        columns.append(LoggedColumn(name, type_oid, modifier, bool(flags & _IS_KEY)))
    # The catalogs' own tables come without the name of their schema.
    return LoggedRelation(oid, schema or "pg_catalog", table, identity, tuple(columns))


def parse_annotation(data: bytes) -> str | None:
    """The content of a message of ours; None for one of somebody else."""
    _, flags, _ = _MESSAGE.unpack_from(data)
    prefix, _, rest = data[_MESSAGE.size :].partition(b"\0")
    if prefix != ANNOTATION_PREFIX or not flags & _IN_TRANSACTION:
        return None
    (size,) = struct.unpack_from(">I", rest)
    return rest[4 : 4 + size].decode("utf-8", "replace")


def parse_truncate(data: bytes) -> tuple[int, ...]:
    """Object ids of the tables that were emptied."""
    (count,) = struct.unpack_from(">I", data, 1)
    return struct.unpack_from(f">{count}I", data, 6)


def _string(data: bytes, place: int) -> tuple[str, int]:
    end = data.index(b"\0", place)
    return data[place:end].decode(), end + 1
