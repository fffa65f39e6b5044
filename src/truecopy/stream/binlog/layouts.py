"""How a value of each type lies in a row of the log, and the Python expression of its canonical text.

There are two shapes only: values of a fixed size, and values that follow their length.
"""

from __future__ import annotations

import re
from binascii import hexlify
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from struct import Struct

from truecopy.model.errors import CannotFinish
from truecopy.model.table import Column
from truecopy.model.types import Binary, Unsupported
from truecopy.stream.binlog import charsets, columns, decimals, temporal
from truecopy.stream.binlog.caching import Cache
from truecopy.stream.binlog.columns import LoggedColumn
from truecopy.stream.binlog.json_binary import canonical
from truecopy.stream.binlog.mariadb_types import inet4_text, inet6_text, uncompressed, uuid_text


@dataclass(frozen=True)
class Layout:
    """The place and the text of a column's values.

    Attributes:
        format: Codes of `struct` for a fixed value; for a value with a length, those of its length.
        text: An expression of `bytes`; `{0}`, `{1}` stand for what `format` gives, or `{0}` for the
            raw value of one with a length; other names are those of `names`.
        sized: Whether the value follows its length.
        names: What the expressions refer to.
        raw: An expression that takes the place of a raw value with a length first.
    """

    format: str
    text: str
    sized: bool = False
    names: dict[str, object] = field(default_factory=dict)
    raw: str = ""

    @property
    def size(self) -> int:
        return Struct("<" + self.format).size

    @property
    def parts(self) -> int:
        return len(Struct("<" + self.format).unpack(bytes(self.size)))


_INTEGERS = {columns.TINY: "b", columns.SHORT: "h", columns.LONG: "i", columns.LONGLONG: "q"}
_BLOBS = {
    columns.TINY_BLOB,
    columns.BLOB,
    columns.MEDIUM_BLOB,
    columns.LONG_BLOB,
    columns.GEOMETRY,
    columns.VECTOR,
}
_LENGTHS = {1: "B", 2: "H", 3: "HB", 4: "I"}
_STRINGS_OF_MARIADB = {"uuid": uuid_text, "inet4": inet4_text, "inet6": inet6_text}


def layout(logged: LoggedColumn, column: Column) -> Layout:
    """How to read a column of the log that has this definition."""
    kind, meta = logged.type, logged.meta
    if kind in _INTEGERS or kind == columns.INT24:
        return _integer(kind, "unsigned" in column.native)
    if kind in (columns.FLOAT, columns.DOUBLE):
        # Adding 0.0 makes -0 the 0 that canonical text has.
        return Layout(
            "f" if kind == columns.FLOAT else "d",
            "hexlify(pack({0} + 0.0)) if {0} == {0} else nan",
            names={"hexlify": hexlify, "pack": Struct(">d").pack, "nan": b"7ff8000000000000"},
        )
    if kind == columns.NEWDECIMAL:
        return _decimal(meta >> 8, meta & 255)
    if kind in (columns.VARCHAR, columns.VAR_STRING, columns.STRING):
        return _string(logged, column)
    if kind == columns.VARCHAR_COMPRESSED:
        return _compressed(_text("H" if meta > 255 else "B", column))
    if kind in _BLOBS:
        return _text(_LENGTHS[meta], column)
    if kind == columns.BLOB_COMPRESSED:
        return _compressed(_text(_LENGTHS[meta], column))
    if kind == columns.JSON:
        return Layout(_LENGTHS[meta], "document({0})", sized=True, names={"document": canonical})
    if kind == columns.YEAR:
        return Layout("B", "years[{0}]", names={"years": _years()})
    if kind == columns.BIT:
        return _bits(meta)
    if kind == columns.ENUM:
        return _enum(meta, column)
    if kind == columns.SET:
        return _set(meta, column)
    return _temporal(logged, column)


def _cached(size: int, compute: Callable[[bytes], bytes]) -> Layout:
    return Layout(f"{size}s", "cache[{0}]", names={"cache": Cache(compute)})


def _integer(kind: int, unsigned: bool) -> Layout:
    if kind == columns.INT24:
        return Layout("HB" if unsigned else "Hb", 'b"%d" % ({0} | {1} << 16)')
    code = _INTEGERS[kind].upper() if unsigned else _INTEGERS[kind]
    if kind in (columns.TINY, columns.SHORT):
        # A list's end is what a negative number finds.
        table = _small_integers(8 if kind == columns.TINY else 16, unsigned)
        return Layout(code, "texts[{0}]", names={"texts": table})
    return Layout(code, 'b"%d" % {0}')


@cache
def _small_integers(bits: int, unsigned: bool) -> list[bytes]:
    half, whole = 1 << bits - 1, 1 << bits
    return [b"%d" % (n if unsigned or n < half else n - whole) for n in range(whole)]


@cache
def _years() -> list[bytes]:
    return [b"0", *(b"%d" % (1900 + n) for n in range(1, 256))]


def _decimal(precision: int, scale: int) -> Layout:
    size = decimals.size(precision, scale)
    text = decimals.decimal(precision, scale)
    if size <= 2:
        return _cached(size, text)
    # Numbers below zero have all bits inverted: they take the longer way.
    positive, sign = decimals.expression(precision, scale, "n")
    return Layout(
        f"{size}s",
        f'{positive} if (n := from_bytes({{0}}, "big") - {sign}) >= 0 else negative({{0}})',
        names={"from_bytes": int.from_bytes, "negative": text},
    )


def _bits(width: int) -> Layout:
    def text(n: int) -> bytes:
        return format(n, f"0{width}b").encode()

    if width <= 8:
        return Layout("B", "texts[{0}]", names={"texts": [text(n) for n in range(256)]})
    return _cached((width + 7) // 8, lambda raw: text(int.from_bytes(raw, "big")))


def _temporal(logged: LoggedColumn, column: Column) -> Layout:
    kind, digits, fraction = logged.type, logged.meta, column.fraction or 0
    match kind:
        case columns.DATE | columns.NEWDATE:
            return _cached(3, temporal.date)
        case columns.DATETIME2:
            return _with_fraction("5s", temporal.datetime, digits)
        case columns.TIMESTAMP2:
            plain = _with_fraction("4s", temporal.timestamp, digits)
            if not digits:
                return plain
            # All zeros is the zero date; a fraction after the first second of 1970 is not.
            return replace(
                plain,
                text=f"{plain.text} if {{0}} != zero else first[{{1}}]",
                names={**plain.names, "zero": bytes(4), "first": _first_second(digits)},
            )
        case columns.TIME2:
            return _cached(3 + temporal.FRACTION_BYTES[digits], temporal.time(digits))
        case columns.DATETIME:
            return _cached(temporal.OLD_DATETIME_BYTES[fraction], temporal.old_datetime(fraction))
        case columns.TIMESTAMP:
            size = 4 + temporal.FRACTION_BYTES[fraction]
            return _cached(size, temporal.old_timestamp(fraction))
        case columns.TIME:
            return _cached(temporal.OLD_TIME_BYTES[fraction], temporal.old_time(fraction))
    raise CannotFinish(
        f"column {column.name} ({column.native}) is logged in a form that is not known (type {kind}):"
        " leave its table out of the stream"
    )


def _with_fraction(format_: str, compute: Callable[[bytes], bytes], digits: int) -> Layout:
    """Down to the second from a cache, which a fraction would make useless."""
    size = temporal.FRACTION_BYTES[digits]
    if not size:
        return Layout(
            format_,
            "seconds[{0}]",
            names={"seconds": Cache(lambda raw: compute(raw) + b".000000")},
        )
    names: dict[str, object] = {"seconds": Cache(compute)}
    unit = temporal.fraction_unit(digits)
    if size == 1:
        names["fractions"] = [b".%06d" % (n * unit) for n in range(256)]
        return Layout(format_ + "B", "seconds[{0}] + fractions[{1}]", names=names)
    if size == 2:
        names["fractions"] = Cache(lambda raw: b".%06d" % (int.from_bytes(raw, "big") * unit))
        return Layout(format_ + "2s", "seconds[{0}] + fractions[{1}]", names=names)
    names["from_bytes"] = int.from_bytes
    return Layout(
        format_ + "3s", 'b"%b.%06d" % (seconds[{0}], from_bytes({1}, "big"))', names=names
    )


def _first_second(digits: int) -> Cache:
    unit = temporal.fraction_unit(digits)

    def text(raw: int | bytes) -> bytes:
        part = raw if isinstance(raw, int) else int.from_bytes(raw, "big")
        day = b"1970-01-01" if part else b"0000-00-00"
        return b"%b 00:00:00.%06d" % (day, part * unit)

    return Cache(text)


def _string(logged: LoggedColumn, column: Column) -> Layout:
    length = "H" if logged.meta > 255 else "B"
    own = _STRINGS_OF_MARIADB.get(column.native)
    if own is not None:
        return Layout(length, "cache[{0}]", sized=True, names={"cache": Cache(own)})
    if logged.type == columns.STRING and isinstance(column.type, Binary):
        # The log leaves out zeros at the end, which the column always has.
        return Layout(
            length,
            "hexlify({0}).ljust(width, b'0')",
            sized=True,
            names={"hexlify": hexlify, "width": 2 * logged.meta},
        )
    return _text(length, column)


def _text(length: str, column: Column) -> Layout:
    # What has no canonical type (GEOMETRY, VECTOR) is told by its bytes.
    if isinstance(column.type, Binary | Unsupported) or column.charset == "binary":
        return Layout(length, "hexlify({0})", sized=True, names={"hexlify": hexlify})
    if column.charset is None or column.charset in charsets.UTF8:
        return Layout(length, "{0}", sized=True)
    convert = charsets.to_utf8(column.charset)
    if convert is None:
        raise CannotFinish(
            f"column {column.name} is in the character set {column.charset}, which the log cannot be read in:"
            " convert it to utf8mb4, or leave its table out of the stream"
        )

    def checked(raw: bytes) -> bytes:
        try:
            return convert(raw)
        except UnicodeDecodeError as error:
            raise CannotFinish(
                f"column {column.name} holds bytes ({_bad(error).hex()}) that {column.charset}"
                " or Unicode has no character for: correct the value, or leave its table out of the stream"
            ) from None

    plain = "{0} if {0}.isascii() else " if charsets.is_ascii_based(column.charset) else ""
    return Layout(length, f"{plain}convert({{0}})", sized=True, names={"convert": checked})


def _bad(error: UnicodeDecodeError) -> bytes:
    return error.object[error.start : error.start + 4]


def _compressed(plain: Layout) -> Layout:
    names = {**plain.names, "uncompressed": uncompressed}
    return replace(plain, raw="uncompressed({0})", names=names)


def _enum(size: int, column: Column) -> Layout:
    texts = [b"", *(label.encode() for label in labels(column))]
    return Layout("B" if size == 1 else "H", "labels[{0}]", names={"labels": texts})


def _set(size: int, column: Column) -> Layout:
    known = labels(column)

    def text(raw: bytes) -> bytes:
        n = int.from_bytes(raw, "little")
        if n >> len(known):
            raise ValueError(f"{column.native} has no such member")
        return ",".join(label for i, label in enumerate(known) if n >> i & 1).encode()

    return _cached(size, text)


_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "0": "\0"}


def labels(column: Column) -> list[str]:
    """The labels of `enum('a','b')` or `set('a','b')`, as the server escapes them."""
    found = [
        _ESCAPED.sub(lambda m: _ESCAPES.get(m[1], m[1]) if m[1] else "'", label)
        for label in _LABEL.findall(column.native)
    ]
    if len(set(found)) != len(found):
        # Servers print characters beyond U+FFFF as `?` in a declaration.
        raise CannotFinish(
            f"the labels of column {column.name} ({column.native}) cannot be told apart:"
            " SET GLOBAL binlog_row_metadata = 'FULL' on the source"
        )
    return found
