"""Definitions from a log that names its columns (`binlog_row_metadata=FULL`), and whether one fits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from truecopy.engines.mysql import MySQL
from truecopy.engines.mysql_dialect import canonical_type
from truecopy.engines.protocols import Statement
from truecopy.model.change import Definition
from truecopy.model.table import Column
from truecopy.model.types import Text
from truecopy.stream.binlog import columns as logged
from truecopy.stream.binlog.charsets import UTF8, to_utf8
from truecopy.stream.binlog.columns import LoggedColumn
from truecopy.stream.binlog.layouts import labels
from truecopy.stream.binlog.table_map import Metadata, TableMap

_INTEGERS = {
    logged.TINY: "tinyint",
    logged.SHORT: "smallint",
    logged.INT24: "mediumint",
    logged.LONG: "int",
    logged.LONGLONG: "bigint",
}
_FLOATS = {logged.FLOAT: "float", logged.DOUBLE: "double"}
_PLAIN = {
    logged.YEAR: "year",
    logged.DATE: "date",
    logged.NEWDATE: "date",
    logged.JSON: "json",
    logged.GEOMETRY: "geometry",
    logged.VECTOR: "vector",
}
_TIMES = {
    logged.TIME: "time",
    logged.TIME2: "time",
    logged.DATETIME: "datetime",
    logged.DATETIME2: "datetime",
    logged.TIMESTAMP: "timestamp",
    logged.TIMESTAMP2: "timestamp",
}
_STRINGS = {logged.VARCHAR, logged.VAR_STRING, logged.VARCHAR_COMPRESSED}
_BLOBS = {
    logged.BLOB,
    logged.TINY_BLOB,
    logged.MEDIUM_BLOB,
    logged.LONG_BLOB,
    logged.BLOB_COMPRESSED,
}
_BLOB_SIZES = {1: "tiny", 2: "", 3: "medium", 4: "long"}

# Which codes a column of a declared type is logged under.
_CODES: dict[str, set[int]] = {
    **{name: {code} for code, name in (_INTEGERS | _FLOATS).items()},
    "decimal": {logged.NEWDECIMAL},
    "year": {logged.YEAR},
    "date": {logged.DATE, logged.NEWDATE},
    "time": {logged.TIME, logged.TIME2},
    "datetime": {logged.DATETIME, logged.DATETIME2},
    "timestamp": {logged.TIMESTAMP, logged.TIMESTAMP2},
    **{name: {logged.STRING} for name in ("char", "binary", "uuid", "inet4", "inet6")},
    **dict.fromkeys(("varchar", "varbinary"), _STRINGS),
    "enum": {logged.ENUM},
    "set": {logged.SET},
    "bit": {logged.BIT},
    "json": {logged.JSON, logged.BLOB},
    "vector": {logged.VECTOR, logged.VARCHAR},
}


@dataclass(frozen=True)
class Charset:
    """A character set, and how many bytes a character of it may take."""

    name: str
    widest: int


Charsets = Mapping[int, Charset]
"""Character sets by the number of a collation, as the log gives it."""


def charsets_of(session: MySQL) -> Charsets:
    """What the server calls the numbers; newer MariaDB has them in a table of their own."""
    source = "collations"
    if session.is_mariadb and session.fetch(
        Statement(
            "SELECT 1 FROM information_schema.columns WHERE table_schema = 'information_schema'"
            " AND table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY' AND column_name = 'ID'"
        )
    ):
        source = "collation_character_set_applicability"
    rows = session.fetch(
        Statement(
            f"SELECT c.id, s.character_set_name, s.maxlen FROM information_schema.{source} AS c"
            " JOIN information_schema.character_sets AS s ON s.character_set_name = c.character_set_name"
        )
    )
    return {int(number): Charset(name, int(widest)) for number, name, widest in rows if number}


def agrees(table_map: TableMap, definition: Definition, charsets: Charsets | None = None) -> bool:
    """Whether rows that are logged so can be of a table that is defined so."""
    if len(table_map.columns) != len(definition.columns):
        return False
    return all(
        _column_agrees(table_map, place, column, charsets)
        for place, column in enumerate(definition.columns)
    )


def from_metadata(
    table_map: TableMap, metadata: Metadata, present: Definition | None, charsets: Charsets
) -> Definition:
    """The definition that a full log gives.

    What it does not say (that a text is JSON, that 16 bytes are a UUID) is taken from the column that
    the table has now by that name, if it is of that type.
    """
    known = {column.name.lower(): column for column in present.columns} if present else {}
    columns = []
    for place, name in enumerate(metadata.names):
        now = known.get(name.lower())
        is_same = now is not None and _column_agrees(table_map, place, now, charsets)
        columns.append(now if now and is_same else _column(table_map, place, metadata, charsets))
    key = tuple(metadata.names[place] for place in metadata.key)
    return Definition(table_map.name, tuple(columns), key)


def _column_agrees(
    table_map: TableMap, place: int, defined: Column, charsets: Charsets | None
) -> bool:
    column, metadata = table_map.columns[place], table_map.metadata
    if not _is_logged_as(column, defined):
        return False
    if metadata is None:
        return True
    if metadata.names[place].lower() != defined.name.lower():
        return False
    if column.type in _INTEGERS and ("unsigned" in defined.native) != (place in metadata.unsigned):
        return False
    charset = charsets.get(metadata.charsets.get(place, 0)) if charsets else None
    if (
        charset is not None
        and defined.charset
        and _normal(charset.name) != _normal(defined.charset)
    ):
        return False
    if place in metadata.labels and charset is not None:
        return [_decoded(label, charset) for label in metadata.labels[place]] == labels(defined)
    return True


def _is_logged_as(column: LoggedColumn, defined: Column) -> bool:
    native = defined.native.lower()
    word = re.match(r"\w+", native)
    base = word[0] if word else ""
    if match := re.match(r"decimal\((\d+),(\d+)\)", native):
        return column.type == logged.NEWDECIMAL and column.meta == int(match[1]) << 8 | int(
            match[2]
        )
    if base.endswith(("blob", "text")):
        return column.type in _BLOBS
    if column.type in (logged.TIME2, logged.DATETIME2, logged.TIMESTAMP2):
        return column.type in _CODES.get(base, ()) and column.meta == (defined.fraction or 0)
    return column.type in _CODES.get(base, {column.type})


def _normal(charset: str) -> str:
    return "utf8" if charset == "utf8mb3" else charset


def _column(table_map: TableMap, place: int, metadata: Metadata, charsets: Charsets) -> Column:
    column = table_map.columns[place]
    charset = charsets.get(metadata.charsets.get(place, 0))
    native = _native(column, place, metadata, charset)
    base = re.match(r"\w+", native)
    scale = column.meta & 255 if column.type == logged.NEWDECIMAL else None
    kind = canonical_type(base[0] if base else "", native, scale)
    return Column(
        name=metadata.names[place],
        type=kind,
        native=native,
        nullable=table_map.nullable[place],
        fraction=scale or (column.meta if column.type in _TIMES else 0),
        charset=charset.name if charset and isinstance(kind, Text) else None,
        padded=native.startswith("char"),
    )


def _native(column: LoggedColumn, place: int, metadata: Metadata, charset: Charset | None) -> str:
    """The column's declaration, as far as the log tells it."""
    code = column.type
    is_text = charset is not None and charset.name != "binary"
    length = column.meta // (charset.widest if charset else 1)
    if code in _INTEGERS:
        return _INTEGERS[code] + (" unsigned" if place in metadata.unsigned else "")
    if code in _TIMES:
        return _TIMES[code] + (f"({column.meta})" if column.meta else "")
    if code == logged.NEWDECIMAL:
        return f"decimal({column.meta >> 8},{column.meta & 255})"
    if code == logged.BIT:
        return f"bit({column.meta})"
    if code in (logged.ENUM, logged.SET):
        texts = [_decoded(label, charset) for label in metadata.labels.get(place, ())]
        quoted = ",".join("'" + text.replace("'", "''") + "'" for text in texts)
        return f"{'enum' if code == logged.ENUM else 'set'}({quoted})"
    if code == logged.STRING:
        return f"{'char' if is_text else 'binary'}({length})"
    if code in _STRINGS:
        return f"{'varchar' if is_text else 'varbinary'}({length})"
    if code in _BLOBS:
        return _BLOB_SIZES.get(column.meta, "") + ("text" if is_text else "blob")
    return (_FLOATS | _PLAIN)[code]


def _decoded(label: bytes, charset: Charset | None) -> str:
    convert = None if charset is None or charset.name in UTF8 else to_utf8(charset.name)
    return (convert(label) if convert else label).decode("utf-8", "replace")
