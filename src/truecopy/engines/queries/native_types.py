"""Nested types as engines print them: `STRUCT(a INTEGER, b VARCHAR[])`, `map(varchar, row(x bigint))`."""

from __future__ import annotations

import re
from collections.abc import Callable

from truecopy.model.shape import ListOf, MapOf, Scalar, Shape, StructOf


def read_shape(native: str, scalar: Callable[[str], Scalar]) -> Shape:
    """The shape of a printed type; `scalar` reads what is not nested."""
    text = native.strip()
    if match := re.fullmatch(r"(.*)\[\d*\]", text, re.DOTALL):
        return ListOf(read_shape(match[1], scalar))
    if match := re.fullmatch(r"(array|map|row|struct)\((.*)\)", text, re.DOTALL | re.IGNORECASE):
        parts = split_top(match[2])
        match match[1].lower():
            case "array":
                return ListOf(read_shape(parts[0], scalar))
            case "map":
                return MapOf(read_shape(parts[0], scalar), read_shape(parts[1], scalar))
            case _:
                return StructOf(tuple(_field(part, scalar) for part in parts))
    return scalar(text)


def split_top(text: str) -> list[str]:
    """Parts between commas that are in no brackets and no quotes."""
    parts, depth, quoted, start = [], 0, False, 0
    for at, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif character in "([<":
            depth += 1
        elif character in ")]>":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def _field(part: str, scalar: Callable[[str], Scalar]) -> tuple[str, Shape]:
    if part.startswith('"'):
        name, _, rest = part[1:].replace('""', "\0").partition('"')
        return name.replace("\0", '"'), read_shape(rest, scalar)
    name, _, rest = part.partition(" ")
    return name, read_shape(rest, scalar)
