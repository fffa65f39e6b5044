"""How PostgreSQL writes things: quoting, types, orders, and the values of statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from truecopy.engines.postgresql_text import canonical
from truecopy.engines.sql import Bytes
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

_SIMPLE: dict[str, Type] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), Integer()),
    **dict.fromkeys(("text", "varchar", "bpchar", "char", "name"), Text()),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8", "xml", "tsvector"), Text()),
    **dict.fromkeys(("float4", "float8"), Float()),
    **dict.fromkeys(("time", "interval"), Time()),
    "bool": Boolean(),
    "date": Date(),
    "timestamp": Timestamp(zone=False),
    "timestamptz": Timestamp(zone=True),
    "bytea": Binary(),
    "uuid": Uuid(),
    "jsonb": Json("jsonb"),
    "json": Json("json-text"),
    "varbit": Bits(None),
}
_COLLATED = ("text", "varchar", "bpchar", "name")
_MARKS = "','", "';'"
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def canonical_type(name: str, is_enum: bool, modifier: int, native: str) -> Type:
    """The canonical type of a base type (of `pg_type`, no domain and no array) and its modifier."""
    if is_enum or name == "citext":
        return Text()
    if name == "numeric":
        # The scale is in the lower 11 bits; since PostgreSQL 15 it may be below 0: no fraction.
        return Decimal(None if modifier < 0 else max(0, ((modifier - 4 & 0x7FF) ^ 1024) - 1024))
    if name == "bit":
        return Bits(modifier if modifier > 0 else None)
    return _SIMPLE.get(name, Unsupported(f"{native} has no canonical text"))


def order_of(
    name: str,
    kind: Type,
    collation: Mapping[str, object] | None,
    database: Mapping[str, object],
    encoding: str,
) -> str | None:
    """The name of the order that a key range over this column follows; None: do not use it.

    Args:
        name: The base type.
        kind: Its canonical type.
        collation: Row of `pg_collation`, with `actual`, the version that the server's library has.
        database: Row of `pg_database`, likewise.
        encoding: The server's encoding.
    """
    match kind:
        case Integer() | Decimal():
            return "number"
        case Date() | Timestamp():
            return "time"
        case Binary() | Uuid():
            return "bytes"
        case Text() if name in _COLLATED and collation and collation["collisdeterministic"]:
            return _text_order(collation, database, encoding)
        case _:
            return None


def _text_order(
    collation: Mapping[str, object], database: Mapping[str, object], encoding: str
) -> str | None:
    provider = collation["collprovider"]
    version = collation["actual"]
    locale = _first(collation, "colllocale", "colliculocale", "collcollate")
    if provider == "d":
        provider = database.get("datlocprovider") or "c"
        version = database["actual"]
        names = ("datlocale", "daticulocale") if provider != "c" else ()
        locale = _first(database, *names, "datcollate")
    if provider == "b" or locale in ("C", "POSIX"):
        return (
            "bytes" if encoding in ("UTF8", "LATIN1", "SQL_ASCII") else f"postgresql:C:{encoding}"
        )
    if version is None and not locale.upper().startswith("C."):
        return None  # two libraries of unknown version may well order differently
    return f"postgresql:{provider}:{locale}:{version or ''}"


def _first(row: Mapping[str, object], *names: str) -> str:
    """Which column holds a locale depends on the server's version."""
    return next((str(row[name]) for name in names if row.get(name)), "")


class PostgreSQLDialect:
    """The dialect; see `truecopy.engines.sql.Dialect`."""

    placeholder = "%s"
    expands_rows = False
    lists_integers = False
    lines_as = ""

    def __init__(self, encoding: str = "UTF8", *, trims_bytes: bool = False) -> None:
        self.encoding = encoding
        self._trims_bytes = trims_bytes
        """Whether the server can take spaces off bytes: since PostgreSQL 14."""

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""').replace("%", "%%") + '"'

    def canonical(self, column: Column, kind: Type) -> str:
        name = self.quote(column.name)
        if self._trims_bytes and column.padded and isinstance(kind, Text):
            # The cast of `character(n)` to text looks at every character for the spaces at its end.
            return Bytes(f"rtrim(bpcharsend({name}),' '::bytea)")
        return canonical(name, column.native, column.type, kind)

    def as_text(self, expression: str) -> str:
        return f"convert_from({expression},'UTF8')" if isinstance(expression, Bytes) else expression

    def concat(self, parts: Sequence[str]) -> str:
        if not any(isinstance(part, Bytes) for part in parts):
            return f"({'||'.join(parts)})"
        runs = groupby(parts, key=lambda part: isinstance(part, Bytes))
        joined = ["||".join(run) if are_bytes else _bytes_of(list(run)) for are_bytes, run in runs]
        return Bytes(f"({'||'.join(joined)})")

    def byte_length(self, text: str) -> str:
        if isinstance(text, Bytes):
            return f"octet_length({text})::text"
        return f"octet_length({text if self.encoding == 'UTF8' else f'textsend({text})'})::text"

    def hash60(self, text: str) -> str:
        # Of one expression the cheapest way to 60 bits, to which the cast cuts.
        return f"('x'||{self.hash_hex(text)})::bit(60)::bigint"

    def hash_hex(self, text: str) -> str:
        return f"encode(substr({self.hash_bytes(text)},1,8),'hex')"

    def hash_bytes(self, text: str) -> str:
        """The SHA-256 of a text."""
        # `textsend` gives the client's encoding, UTF-8, for less than `convert_to`.
        return f"sha256({text if isinstance(text, Bytes) else f'textsend({text})'})"

    def bucket(self, fingerprint: str, shift: int) -> str:
        return f"({fingerprint} >> {shift})"

    def row_at_least(self, names: Sequence[str], places: Sequence[str]) -> str:
        return f"({', '.join(names)}) >= ({', '.join(places)})"

    def row_below(self, names: Sequence[str], places: Sequence[str]) -> str:
        return f"({', '.join(names)}) < ({', '.join(places)})"

    def parameter(self, column: Column, kind: Type, text: str) -> tuple[str, object]:
        """A text that the server reads, cast to a type for which the column's index serves.

        Types that take a literal for their own (text, enumerations, arrays, bits) get no cast.
        """
        value = input_text(column.type, kind, text)
        return f"%s{_cast(column, kind, value)}", value


def _bytes_of(texts: Sequence[str]) -> str:
    """Texts between bytes; a mark alone is a constant."""
    if len(texts) == 1 and texts[0] in _MARKS:
        return f"{texts[0]}::bytea"
    return f"textsend({'||'.join(texts)})"


def _cast(column: Column, kind: Type, value: str) -> str:
    match column.type:
        case Integer():
            digits = value.removeprefix("-")
            fits = digits.isdecimal() and _SMALLEST <= int(value) <= _LARGEST
            return "::bigint" if fits else "::numeric"
        case Boolean():
            return "::boolean"
        case Decimal():
            return "::numeric"
        case Float():
            return "::float8"
        case Date():
            return "::timestamp" if isinstance(kind, Timestamp) else "::date"
        case Time():
            return "::interval" if column.native.startswith("interval") else "::time"
        case Timestamp(zone):
            return "::timestamptz" if zone else "::timestamp"
        case Binary():
            return "::bytea"
        case Uuid():
            return "::uuid"
        case _:
            return ""


def input_text(own: Type, kind: Type, text: str) -> str:
    """The text that PostgreSQL reads a value from, for its canonical text under `kind`."""
    if isinstance(kind, Text) and not isinstance(own, Text | Unsupported):
        kind = own
    if text.startswith("?") and not isinstance(kind, Text | Json | Uuid):
        return bytes.fromhex(text[1:]).decode()
    match kind:
        case Integer() | Decimal() if isinstance(own, Bits):
            return format(int(text.partition(".")[0]), "b").zfill(own.width or 0)
        case Float():
            return shortest_float(text)
        case Binary():
            return bytes.fromhex(text).decode() if isinstance(own, Text) else f"\\x{text}"
        case Uuid() if isinstance(own, Binary):
            return "\\x" + text.replace("-", "")
        case Timestamp() if own == Timestamp(zone=True):
            return f"{text}+00"  # a script may run in a session of any zone
        case Array(element) if isinstance(own, Array):
            inner = own.element
            items = [
                None if i is None else input_text(inner, element, i) for i in split_array(text)
            ]
            return "{" + ",".join(map(_array_item, items)) + "}"
        case _:
            return text


def _array_item(text: str | None) -> str:
    if text is None:
        return "NULL"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
