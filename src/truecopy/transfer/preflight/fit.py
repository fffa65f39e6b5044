"""Whether a column of the target holds every value that the source's declaration allows."""

from __future__ import annotations

import re

from truecopy.engines.creation import Shape, shape_of
from truecopy.model.table import Column, Table
from truecopy.model.types import (
    Array,
    Binary,
    Bits,
    Boolean,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Time,
    Timestamp,
    Unknown,
    Uuid,
)

_FAMILY = ("mysql", "mariadb")
_BYTES = {"tinytext": 255, "text": 65_535, "mediumtext": 16_777_215}
_BYTES |= {"tinyblob": 255, "blob": 65_535, "mediumblob": 16_777_215}
_DIGITS = {8: 3, 16: 5, 24: 8, 32: 10, 64: 20, 128: 39}


def misfit(source: Column, source_engine: str, target: Column, target_engine: str) -> str | None:
    """Which values (NULL aside) do not fit, in words; None where all do, or where a side binds nothing."""
    if source.weak or target.weak or target.generated:
        return None
    alike = {source_engine, target_engine} <= set(_FAMILY) or source_engine == target_engine
    if alike and source.native == target.native:
        return _characters(source, target)
    ours, theirs = shape_of(source, source_engine), shape_of(target, target_engine)
    found = _kind(source, ours, target, theirs)
    if found is None and isinstance(target.type, Timestamp) and target.type.zone:
        found = _range(source, source_engine, target, target_engine)
    if found is None and isinstance(target.type, Text | Binary):
        found = _length(source, ours, source_engine, target, theirs, target_engine)
    return found or _characters(source, target)


def longest_row(table: Table) -> int | None:
    """Bytes that the texts of a row may have by its declarations; None where they bind nothing."""
    total = 0
    for column in table.columns:
        native, shape = column.native.lower(), shape_of(column, table.engine)
        if not isinstance(column.type, Text | Binary | Json | Unknown | Array):
            total += 100
            continue
        if table.engine in _FAMILY and native in _BYTES:
            most = _BYTES[native]
        elif shape.length is not None and not column.weak:
            most = shape.length * _width(column)
        elif _labels(native):
            most = sum(4 * len(label) + 1 for label in _labels(native))
        else:
            return None
        total += 2 * most if isinstance(column.type, Binary) else most
    return total


def _kind(source: Column, ours: Shape, target: Column, theirs: Shape) -> str | None:
    match source.type, target.type:
        case Integer() | Bits(), Boolean():
            return "numbers other than 0 and 1"
        case Integer() | Bits(), Integer():
            return _whole(_bits(source, ours), ours.signed, theirs)
        case Boolean(), _:
            return None
        case Integer(), Decimal(scale):
            digits = _DIGITS.get(ours.bits or 0)
            room = theirs.precision - (scale or 0) if theirs.precision is not None else None
            return (
                None if room is None or (digits and digits <= room) else f"more than {room} digits"
            )
        case Decimal(scale), Integer():
            return "fractions" if scale != 0 else _whole(None, True, theirs)
        case Decimal(), Decimal():
            return _decimal(ours, theirs)
        case Float(), Float():
            return "numbers of double precision" if theirs.single and not ours.single else None
        case Text(), Uuid():
            return "texts that are no UUID"
        case Text(), Json():
            return "texts that are no JSON"
        case Time(), Time():
            if ours.span and not theirs.span:
                return "times below 00:00 or above 24:00"
            return _fraction(ours, theirs)
        case Timestamp(), Timestamp():
            return _fraction(ours, theirs)
        case _:
            return None


def _bits(source: Column, ours: Shape) -> int | None:
    return source.type.width if isinstance(source.type, Bits) else ours.bits


def _whole(bits: int | None, signed: bool, theirs: Shape) -> str | None:
    if theirs.bits is None:
        return None
    high = 2 ** (theirs.bits - theirs.signed) - 1
    if bits is None or 2 ** (bits - signed) - 1 > high:
        return f"numbers above {high}"
    low = -(2 ** (theirs.bits - 1)) if theirs.signed else 0
    return f"numbers below {low}" if signed and -(2 ** (bits - 1)) < low else None


def _decimal(ours: Shape, theirs: Shape) -> str | None:
    assert isinstance(ours.kind, Decimal)
    assert isinstance(theirs.kind, Decimal)
    if theirs.precision is None or theirs.kind.scale is None:
        return None
    if ours.kind.scale is None or ours.kind.scale > theirs.kind.scale:
        return f"more than {theirs.kind.scale} digits after the point"
    room = theirs.precision - theirs.kind.scale
    if ours.precision is None or ours.precision - ours.kind.scale > room:
        return f"more than {room} digits before the point"
    return None


def _fraction(ours: Shape, theirs: Shape) -> str | None:
    if ours.fraction <= theirs.fraction:
        return None
    return f"more than {theirs.fraction} digits of a second"


def _range(source: Column, source_engine: str, target: Column, target_engine: str) -> str | None:
    """TIMESTAMP of MySQL and MariaDB counts seconds in 32 bits."""
    own = source_engine in _FAMILY and source.native.lower().startswith("timestamp")
    if target_engine in _FAMILY and target.native.lower().startswith("timestamp") and not own:
        return "times before 1970 or after 2038"
    return None


def _length(
    source: Column,
    ours: Shape,
    source_engine: str,
    target: Column,
    theirs: Shape,
    target_engine: str,
) -> str | None:
    limit = _BYTES.get(target.native.lower()) if target_engine in _FAMILY else None
    if limit is not None:
        held = _BYTES.get(source.native.lower()) if source_engine in _FAMILY else None
        most = held or (ours.length * _width(source) if ours.length else None)
        return None if most is not None and most <= limit else f"more than {limit:,} bytes"
    if target.native.lower().startswith(("enum", "set")):
        missing = _labels(source.native) - _labels(target.native)
        if missing:
            return f"the label {min(missing)!r}"
        return None if _labels(source.native) else "texts that are no label"
    if theirs.length is None or not isinstance(ours.kind, type(theirs.kind)):
        return None
    if _labels(source.native):
        longest = max(map(len, _labels(source.native)))
        return f"more than {theirs.length} characters" if longest > theirs.length else None
    if ours.length is None or ours.length > theirs.length:
        return (
            f"more than {theirs.length} {'characters' if isinstance(ours.kind, Text) else 'bytes'}"
        )
    return None


def _labels(native: str) -> set[str]:
    if not native.lower().startswith(("enum(", "set(")):
        return set()
    return {text.replace("''", "'") for text in re.findall(r"'((?:[^']|'')*)'", native)}


def _width(column: Column) -> int:
    if not isinstance(column.type, Text) or column.charset in ("latin1", "ascii"):
        return 1
    return 3 if column.charset in ("utf8", "utf8mb3") else 4


def _characters(source: Column, target: Column) -> str | None:
    """Characters that the target's character set does not have."""
    narrow = target.charset
    if (
        narrow is None
        or narrow in ("utf8mb4", "utf16", "utf32", "binary")
        or narrow == source.charset
    ):
        return None
    if source.charset == "ascii" or not isinstance(source.type, Text):
        return None
    if narrow in ("utf8", "utf8mb3"):
        within = source.charset not in (None, "utf8mb4", "utf16", "utf32")
        return None if within else "characters beyond U+FFFF, such as emoji"
    return f"characters that {narrow} does not have"
