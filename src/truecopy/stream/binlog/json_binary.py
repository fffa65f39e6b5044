"""MySQL's binary JSON, and the partial updates of it, as canonical JSON.

A document is read into dictionaries and lists whose leaves are their canonical JSON text already. What
JSON has no word for (decimals, dates, bytes) is printed as the server prints it.
"""

from __future__ import annotations

import base64
import json
import re
from struct import Struct
from struct import error as StructError

from truecopy.model.text import canonical_json
from truecopy.stream.binlog import columns, decimals

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = 0, 1, 2, 3, 4
_DOUBLE, _STRING, _OPAQUE = 11, 12, 15
_LITERALS = {0: "null", 1: "true", 2: "false"}
_INTEGERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_REPLACE, _INSERT, _REMOVE = 0, 1, 2

_unpack_integer = {kind: Struct(code).unpack_from for kind, code in _INTEGERS.items()}
_unpack_double = Struct("<d").unpack_from
_unpack_small = Struct("<HH").unpack_from
_unpack_large = Struct("<II").unpack_from
_quote = json.JSONEncoder(ensure_ascii=False).encode


def canonical(document: bytes) -> bytes:
    """The canonical text of a document."""
    return encode(parse(document)).encode()


def partially_updated(document: bytes, changes: bytes) -> bytes:
    """The canonical text of a document after the changes that the log holds instead of the new one."""
    node = parse(document)
    at = 0
    while at < len(changes):
        operation = changes[at]
        size, at = _packed(changes, at + 1)
        path = changes[at : at + size].decode()
        at += size
        value: object = None
        if operation != _REMOVE:
            size, at = _packed(changes, at)
            value = parse(changes[at : at + size])
            at += size
        node = _change(node, operation, _legs(path), value)
    if at != len(changes):
        raise ValueError("a partial update of a JSON document is cut short")
    return encode(node).encode()


def parse(document: bytes) -> object:
    """A document as dictionaries, lists and canonical texts."""
    if not document:
        return "null"  # what a column without a value holds after a forced change of its type
    try:
        return _value(document, document[0], 1)
    except (StructError, IndexError, KeyError) as error:
        raise ValueError(f"a JSON document cannot be read: {error!r}") from None


def encode(node: object) -> str:
    """The canonical text of what `parse` gives."""
    if isinstance(node, str):
        return node
    if isinstance(node, dict):
        return "{" + ",".join([f"{_quote(k)}:{encode(v)}" for k, v in sorted(node.items())]) + "}"
    assert isinstance(node, list)
    return "[" + ",".join(map(encode, node)) + "]"


def _value(data: bytes, kind: int, at: int) -> object:
    if kind == _STRING:
        size, at = _varying(data, at)
        return _quote(_slice(data, at, size).decode())
    if kind in _unpack_integer:
        return str(_unpack_integer[kind](data, at)[0])
    if kind <= _LARGE_ARRAY:
        return _container(data, kind, at)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind == _DOUBLE:
        return _double(_unpack_double(data, at)[0])
    if kind == _OPAQUE:
        size, start = _varying(data, at + 1)
        return _opaque(data[at], _slice(data, start, size))
    raise ValueError(f"a JSON document holds a value of the unknown kind {kind}")


def _container(data: bytes, kind: int, start: int) -> object:
    large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    wide, pair = (4, _unpack_large) if large else (2, _unpack_small)
    count, _ = pair(data, start)
    at = start + 2 * wide
    names = []
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
        for _ in range(count):
            offset = int.from_bytes(_slice(data, at, wide), "little") + start
            size = int.from_bytes(_slice(data, at + wide, 2), "little")
            names.append(_slice(data, offset, size).decode())
            at += wide + 2
    values = []
    for _ in range(count):
        inner = data[at]
        # Small values are kept in the entry itself.
        if inner in (_LITERAL, 5, 6) or (large and inner in (7, 8)):
            values.append(_value(data, inner, at + 1))
        else:
            offset = int.from_bytes(_slice(data, at + 1, wide), "little")
            values.append(_value(data, inner, start + offset))
        at += 1 + wide
    return dict(zip(names, values, strict=True)) if kind <= _LARGE_OBJECT else values


def _slice(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError("a JSON document is cut short")
    return data[at : at + size]


def _varying(data: bytes, at: int) -> tuple[int, int]:
    """A length in groups of seven bits, and where it ends."""
    size = shift = 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, at
        shift += 7


def _double(number: float) -> str:
    if number.is_integer() and abs(number) < 1e15:
        return str(int(number))
    text = repr(number)
    return text if "e" not in text else canonical_json(text)


def _opaque(kind: int, data: bytes) -> str:
    if kind == columns.NEWDECIMAL:
        precision, scale = data[0], data[1]
        return canonical_json(decimals.decimal(precision, scale)(data[2:]).decode())
    if kind in (columns.DATE, columns.NEWDATE):
        return f'"{_packed_day(data)}"'
    if kind in (columns.DATETIME, columns.TIMESTAMP):
        return f'"{_packed_day(data)} {_packed_clock(data, 31)}"'
    if kind == columns.TIME:
        n = int.from_bytes(data, "little", signed=True)
        if n < 0:
            return f'"-{_packed_clock((-n).to_bytes(8, "little"), 1023)}"'
        return f'"{_packed_clock(data, 1023)}"'
    return _quote(f"base64:type{kind}:{_base64(data)}")


def _packed_day(data: bytes) -> str:
    n = int.from_bytes(data, "little") >> 41
    months, day = n >> 5, n & 31
    return f"{months // 13:04d}-{months % 13:02d}-{day:02d}"


def _packed_clock(data: bytes, hours: int) -> str:
    n = int.from_bytes(data, "little")
    clock, micros = n >> 24, n & 0xFFFFFF
    return f"{clock >> 12 & hours:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{micros:06d}"


def _base64(data: bytes) -> str:
    text = base64.b64encode(data).decode()
    # The server breaks its lines after 76 characters.
    return "\n".join(text[at : at + 76] for at in range(0, len(text), 76))


def _packed(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


_LEG = re.compile(
    r'\s*(?:\.\s*(?:"((?:[^"\\]|\\.)*)"|([^\s."\[]+))|\[\s*(?:(\d+)|last\s*(?:-\s*(\d+))?)\s*\])',
    re.DOTALL,
)
Leg = str | int


def _legs(path: str) -> list[Leg]:
    """The steps of a path such as `$.name."odd name"[3]`; places counted from the end are negative."""
    found: list[Leg] = []
    at = 1
    while at < len(path):
        match = _LEG.match(path, at)
        if path[0] != "$" or match is None:
            raise ValueError(f"a partial update of a JSON document has the path {path!r}")
        quoted, name, place, back = match.groups()
        if quoted is not None:
            found.append(str(json.loads(f'"{quoted}"', strict=False)))
        elif name is not None:
            found.append(name)
        elif place is not None:
            found.append(int(place))
        else:
            found.append(-1 - int(back or 0))
        at = match.end()
    return found


def _change(node: object, operation: int, legs: list[Leg], value: object) -> object:
    if not legs:
        if operation != _REPLACE:
            raise ValueError("a partial update of a JSON document has no place in it")
        return value
    leg, rest = legs[0], legs[1:]
    if isinstance(node, dict) and isinstance(leg, str):
        if rest or operation == _REPLACE:
            node[leg] = _change(node[leg], operation, rest, value)
        elif operation == _INSERT:
            node[leg] = value
        else:
            del node[leg]
        return node
    if isinstance(node, list) and isinstance(leg, int):
        if rest or operation == _REPLACE:
            node[leg] = _change(node[leg], operation, rest, value)
        elif operation == _INSERT:
            node.insert(leg if leg >= 0 else len(node) + leg + 1, value)
        else:
            del node[leg]
        return node
    if leg in (0, -1):
        return _change(node, operation, rest, value)  # a value is an array of itself
    raise ValueError("a partial update of a JSON document does not fit the document")
