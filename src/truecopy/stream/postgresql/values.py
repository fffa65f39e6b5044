"""From the text that PostgreSQL sends to canonical text, by functions from bytes to bytes.

They count on the settings of `truecopy.stream.postgresql.replication` (UTC, ISO dates, hex for bytes),
and give what `truecopy.engines.postgresql_text` gives for the same values.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

from truecopy.model.errors import CannotFinish
from truecopy.model.types import (
    Array,
    Binary,
    Boolean,
    Date,
    Decimal,
    Float,
    Text,
    Time,
    Timestamp,
    Type,
)

Convert = Callable[[bytes], bytes]

_NAN = b"7ff8000000000000"
_DOUBLE, _SINGLE = struct.Struct(">d"), struct.Struct(">f")
_INTERVAL = re.compile(
    rb"(?:(-?\d+) days?)? ?(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?", re.ASCII
)
_ITEM = re.compile(rb'(?:"((?:[^"\\]|\\.)*)"|([^",]*))(?:,|\Z)', re.DOTALL)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_POINT, _C = b".C"
_MICROSECONDS_A_DAY = 86_400_000_000


def converter(kind: Type, base: str) -> Convert | None:
    """The function for a column; None where the text is canonical as it comes.

    Args:
        kind: The column's canonical type.
        base: Its base type, or that of its elements, as `pg_type` names it.
    """
    match kind:
        case Array(element):
            return _array(converter(element, base))
        case Boolean():
            return {b"t": b"1", b"f": b"0"}.__getitem__
        case Decimal(None):
            return _trimmed
        case Float():
            return _single if base == "float4" else _double
        case Date():
            return _date
        case Time():
            return _interval if base == "interval" else _time
        case Timestamp(zone):
            return _instant if zone else _timestamp
        case Binary():
            return _binary
        case Text() if base == "bpchar":
            return _unpadded
        case _:
            return None


def misfit(text: bytes) -> bytes:
    """A value that other databases do not have: infinite, before Christ, of several dimensions."""
    return b"?" + text.hex().encode()


def _unpadded(text: bytes) -> bytes:
    return text.rstrip(b" ")


def _trimmed(text: bytes) -> bytes:
    return text.rstrip(b"0").rstrip(b".") if b"." in text else text


def _double(text: bytes) -> bytes:
    number = float(text)
    # + 0.0 makes 0 of -0.
    return _NAN if number != number else _DOUBLE.pack(number + 0.0).hex().encode()


def _single(text: bytes) -> bytes:
    """The double of the same value, which is not the one that the short text reads as."""
    number = _SINGLE.unpack(_SINGLE.pack(float(text)))[0]
    return _NAN if number != number else _DOUBLE.pack(number + 0.0).hex().encode()


def _date(text: bytes) -> bytes:
    return text if len(text) == 10 or text[-1:].isdigit() else misfit(text)


def _time(text: bytes) -> bytes:
    whole, _, fraction = text.partition(b".")
    return b"%b.%b" % (whole, fraction.ljust(6, b"0"))


def _timestamp(text: bytes) -> bytes:
    if len(text) == 26 and text[19] == _POINT and text[25] != _C:  # no year BC
        return text
    return _time(text) if text[-1:].isdigit() else misfit(text)


def _instant(text: bytes) -> bytes:
    return _timestamp(text[:-3]) if text.endswith(b"+00") else misfit(text)


def _interval(text: bytes) -> bytes:
    """Hours without end, a day being 24 of them; months have no fixed length."""
    match = _INTERVAL.fullmatch(text)
    if not match:
        return misfit(text)
    days, sign, hours, minutes, seconds, fraction = match.groups()
    clock = ((int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)) * 1_000_000
    clock += int((fraction or b"").ljust(6, b"0"))
    total = int(days or 0) * _MICROSECONDS_A_DAY + (-clock if sign == b"-" else clock)
    rest, micros = divmod(abs(total), 1_000_000)
    minus = b"-" if total < 0 else b""
    return b"%b%02d:%02d:%02d.%06d" % (minus, rest // 3600, rest // 60 % 60, rest % 60, micros)


def _binary(text: bytes) -> bytes:
    return text[2:]


def _array(convert: Convert | None) -> Convert:
    """Arrays of more dimensions, or that do not start at 1, are not lists."""

    def convert_array(text: bytes) -> bytes:
        if text == b"{}":
            return b""
        if text[:1] != b"{" or text[1:2] == b"{":
            return misfit(text)
        items = []
        for item in _items(text[1:-1]):
            if item is None:
                items.append(b"-")
                continue
            canonical = convert(item) if convert else item
            items.append(b"%d:%b" % (len(canonical), canonical))
        return b"".join(items)

    return convert_array


def _items(text: bytes) -> Iterator[bytes | None]:
    """The elements between the braces; a quoted NULL is a text."""
    place = 0
    while place < len(text):
        match = _ITEM.match(text, place)
        if not match:
            raise CannotFinish(f"cannot read an array from the log: {text[:100]!r}")
        quoted, plain = match.groups()
        if quoted is not None:
            yield _ESCAPED.sub(rb"\1", quoted)
        else:
            yield None if plain == b"NULL" else plain
        place = match.end()
