"""The event that says what the rows after it belong to: database, table, columns as they are logged.

With `binlog_row_metadata=FULL` it also names the columns, their character sets, labels and key, so that
a definition can be made from the log alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from truecopy.stream.binlog import columns as logged
from truecopy.stream.binlog.columns import LoggedColumn, parse_columns
from truecopy.stream.binlog.events import packed_integer

_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES, _SETS, _ENUMS = 1, 2, 3, 4, 5, 6
_SIMPLE_KEY, _PREFIX_KEY, _LABEL_DEFAULT_CHARSET, _LABEL_CHARSET = 8, 9, 10, 11

# In the order of these columns the log gives the signs, and the collations.
_NUMERIC = {
    logged.TINY,
    logged.SHORT,
    logged.INT24,
    logged.LONG,
    logged.LONGLONG,
    logged.NEWDECIMAL,
    logged.FLOAT,
    logged.DOUBLE,
    logged.YEAR,
}
_TEXTUAL = {
    logged.STRING,
    logged.VAR_STRING,
    logged.VARCHAR,
    logged.VARCHAR_COMPRESSED,
    logged.BLOB,
    logged.BLOB_COMPRESSED,
    logged.TINY_BLOB,
    logged.MEDIUM_BLOB,
    logged.LONG_BLOB,
}


@dataclass(frozen=True)
class Metadata:
    """What a full log says beyond the types."""

    names: tuple[str, ...]
    unsigned: frozenset[int]
    charsets: Mapping[int, int]
    labels: Mapping[int, tuple[bytes, ...]]
    key: tuple[int, ...]


@dataclass(frozen=True)
class TableMap:
    """A table as the log describes it; `metadata` is None where the log leaves names out."""

    database: str
    table: str
    columns: tuple[LoggedColumn, ...]
    nullable: tuple[bool, ...]
    metadata: Metadata | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"


def parse_names(raw: bytes) -> tuple[str, str]:
    """Database and table: all that is needed to know whether anybody wants it."""
    at = 9 + raw[8]
    return raw[9:at].decode(), raw[at + 2 : at + 2 + raw[at + 1]].decode()


def parse_table_map(raw: bytes) -> TableMap:
    """The whole event."""
    database, table = parse_names(raw)
    at = 9 + raw[8] + 1
    at += 1 + raw[at] + 1
    count, at = packed_integer(raw, at)
    types, at = raw[at : at + count], at + count
    length, at = packed_integer(raw, at)
    columns, at = parse_columns(types, raw[at : at + length]), at + length
    width = (count + 7) // 8
    bits = int.from_bytes(raw[at : at + width], "little")
    nullable = tuple(bool(bits >> i & 1) for i in range(count))
    return TableMap(database, table, columns, nullable, _parse_metadata(raw, at + width, columns))


def _parse_metadata(raw: bytes, at: int, columns: tuple[LoggedColumn, ...]) -> Metadata | None:
    fields: dict[int, bytes] = {}
    while at < len(raw):
        kind = raw[at]
        length, start = packed_integer(raw, at + 1)
        fields[kind] = raw[start : start + length]
        at = start + length
    if _NAMES not in fields:
        return None
    numeric = [i for i, column in enumerate(columns) if column.type in _NUMERIC]
    textual = [i for i, column in enumerate(columns) if column.type in _TEXTUAL]
    labelled = [i for i, column in enumerate(columns) if column.type in (logged.ENUM, logged.SET)]
    signs = fields.get(_SIGNEDNESS, b"")
    unsigned = frozenset(
        column
        for n, column in enumerate(numeric)
        if n // 8 < len(signs) and signs[n // 8] << n % 8 & 128
    )
    charsets = _charsets(fields, _DEFAULT_CHARSET, _COLUMN_CHARSET, textual)
    charsets |= _charsets(fields, _LABEL_DEFAULT_CHARSET, _LABEL_CHARSET, labelled)
    labels: dict[int, tuple[bytes, ...]] = {}
    for kind, code in ((_SETS, logged.SET), (_ENUMS, logged.ENUM)):
        places = [i for i in labelled if columns[i].type == code]
        labels |= dict(zip(places, _label_lists(fields.get(kind, b"")), strict=True))
    key = tuple(_integers(fields.get(_SIMPLE_KEY, b"")))
    if _PREFIX_KEY in fields:
        pairs = _integers(fields[_PREFIX_KEY])
        # A key over the first characters of a column does not tell its rows apart by whole values.
        key = tuple(pairs[::2]) if not any(pairs[1::2]) else ()
    names = tuple(name.decode() for name in _texts(fields[_NAMES]))
    return Metadata(names, unsigned, charsets, labels, key)


def _charsets(
    fields: Mapping[int, bytes], default: int, each: int, places: list[int]
) -> dict[int, int]:
    """The collation of each column that has one: a default with exceptions, or all of them."""
    if each in fields:
        return dict(zip(places, _integers(fields[each]), strict=True))
    if default not in fields:
        return {}
    first, *pairs = _integers(fields[default])
    exceptions = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return {place: exceptions.get(n, first) for n, place in enumerate(places)}


def _integers(raw: bytes) -> list[int]:
    found, at = [], 0
    while at < len(raw):
        number, at = packed_integer(raw, at)
        found.append(number)
    return found


def _texts(raw: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(raw):
        length, at = packed_integer(raw, at)
        found.append(raw[at : at + length])
        at += length
    return found


def _label_lists(raw: bytes) -> list[tuple[bytes, ...]]:
    found, at = [], 0
    while at < len(raw):
        count, at = packed_integer(raw, at)
        labels = []
        for _ in range(count):
            length, at = packed_integer(raw, at)
            labels.append(raw[at : at + length])
            at += length
        found.append(tuple(labels))
    return found
