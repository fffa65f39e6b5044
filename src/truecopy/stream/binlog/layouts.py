"""How a value of each type lies in a row of the log, and the Python expression of its canonical text.

There are two shapes only: values of a fixed size, and values that follow their length.
"""

from __future__ import annotations

import re
from binascii import hexlify
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct

from truecopy.model.errors import CannotFinish
from truecopy.model.table import Column
from truecopy.model.types import Binary
from truecopy.stream.binlog import charsets, columns, decimals, temporal
from truecopy.stream.binlog.caching import Cache
from truecopy.stream.binlog.columns import LoggedColumn


@dataclass(frozen=True)
class Layout:
    """The place and the text of a column's values.

    Attributes:
        format: Codes of `struct` for a fixed value; for a value with a length, those of its length.
        sized: Whether the value follows its length.
        text: An expression of `bytes`; `{0}`, `{1}` stand for what `format` gives, or `{0}` for the
            raw value of one with a length; other names are those of `names`.
        names: What the expression refers to.
    """

    format: str
    text: str
    sized: bool = False
    names: dict[str, object] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return Struct("<" + self.format).size

    @property
    def parts(self) -> int:
        return len(Struct("<" + self.format).unpack(bytes(self.size)))


_INTEGERS = {
    columns.TINY: "b",
    columns.SHORT: "h",
    columns.LONG: "i",
    columns.LONGLONG: "q",
}
_BLOBS = {
    columns.TINY_BLOB,
    columns.BLOB,
    columns.MEDIUM_BLOB,
    columns.LONG_BLOB,
    columns.GEOMETRY,
    columns.VECTOR,
}
_LENGTHS = {1: "B", 2: "H", 3: "HB", 4: "I"}
_PACK_DOUBLE = Struct(">d").pack


def layout(logged: LoggedColumn, column: Column) -> Layout:
    """How to read a column of the log that has this definition."""
    kind, meta = logged.type, logged.meta
    unsigned = "unsigned" in column.native
    if kind in _INTEGERS:
        code = _INTEGERS[kind]
        return Layout(code.upper() if unsigned else code, 'b"%d" % {0}')
    if kind == columns.INT24:
        return Layout("HB" if unsigned else "Hb", 'b"%d" % ({0} | {1} << 16)')
    if kind == columns.YEAR:
        return Layout("B", "years[{0}]", names={"years": _YEARS})
    if kind in (columns.FLOAT, columns.DOUBLE):
        # Adding 0.0 makes -0 the 0 that canonical text has.
        return Layout(
            "f" if kind == columns.FLOAT else "d",
            "hexlify(pack_double({0} + 0.0)) if {0} == {0} else nan",
            names={"hexlify": hexlify, "pack_double": _PACK_DOUBLE, "nan": b"7ff8000000000000"},
        )
    if kind == columns.NEWDECIMAL:
        precision, scale = meta >> 8, meta & 255
        return _cached(decimals.size(precision, scale), decimals.decimal(precision, scale))
    if kind == columns.BIT:
        return _cached(
            (meta + 7) // 8,
            lambda raw: format(int.from_bytes(raw, "big"), f"0{meta}b").encode(),
        )
    if kind == columns.ENUM:
        return _enum(meta, column)
    if kind == columns.SET:
        return _set(meta, column)
    if kind in (columns.VARCHAR, columns.VAR_STRING, columns.STRING):
        return _string(logged, column)
    if kind in _BLOBS:
        return _text(_LENGTHS[meta], column)
    return _temporal(logged, column)


def _cached(size: int, compute: Callable[[bytes], bytes]) -> Layout:
    return Layout(f"{size}s", "cache[{0}]", names={"cache": Cache(compute)})


def _temporal(logged: LoggedColumn, column: Column) -> Layout:
    kind, meta, fraction = logged.type, logged.meta, column.fraction or 0
    match kind:
        case columns.DATE | columns.NEWDATE:
            return _cached(3, temporal.date)
        case columns.DATETIME2:
            return _cached(5 + temporal.FRACTION_BYTES[meta], temporal.datetime(meta))
        case columns.TIMESTAMP2:
            return _cached(4 + temporal.FRACTION_BYTES[meta], temporal.timestamp(meta))
        case columns.TIME2:
            return _cached(3 + temporal.FRACTION_BYTES[meta], temporal.time(meta))
        case columns.DATETIME if not fraction:
            return _cached(8, temporal.old_date_time)
        case columns.TIMESTAMP if not fraction:
            return _cached(4, temporal.old_timestamp)
        case columns.TIME if not fraction:
            return _cached(3, temporal.old_time)
        case columns.DATETIME:
            return _cached(temporal.OLD_DATETIME_BYTES[fraction], temporal.maria_datetime(fraction))
        case columns.TIMESTAMP:
            return _cached(
                4 + temporal.FRACTION_BYTES[fraction], temporal.maria_timestamp(fraction)
            )
        case columns.TIME:
            return _cached(temporal.OLD_TIME_BYTES[fraction], temporal.maria_time(fraction))
    raise CannotFinish(
        f"column {column.name} ({column.native}) is logged in a form that is not known (type {kind}):"
        " leave its table out of the stream"
    )


def _string(logged: LoggedColumn, column: Column) -> Layout:
    length = "H" if logged.meta > 255 else "B"
    if logged.type == columns.STRING and isinstance(column.type, Binary):
        # The log leaves out zeros at the end, which the column always has.
        text = "hexlify({0}).ljust(width, b'0')"
        return Layout(
            length, text, sized=True, names={"hexlify": hexlify, "width": 2 * logged.meta}
        )
    return _text(length, column)


def _text(length: str, column: Column) -> Layout:
    if isinstance(column.type, Binary) or column.charset in (None, "binary"):
        return Layout(length, "hexlify({0})", sized=True, names={"hexlify": hexlify})
    if column.charset in charsets.UTF8:
        return Layout(length, "{0}", sized=True)
    convert = charsets.to_utf8(column.charset)
    if convert is None:
        raise CannotFinish(
            f"column {column.name} is in the character set {column.charset}, which the log cannot be read in:"
            " convert it to utf8mb4, or leave its table out of the stream"
        )
    return Layout(length, "convert({0})", sized=True, names={"convert": convert})


def _enum(size: int, column: Column) -> Layout:
    texts = [b"", *(label.encode() for label in labels(column.native))]
    return Layout("B" if size == 1 else "H", "labels[{0}]", names={"labels": texts})


def _set(size: int, column: Column) -> Layout:
    known = labels(column.native)

    def text(raw: bytes) -> bytes:
        n = int.from_bytes(raw, "little")
        return ",".join(label for i, label in enumerate(known) if n >> i & 1).encode()

    return _cached(size, text)


_LABEL = re.compile(r"'((?:[^']|'')*)'")


def labels(native: str) -> list[str]:
    """The labels of `enum('a','b')` or `set('a','b')`."""
    return [label.replace("''", "'") for label in _LABEL.findall(native)]


_YEARS = [b"0", *(b"%d" % (1900 + n) for n in range(1, 256))]
