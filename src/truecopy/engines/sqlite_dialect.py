"""How SQLite writes things, which type a declaration means, and the canonical text of its values.

SQLite has no hash and keeps any value in any column, so there is no SQL for canonical text: values
are read as they are stored, and the text and the fingerprint are made here, by functions that are
built once per relation. `truecopy.model.text` decides; the functions only shorten the common ways.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from hashlib import sha256

from truecopy.model.relation import Relation
from truecopy.model.table import Column
from truecopy.model.text import canonical_text, float_bits
from truecopy.model.types import (
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
    Unknown,
    Uuid,
    is_free_text,
)

TextOf = Callable[[object], str | None]

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_INTEGERS = {"INT", "INTEGER", "TINYINT", "SMALLINT", "MEDIUMINT", "BIGINT", "INT2", "INT4", "INT8"}
_SERIALS = {"SERIAL", "BIGSERIAL", "SMALLSERIAL", "YEAR"}
_NUMBERS = {"DECIMAL", "NUMERIC", "DEC", "NUMBER"}
_FIXED = {"CHAR", "CHARACTER", "NCHAR", "NATIVE CHARACTER"}
_TEXTS = {"TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "CLOB", "STRING", "ENUM", "BPCHAR"}
_BINARIES = {"BINARY", "VARBINARY", "BYTEA", "BLOB", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB"}
_OTHERS: dict[str, Type] = {
    "BOOLEAN": Boolean(),
    "BOOL": Boolean(),
    "REAL": Float(),
    "FLOAT": Float(),
    "DOUBLE": Float(),
    "DOUBLE PRECISION": Float(),
    "DATE": Date(),
    "TIME": Time(),
    "TIME WITHOUT TIME ZONE": Time(),
    "DATETIME": Timestamp(zone=False),
    "TIMESTAMP": Timestamp(zone=False),
    "TIMESTAMP WITHOUT TIME ZONE": Timestamp(zone=False),
    "TIMESTAMPTZ": Timestamp(zone=True),
    "TIMESTAMP WITH TIME ZONE": Timestamp(zone=True),
    "JSON": Json("sqlite-text"),
    "JSONB": Json("sqlite-text"),
    "UUID": Uuid(),
}


def canonical_type(declared: str) -> Type:
    """The type that a declaration means; what it does not say is left to the other side."""
    word, sizes = _split(declared)
    if word in _FIXED or word in _TEXTS or "VARCHAR" in word or "VARYING" in word:
        return Text()
    if _INTEGERS.intersection(word.split()) or word in _SERIALS:
        return Integer()
    if word in _NUMBERS:
        return Decimal(sizes[1] if len(sizes) == 2 else None)
    if word in _BINARIES:
        return Binary()
    if word in ("BIT", "VARBIT", "BIT VARYING"):
        return Bits(sizes[0] if sizes and word == "BIT" else None)
    return _OTHERS.get(word, Unknown())


def is_padded(declared: str) -> bool:
    """Whether the declaration is one of fixed-length text."""
    return _split(declared)[0] in _FIXED


def affinity(declared: str) -> str:
    """The storage class that SQLite prefers for a column declared so, by its documented rules."""
    word = declared.upper()
    if "INT" in word:
        return "INTEGER"
    if "CHAR" in word or "CLOB" in word or "TEXT" in word:
        return "TEXT"
    if "BLOB" in word or not word:
        return "BLOB"
    return "REAL" if "REAL" in word or "FLOA" in word or "DOUB" in word else "NUMERIC"


def finds_every_key(column: Column, kind: Type) -> bool:
    """Whether `column = parameter` finds each value with that canonical text, whatever its storage.

    A day may be stored with or without a time, a UUID in either case: those are found by reading.
    """
    match kind:
        case Integer() | Boolean():
            return affinity(column.native) in ("INTEGER", "NUMERIC")
        case Text():
            return affinity(column.native) == "TEXT" and not column.padded
        case _:
            return False


class SQLiteDialect:
    """The dialect; see `truecopy.engines.sql.Dialect`. Values are read raw: see this module."""

    placeholder = "?"
    expands_rows = False
    lists_integers = False
    lines_as = ""

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def canonical(self, column: Column, kind: Type) -> str:  # noqa: ARG002 - made by `text_function`
        return self.quote(column.name)

    def as_text(self, expression: str) -> str:
        return expression

    def concat(self, parts: Sequence[str]) -> str:
        raise NotImplementedError("made by `fingerprint_function`")

    def byte_length(self, text: str) -> str:
        raise NotImplementedError("made by `fingerprint_function`")

    def hash60(self, text: str) -> str:
        raise NotImplementedError("made by `fingerprint_function`")

    def hash_hex(self, text: str) -> str:
        raise NotImplementedError("made by `fingerprint_function`")

    def bucket(self, fingerprint: str, shift: int) -> str:
        raise NotImplementedError("made by `fingerprint_function`")

    def row_at_least(self, names: Sequence[str], places: Sequence[str]) -> str:
        return f"({', '.join(names)}) >= ({', '.join(places)})"

    def row_below(self, names: Sequence[str], places: Sequence[str]) -> str:
        return f"({', '.join(names)}) < ({', '.join(places)})"

    def parameter(self, column: Column, kind: Type, text: str) -> tuple[str, object]:
        return "?", stored(column, kind, text)


def stored(column: Column, kind: Type, text: str) -> object:
    """The value to keep for a canonical text, such that reading it gives that text again."""
    if text.startswith("?") and not isinstance(kind, Text | Json | Uuid):
        return bytes.fromhex(text[1:]).decode("utf-8", "surrogatepass")
    match kind:
        case Integer() | Boolean():
            return int(text) if _SMALLEST <= int(text) <= _LARGEST else text
        case Decimal() if _is_whole_number(text) and affinity(column.native) not in (
            "TEXT",
            "BLOB",
        ):
            return int(text.partition(".")[0])  # as text it would become a double
        case Float():
            number: float = struct.unpack(">d", bytes.fromhex(text))[0]
            return "NaN" if math.isnan(number) else number  # SQLite would keep a NaN as NULL
        case Binary():
            return bytes.fromhex(text)
        case Bits() if affinity(column.native) not in ("TEXT", "BLOB"):
            # As text the digits would be taken for a decimal number; bytes stay as they are.
            return int(text or "0", 2) if len(text) < 64 else text.encode()
        case Uuid() if isinstance(column.type, Binary) and re.fullmatch(r"[0-9a-f-]{36}", text):
            return bytes.fromhex(text.replace("-", ""))
        case _:
            return text


def _is_whole_number(text: str) -> bool:
    whole, _, fraction = text.partition(".")
    digits = whole.removeprefix("-").isdecimal() and not fraction.strip("0")
    return digits and _SMALLEST <= int(whole) <= _LARGEST


def text_function(column: Column, kind: Type) -> TextOf:
    """A function from a stored value to its canonical text; documents stay as they are written.

    Those (`Relation.deferred`) are finished by `truecopy.engines.deferred`, as for every engine.
    """
    if isinstance(kind, Json) and not kind.form:
        kind = Text()
    if isinstance(kind, Bits) and kind.width is None and isinstance(column.type, Bits):
        kind = column.type  # stored as a number, whose leading zeros only the declaration knows
    if column.padded:
        return lambda value: canonical_text(
            value.rstrip(" ") if isinstance(value, str) else value, kind
        )
    match kind:
        case Text() | Json():
            return lambda value: value if type(value) is str else canonical_text(value, kind)
        case Integer() | Boolean():
            return lambda value: str(value) if type(value) is int else canonical_text(value, kind)
        case Decimal(scale):
            zeros = "." + "0" * scale if scale else ""
            return lambda value: (
                f"{value}{zeros}" if type(value) is int else canonical_text(value, kind)
            )
        case Float():
            return lambda value: (
                float_bits(value) if type(value) is float else canonical_text(value, kind)
            )
        case _:
            return lambda value: canonical_text(value, kind)


def fingerprint_function(relation: Relation) -> Callable[[Sequence[object]], int]:
    """A function from a stored row to the fingerprint of its columns that are not deferred.

    Equal to `truecopy.model.fingerprint.fingerprint` of the canonical texts.
    """
    pushed = relation.pushed
    kinds = [relation.types[i] for i in pushed]
    texts_of = [text_function(relation.columns[i], relation.types[i]) for i in pushed]
    free = [place for place, kind in enumerate(kinds) if is_free_text(kind)]
    whole = len(pushed) == len(relation.columns)

    def fingerprint(row: Sequence[object]) -> int:
        values = row if whole else [row[i] for i in pushed]
        texts = [text_of(value) for text_of, value in zip(texts_of, values, strict=True)]
        ending = ""
        if free:
            sizes = ["" if (text := texts[i]) is None else str(_bytes_in(text)) for i in free]
            ending = ";" + ",".join(sizes)
        body = ",".join([text or "" for text in texts])
        return int.from_bytes(sha256(f"{body}{ending}".encode()).digest()[:8], "big") >> 4

    return fingerprint


def _bytes_in(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _split(declared: str) -> tuple[str, tuple[int, ...]]:
    """`Decimal (10, 2)` as its word and its sizes; words such as UNSIGNED say nothing here."""
    match = re.fullmatch(r"([^()]*)(?:\(([^)]*)\))?(.*)", declared.upper(), re.DOTALL)
    name, sizes, rest = match.groups() if match else (declared.upper(), None, "")
    words = [w for w in f"{name} {rest}".split() if w not in ("UNSIGNED", "SIGNED", "ZEROFILL")]
    numbers = [part.strip() for part in (sizes or "").split(",")]
    return " ".join(words), tuple(int(part) for part in numbers if part.isdecimal())
