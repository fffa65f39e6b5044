"""How DuckDB writes things: quoting, types, orders, and the values of statements."""

from __future__ import annotations

import decimal
import re
import struct
from collections.abc import Sequence

from truecopy.engines.duckdb_text import canonical
from truecopy.model.table import Column
from truecopy.model.text import shortest_float, split_array
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
    Unsupported,
    Uuid,
)

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_SIMPLE: dict[str, Type] = {
    **dict.fromkeys(_INTEGERS, Integer()),
    **dict.fromkeys((f"U{name}" for name in _INTEGERS), Integer()),
    **dict.fromkeys(("BIGNUM", "VARINT"), Integer()),
    **dict.fromkeys(("FLOAT", "DOUBLE"), Float()),
    **dict.fromkeys(("TIME", "INTERVAL"), Time()),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"), Timestamp(zone=False)),
    "BOOLEAN": Boolean(),
    "DATE": Date(),
    "TIMESTAMP WITH TIME ZONE": Timestamp(zone=True),
    "VARCHAR": Text(),
    "BLOB": Binary(),
    "BIT": Bits(None),
    "UUID": Uuid(),
    "JSON": Json("duckdb"),
}
_CAST_BY_NAME = (Date, Time, Timestamp, Uuid, Boolean, Bits, Array)


def canonical_type(native: str) -> Type:
    """The canonical type of a column from `duckdb_columns()`."""
    if match := re.fullmatch(r"(.*)\[\d*\]", native, re.DOTALL):
        element = canonical_type(match[1])
        return _unsupported(native) if isinstance(element, Unsupported) else Array(element)
    if match := re.fullmatch(r"DECIMAL\(\d+,\s*(\d+)\)", native):
        return Decimal(int(match[1]))
    if native.startswith("ENUM("):
        return Text()
    return _SIMPLE.get(native, _unsupported(native))


def _unsupported(native: str) -> Unsupported:
    return Unsupported(f"{native} has no canonical text")


def order_of(native: str, kind: Type) -> str | None:
    """The name of the order that a key range over this column follows; None: do not use it."""
    match kind:
        case Integer() | Decimal():
            return "number"
        case Date() | Timestamp():
            return "time"
        case Binary() | Uuid():
            return "bytes"
        case Text() if native == "VARCHAR":
            return "bytes"
        case _:
            return None


class DuckDBDialect:
    """The dialect; see `truecopy.engines.sql.Dialect`."""

    placeholder = "?"
    expands_rows = True
    lists_integers = False
    lines_as = ""

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def canonical(self, column: Column, kind: Type) -> str:
        return canonical(self.quote(column.name), column.native, column.type, kind)

    def as_text(self, expression: str) -> str:
        return expression

    def concat(self, parts: Sequence[str]) -> str:
        return f"concat({', '.join(parts)})"  # half the time of ||

    def byte_length(self, text: str) -> str:
        return f"CAST(strlen({text}) AS VARCHAR)"

    def hash60(self, text: str) -> str:
        return f"CAST('0x' || left(sha256({text}), 15) AS BIGINT)"

    def hash_hex(self, text: str) -> str:
        return f"left(sha256({text}), 16)"

    def bucket(self, fingerprint: str, shift: int) -> str:
        return f"({fingerprint} >> {shift})"

    def row_at_least(self, names: Sequence[str], places: Sequence[str]) -> str:
        return _compare(names, places, ">", ">=")

    def row_below(self, names: Sequence[str], places: Sequence[str]) -> str:
        return _compare(names, places, "<", "<")

    def parameter(self, column: Column, kind: Type, text: str) -> tuple[str, object]:
        value = _value(column.type, kind, text)
        if isinstance(column.type, _CAST_BY_NAME):
            return f"CAST(? AS {column.native})", value
        return "?", value


def _compare(names: Sequence[str], places: Sequence[str], strict: str, last: str) -> str:
    """`(a, b) op (x, y)` with a condition on `a` alone in front, by which row groups are skipped.

    It mentions the values in the order of `truecopy.engines.sql.expand`.
    """
    if len(names) == 1:
        return f"{names[0]} {last} {places[0]}"
    rest = _compare(names[1:], places[1:], strict, last)
    return f"({names[0]} {strict}= {places[0]} AND ({names[0]} {strict} {places[0]} OR {rest}))"


def _value(own: Type, kind: Type, text: str) -> object:
    """The value that DuckDB takes for a canonical text under `kind`."""
    if isinstance(kind, Text) and not isinstance(own, Text | Unsupported):
        kind = own
    if text.startswith("?") and not isinstance(kind, Text | Json | Uuid):
        return bytes.fromhex(text[1:]).decode()
    match kind:
        case Integer() | Boolean() | Decimal() if isinstance(own, Text):
            return text
        case Integer() | Decimal() if isinstance(own, Bits):
            return format(int(text.partition(".")[0]), "b")
        case Integer() | Boolean():
            return int(text)
        case Decimal():
            return int(text) if text.removeprefix("-").isdecimal() else decimal.Decimal(text)
        case Float():
            return shortest_float(text) if isinstance(own, Text) else _double(text)
        case Binary():
            return bytes.fromhex(text).decode() if isinstance(own, Text) else bytes.fromhex(text)
        case Uuid() if isinstance(own, Binary):
            return bytes.fromhex(text.replace("-", ""))
        case Timestamp() if own == Timestamp(zone=True):
            return f"{text}+00"
        case Array(element) if isinstance(own, Array):
            inner = own.element
            return [None if i is None else _value(inner, element, i) for i in split_array(text)]
        case _:
            return text


def _double(bits: str) -> float:
    number: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return number
