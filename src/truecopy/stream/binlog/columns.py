"""Columns as a table map event describes them: a type code and a few bytes of metadata each."""

from __future__ import annotations

from dataclasses import dataclass

from truecopy.model.errors import CannotFinish

TINY, SHORT, LONG, FLOAT, DOUBLE = 1, 2, 3, 4, 5
TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR, NEWDATE = 7, 8, 9, 10, 11, 12, 13, 14
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 15, 16, 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, NEWDECIMAL, ENUM, SET = 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB = 249, 250, 251, 252
VAR_STRING, STRING, GEOMETRY = 253, 254, 255

_NO_METADATA = {TINY, SHORT, LONG, LONGLONG, INT24, YEAR, DATE, NEWDATE, TIME, DATETIME, TIMESTAMP}
# Bytes of the length of a value (blobs), or digits after the second (times).
_ONE_BYTE = {
    FLOAT,
    DOUBLE,
    TIMESTAMP2,
    DATETIME2,
    TIME2,
    BLOB_COMPRESSED,
    VECTOR,
    JSON,
    TINY_BLOB,
    MEDIUM_BLOB,
    LONG_BLOB,
    BLOB,
    GEOMETRY,
}
_TWO_BYTES = {VARCHAR, VARCHAR_COMPRESSED, VAR_STRING, BIT, NEWDECIMAL, STRING, ENUM, SET}


@dataclass(frozen=True)
class LoggedColumn:
    """What the log says of one column.

    Attributes:
        type: The code of the type; ENUM and SET, which the log hides in STRING, by their own.
        meta: STRING, VARCHAR: the greatest length in bytes. ENUM, SET: bytes of a value. Blobs, JSON,
            GEOMETRY, VECTOR: bytes of a value's length. Times: digits after the second. NEWDECIMAL:
            256 * precision + scale. BIT: the number of bits.
    """

    type: int
    meta: int = 0


def parse_columns(types: bytes, metadata: bytes) -> tuple[LoggedColumn, ...]:
    """The columns of a table map event, from its list of types and its block of metadata."""
    found = []
    at = 0
    for code in types:
        if code in _NO_METADATA:
            size = 0
        elif code in _ONE_BYTE:
            size = 1
        elif code in _TWO_BYTES:
            size = 2
        else:
            raise CannotFinish(
                f"the binary log holds a column of the unknown type {code}: leave its table out of the stream"
            )
        if at + size > len(metadata):
            raise CannotFinish("a table map of the binary log is cut short: read it again")
        found.append(_column(code, metadata[at : at + size]))
        at += size
    if at != len(metadata):
        raise CannotFinish(
            "a table map of the binary log holds more than its columns explain: this server's log is not understood"
        )
    return tuple(found)


def _column(code: int, meta: bytes) -> LoggedColumn:
    if len(meta) < 2:
        return LoggedColumn(code, meta[0] if meta else 0)
    first, second = meta
    if code in (STRING, ENUM, SET):
        # The real type is in the first byte, with two more bits of the length folded into it, inverted.
        if first & 0x30 != 0x30:
            return LoggedColumn(first | 0x30, second | ((first & 0x30) ^ 0x30) << 4)
        return LoggedColumn(first, second)
    if code == NEWDECIMAL:
        return LoggedColumn(code, first << 8 | second)
    if code == BIT:
        return LoggedColumn(code, second * 8 + first)
    return LoggedColumn(code, first | second << 8)
