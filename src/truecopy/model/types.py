"""Canonical types, and the type that two columns agree on.

A canonical type says what a value *is*, not how an engine stores it. The text of a value
(`truecopy.model.text`) is a function of the value and of the agreed type of its pair of columns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from truecopy.model.errors import UsageError


@dataclass(frozen=True)
class Integer:
    """A whole number of any width, signed or not; booleans and years are whole numbers too."""


@dataclass(frozen=True)
class Boolean:
    """True or false; its text is that of the whole numbers 1 and 0."""


@dataclass(frozen=True)
class Decimal:
    """An exact decimal; `scale` is None where a column does not constrain it."""

    scale: int | None


@dataclass(frozen=True)
class Float:
    """An IEEE 754 number; a 32-bit one is compared as the 64-bit number of the same value."""


@dataclass(frozen=True)
class Date:
    """A day of the proleptic Gregorian calendar."""


@dataclass(frozen=True)
class Time:
    """A time of day, or a span of time as MySQL's TIME holds it."""


@dataclass(frozen=True)
class Timestamp:
    """A day and a time; with `zone` an instant, without it what a wall clock shows."""

    zone: bool


@dataclass(frozen=True)
class Text:
    """Characters; labels of enumerations and sets are text."""


@dataclass(frozen=True)
class Binary:
    """Bytes."""


@dataclass(frozen=True)
class Json:
    """A JSON document, compared by meaning.

    `form` names the way in which an engine prints it: two columns of the same form can be
    compared by their raw text first, since equal text is an equal document.
    """

    form: str | None = None


@dataclass(frozen=True)
class Uuid:
    """A UUID; columns of 16 bytes or of its text hold it as well."""


@dataclass(frozen=True)
class Bits:
    """A string of bits; a fixed `width` is kept with leading zeros."""

    width: int | None


@dataclass(frozen=True)
class Array:
    """An ordered list of values of one type."""

    element: Type


@dataclass(frozen=True)
class Unknown:
    """A column without a type of its own (SQLite, CSV): it takes the type of its counterpart."""


@dataclass(frozen=True)
class Unsupported:
    """A type without a canonical text; comparing it takes a cast."""

    reason: str


Type = (
    Integer
    | Boolean
    | Decimal
    | Float
    | Date
    | Time
    | Timestamp
    | Text
    | Binary
    | Json
    | Uuid
    | Bits
    | Array
    | Unknown
    | Unsupported
)

_WHOLE = (Integer, Boolean, Bits)
_PARSED_FROM_TEXT = (Uuid, Json)


def is_free_text(kind: Type) -> bool:
    """Whether the canonical text may be empty or hold a separator: then its length must be told."""
    return isinstance(kind, Text | Json | Uuid | Array | Binary | Bits)


def agree(
    source: Type, target: Type, *, weak_source: bool = False, weak_target: bool = False
) -> Type | None:
    """The type under which two columns are compared, or None where no type is faithful to both.

    A weak side is one whose engine does not enforce the declared type (SQLite, CSV): it follows
    the other side.
    """
    for unsupported in (source, target):
        if isinstance(unsupported, Unsupported):
            return None
    if isinstance(source, Unknown) and isinstance(target, Unknown):
        return Text()
    if isinstance(source, Unknown) or isinstance(target, Unknown):
        known = target if isinstance(source, Unknown) else source
        return Json() if isinstance(known, Json) else known
    if source == target:
        return source
    return _agree_on_kind(source, target) or _follow_strong_side(
        source, target, weak_source, weak_target
    )


def keeps_order(own: Type, agreed: Type) -> bool:
    """Whether the agreed texts of a column are ordered as the column itself is.

    A UUID that a column of text holds is not: the text may be in capitals.
    """
    if isinstance(agreed, Uuid):
        return isinstance(own, Uuid | Binary)
    numbers = (Integer, Decimal)
    return type(own) is type(agreed) or (isinstance(own, numbers) and isinstance(agreed, numbers))


def _agree_on_kind(a: Type, b: Type) -> Type | None:
    if isinstance(a, Json) and isinstance(b, Json):
        return Json()
    if isinstance(a, Array) and isinstance(b, Array):
        element = agree(a.element, b.element)
        return Array(element) if element else None
    if isinstance(a, Bits) and isinstance(b, Bits):
        return Bits(None)
    if isinstance(a, _WHOLE) and isinstance(b, _WHOLE):
        return Integer()
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return Decimal(None if a.scale is None or b.scale is None else max(a.scale, b.scale))
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Decimal) and isinstance(other, _WHOLE):
            return one
        if isinstance(one, _PARSED_FROM_TEXT) and isinstance(other, Text):
            return Json() if isinstance(one, Json) else one
        if isinstance(one, Uuid) and isinstance(other, Binary):
            return one
    return None


def _follow_strong_side(
    source: Type, target: Type, weak_source: bool, weak_target: bool
) -> Type | None:
    if weak_source and weak_target:
        # Both hold whatever was written: the declaration that says more wins.
        return target if isinstance(source, Text) else source if isinstance(target, Text) else None
    if weak_source and _can_hold(source, target):
        return target
    if weak_target and _can_hold(target, source):
        return source
    return None


def _can_hold(weak: Type, strong: Type) -> bool:
    """Whether values of the strong type are customarily kept in a weak column declared so."""
    if isinstance(weak, Text):
        return True
    if isinstance(weak, Float):
        return isinstance(strong, Decimal | Integer)
    if isinstance(weak, Decimal):
        return isinstance(strong, Float)
    return isinstance(weak, Integer) and isinstance(strong, Float)


_NAMES: dict[str, Type] = {
    "integer": Integer(),
    "boolean": Boolean(),
    "decimal": Decimal(None),
    "double": Float(),
    "date": Date(),
    "time": Time(),
    "timestamp": Timestamp(zone=False),
    "timestamptz": Timestamp(zone=True),
    "text": Text(),
    "binary": Binary(),
    "json": Json(),
    "uuid": Uuid(),
}


def parse_type(name: str) -> Type:
    """The type that a user names, in `--cast COLUMN=TYPE` or in a task file."""
    word = name.strip().lower()
    if match := re.fullmatch(r"decimal\((\d+)\)", word):
        return Decimal(int(match[1]))
    if word not in _NAMES:
        known = ", ".join([*_NAMES, "decimal(SCALE)"])
        raise UsageError(f"unknown type {name!r}; known are {known}")
    return _NAMES[word]


def type_name(kind: Type) -> str:
    """A short name for messages, the inverse of `parse_type` where that has a word."""
    for name, known in _NAMES.items():
        if known == kind:
            return name
    match kind:
        case Decimal(scale):
            return f"decimal({scale})"
        case Array(element):
            return f"array of {type_name(element)}"
        case Json():
            return "json"
        case Bits(width):
            return f"bit({width})" if width else "bits"
        case _:
            return type(kind).__name__.lower()
