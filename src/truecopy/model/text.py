"""Canonical text: the reference that every engine's SQL must equal.

`canonical_text(value, type)` is total: a value that is not of the agreed type (SQLite and CSV let
that happen) becomes `?` and the hex of its text, which no value of the type can produce.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import re
import string
import struct
import uuid
from collections.abc import Sequence

from truecopy.model.types import (
    Array,
    Binary,
    Bits,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Time,
    Timestamp,
    Type,
    Uuid,
)

_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_NAN_BITS = "7ff8000000000000"
# ASCII only: no database reads the digits and spaces of other scripts as numbers.
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SPECIAL = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE | re.ASCII)
_SPACES = " \t\n\r\f\v"
_SURROGATE = re.compile("[\ud800-\udfff]")
_DATE = re.compile(r"[0-9]{4,}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"(-?)([0-9]{1,4}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6})0*)?)?")
_TIMESTAMP = re.compile(
    r"([0-9]{4,}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6})0*)?)?)?"
    r" ?(Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_SPECIAL_NUMBERS = {
    "nan": "NaN",
    "inf": "Infinity",
    "infinity": "Infinity",
    "-inf": "-Infinity",
    "-infinity": "-Infinity",
}
# Enough for MySQL's DECIMAL(65,30) and for any numeric that a column constrains.
_EXACT = decimal.Context(
    prec=200_000,
    Emax=200_000,
    Emin=-200_000,
    traps=[decimal.InvalidOperation, decimal.Overflow, decimal.Underflow, decimal.Inexact],
)


def canonical_text(value: object, kind: Type) -> str | None:
    """The canonical text of a Python value under an agreed type; None for NULL."""
    if value is None:
        return None
    match kind:
        case Text():
            return _plain(value)
        case Integer() | Boolean():
            text = _integer(value)
        case Decimal(scale):
            text = _decimal(value, scale)
        case Float():
            text = _float(value)
        case Date():
            text = _date(value)
        case Time():
            text = _time(value)
        case Timestamp(zone):
            text = _timestamp(value, zone)
        case Binary():
            text = _binary(value)
        case Bits(width):
            text = _bits(value, width)
        case Uuid():
            return _uuid(value)
        case Json():
            return canonical_json(_plain(value)) if not kind.form else _plain(value)
        case Array(element):
            text = _array(value, element)
        case _:
            return _plain(value)
    return text if text is not None else "?" + _plain(value).encode("utf-8", "surrogatepass").hex()


def readable_text(text: str | None, kind: Type) -> str | None:
    """Canonical text as a report shows it: floats as their shortest decimal, arrays as JSON."""
    if text is None:
        return None
    if text.startswith("?") and not isinstance(kind, Text | Json | Uuid):
        return bytes.fromhex(text[1:]).decode("utf-8", "replace")
    if isinstance(kind, Float):
        return shortest_float(text)
    if isinstance(kind, Array):
        items = [readable_text(item, kind.element) for item in split_array(text)]
        return json.dumps(items, ensure_ascii=False)
    return text


def shortest_float(bits: str) -> str:
    """The shortest decimal that reads back as the number with these bits."""
    number: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    if math.isnan(number) or math.isinf(number):
        return _SPECIAL_NUMBERS[str(number)]
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def float_bits(number: float) -> str:
    """The bits of a number as 16 hex digits; every NaN alike, and -0 as 0."""
    return _NAN_BITS if math.isnan(number) else struct.pack(">d", number + 0.0).hex()


def canonical_json(text: str) -> str:
    """A JSON document with sorted keys, no spaces and exact numbers; other text as it is."""
    try:
        document = json.loads(
            text, parse_float=_exact_number, parse_int=_exact_number, parse_constant=_reject
        )
    except (ValueError, RecursionError, decimal.DecimalException):
        return text
    # Half a surrogate pair is JSON but no text: it stays escaped.
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", _encode(document))


def join_array(items: Sequence[str | None]) -> str:
    """An array's canonical text: each item as its length in bytes, a colon and its text; `-` for NULL."""
    return "".join("-" if item is None else f"{len(item.encode())}:{item}" for item in items)


def split_array(text: str) -> list[str | None]:
    """The items of an array's canonical text."""
    data = text.encode()
    items: list[str | None] = []
    while data:
        if data[:1] == b"-":
            items.append(None)
            data = data[1:]
            continue
        length, _, rest = data.partition(b":")
        items.append(rest[: int(length)].decode())
        data = rest[int(length) :]
    return items


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data.hex()
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return shortest_float(float_bits(value))
    return str(value)


def _integer(value: object) -> str | None:
    if isinstance(value, bool | int):
        return str(int(value))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else None
    text = f"{value:f}" if isinstance(value, decimal.Decimal) else _plain(value)
    if isinstance(value, decimal.Decimal) and not text.partition(".")[2].strip("0"):
        text = text.partition(".")[0]
    if text.lower() in ("true", "false"):
        return "1" if text.lower() == "true" else "0"
    match = re.fullmatch(r"([+-]?)0*([0-9]+)", text)
    return match and ("-" if match[1] == "-" and match[2] != "0" else "") + match[2]


def _decimal(value: object, scale: int | None) -> str | None:
    number = _number(value)
    if number is None:
        return None
    if not number.is_finite():
        return _SPECIAL_NUMBERS.get(str(number).lower(), "NaN")
    text = f"{number:f}"
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0")
    if scale is not None:
        # More digits than the agreed scale stay: such a value is not what the other side holds.
        fraction = fraction.ljust(scale, "0")
    text = f"{whole}.{fraction}" if fraction else whole
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def _number(value: object) -> decimal.Decimal | None:
    if isinstance(value, decimal.Decimal):
        return value
    if isinstance(value, bool | int):
        return decimal.Decimal(int(value))
    text = repr(value) if isinstance(value, float) else _plain(value).strip(_SPACES)
    if not _NUMBER.fullmatch(text) and not _SPECIAL.fullmatch(text):
        return None
    try:
        return _EXACT.create_decimal(text)
    except decimal.DecimalException:
        return None


def _float(value: object) -> str | None:
    if isinstance(value, int | float | decimal.Decimal):
        try:
            return float_bits(float(value))
        except (OverflowError, ValueError):  # beyond any float, or a signalling NaN
            return None
    text = _plain(value).strip(_SPACES)
    if not _NUMBER.fullmatch(text) and not _SPECIAL.fullmatch(text):
        return None
    return float_bits(float(text))


def _date(value: object) -> str | None:
    if isinstance(value, dt.datetime):
        return value.date().isoformat() if value.time() == dt.time() else None
    if isinstance(value, dt.date):
        return value.isoformat()
    text = _plain(value)
    if _DATE.fullmatch(text):
        return text
    # A day kept as a timestamp at midnight is still that day (drivers without a date type).
    match = _TIMESTAMP.fullmatch(text)
    return match[1] if match and not any(int(part or 0) for part in match.groups()[1:5]) else None


def _time(value: object) -> str | None:
    if isinstance(value, dt.timedelta):
        micros = round(value / dt.timedelta(microseconds=1))
        sign, micros = ("-", -micros) if micros < 0 else ("", micros)
        seconds, micros = divmod(micros, 1_000_000)
        return (
            f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"
        )
    text = value.isoformat() if isinstance(value, dt.time) else _plain(value)
    match = _TIME.fullmatch(text)
    if not match:
        return None
    sign, hours, minutes, seconds_, fraction = match.groups()
    return f"{sign}{hours:0>2}:{minutes}:{seconds_ or '00'}.{(fraction or '').ljust(6, '0')}"


def _timestamp(value: object, zone: bool) -> str | None:
    if isinstance(value, dt.datetime):
        if zone and value.tzinfo:
            try:
                value = value.astimezone(dt.UTC)
            except OverflowError:  # an instant before the year 1 or after 9999 in UTC
                return None
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    match = _TIMESTAMP.fullmatch(value.isoformat() if isinstance(value, dt.date) else _plain(value))
    if not match:
        return None
    day, hours, minutes, seconds, fraction, offset = match.groups()
    text = f"{day} {hours or '00'}:{minutes or '00'}:{seconds or '00'}.{(fraction or '').ljust(6, '0')}"
    if not zone or offset in (None, "Z", "UTC"):
        return text
    try:
        moved = dt.datetime.fromisoformat(f"{text}{offset}").astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None
    return moved.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _binary(value: object) -> str | None:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return _plain(value).encode("utf-8", "surrogatepass").hex()


def _bits(value: object, width: int | None) -> str | None:
    text = format(value, "b") if isinstance(value, int) else _plain(value)
    return text.rjust(width or 0, "0") if re.fullmatch("[01]*", text) else None


def _uuid(value: object) -> str:
    if isinstance(value, bytes):
        return str(uuid.UUID(bytes=value)) if len(value) == 16 else value.hex()
    # ASCII letters only: how others are lowered depends on a collation.
    return _plain(value).translate(_ASCII_LOWER)


def _array(value: object, element: Type) -> str | None:
    if isinstance(value, list | tuple):
        return join_array([canonical_text(item, element) for item in value])
    return None


class _ExactNumber(str):
    """The normalised digits of a JSON number; a type of its own, so that `"1"` is not `1`."""

    __slots__ = ()


def _encode(node: object) -> str:
    if isinstance(node, _ExactNumber):
        return str(node)
    if isinstance(node, dict):
        members = sorted(node.items())
        return (
            "{"
            + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_encode(v)}" for k, v in members)
            + "}"
        )
    if isinstance(node, list):
        return "[" + ",".join(map(_encode, node)) + "]"
    return json.dumps(node, ensure_ascii=False)


def _exact_number(text: str) -> _ExactNumber:
    sign, digits, exponent = decimal.Decimal(text).as_tuple()
    significant = "".join(map(str, digits)).lstrip("0")
    trimmed = significant.rstrip("0")
    power = int(exponent) + len(significant) - len(trimmed)
    return _ExactNumber(_scientific(sign, trimmed, power))


def _scientific(sign: int, digits: str, power: int) -> str:
    """Plain digits where they are short, else digits and a power of ten; one text per value."""
    if not digits:
        return "0"
    minus = "-" if sign else ""
    if 0 <= power <= 30:
        return minus + digits + "0" * power
    if -30 <= power < 0:
        padded = digits.rjust(1 - power, "0")
        return f"{minus}{padded[:power]}.{padded[power:]}"
    return f"{minus}{digits}e{power}"


def _reject(text: str) -> None:
    raise ValueError(f"{text} is not JSON")
