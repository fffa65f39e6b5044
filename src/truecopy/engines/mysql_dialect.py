"""How MySQL, MariaDB and TiDB write things: quoting, types, and the canonical text of each."""

from __future__ import annotations

import decimal
import re
import string
import struct
from collections.abc import Sequence

from truecopy.engines.sql import compare_expanded
from truecopy.model.table import Column
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

_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "integer", "bigint", "year"}
_TEXTS = {
    "char",
    "varchar",
    "tinytext",
    "text",
    "mediumtext",
    "longtext",
    "enum",
    "set",
    "inet4",
    "inet6",
}
_BINARIES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_BYTE_ORDERS = {"utf8mb4_nopad_bin", "utf8mb3_nopad_bin", "utf8mb4_0900_bin"}
_UTF8 = {None, "utf8", "utf8mb3", "utf8mb4", "ascii"}


def canonical_type(data_type: str, native: str, scale: int | None) -> Type:
    """The canonical type of a column from `information_schema.columns`."""
    if data_type in _INTEGERS:
        return Integer()
    if data_type in _TEXTS:
        return Text()
    if data_type in _BINARIES:
        return Binary()
    match data_type:
        case "decimal":
            return Decimal(scale or 0)
        case "float" | "double":
            return Float()
        case "date":
            return Date()
        case "time":
            return Time()
        case "datetime":
            return Timestamp(zone=False)
        case "timestamp":
            return Timestamp(zone=True)
        case "bit":
            return Bits(_width(native))
        case "json":
            return Json("mysql")
        case "uuid":
            return Uuid()
        case _:
            return Unsupported(f"{native} has no canonical text")


def is_ordered_by(data_type: str, kind: Type, collation: str | None) -> str | None:
    """The name of the order that a key range over this column follows; None where it must not be used."""
    if data_type in ("enum", "set", "uuid", "inet4", "inet6"):
        return None  # ordered by ordinal, or by swapped bytes: not by their text
    match kind:
        case Integer() | Decimal():
            return "number"
        case Date() | Timestamp():
            return "time"
        case Binary():
            return "bytes"
        case Text():
            if collation in _BYTE_ORDERS:
                return "bytes"
            # PAD SPACE collations order 'a\x01' before 'a': only the very same collation is the same order.
            return f"mysql:{collation}"
        case _:
            return None


class MySQLDialect:
    """The dialect; see `truecopy.engines.sql.Dialect`."""

    placeholder = "%s"
    expands_rows = True
    lists_integers = True
    lines_as = " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``").replace("%", "%%") + "`"

    def as_text(self, expression: str) -> str:
        return f"CAST({expression} AS CHAR)"

    def concat(self, parts: Sequence[str]) -> str:
        return f"CONCAT({','.join(parts)})"

    def byte_length(self, text: str) -> str:
        return f"LENGTH({text})"

    def hash60(self, text: str) -> str:
        # CONV of 15 digits stays below 2^60; without the cast SUM would add doubles.
        return f"CAST(CONV(LEFT(SHA2({text},256),15),16,10) AS UNSIGNED)"

    def hash_hex(self, text: str) -> str:
        return f"LEFT(SHA2({text},256),16)"

    def bucket(self, fingerprint: str, shift: int) -> str:
        return f"({fingerprint} >> {shift})"

    def row_at_least(self, names: Sequence[str], places: Sequence[str]) -> str:
        return compare_expanded(names, places, ">=", ">")

    def row_below(self, names: Sequence[str], places: Sequence[str]) -> str:
        return compare_expanded(names, places, "<", "<")

    def parameter(self, column: Column, kind: Type, text: str) -> tuple[str, object]:
        match kind:
            case Integer() | Boolean():
                return "%s", int(text)
            case Decimal():
                return "%s", decimal.Decimal(text)
            case Float():
                return "%s", _float_parameter(text)
            case Binary():
                return "%s", bytes.fromhex(text)
            case Bits():
                return "%s", int(text or "0", 2)
            case Uuid() if isinstance(column.type, Binary):
                return "%s", bytes.fromhex(text.replace("-", ""))
            case _:
                return "%s", text

    def canonical(self, column: Column, kind: Type) -> str:
        name = self.quote(column.name)
        own = column.type
        if isinstance(own, Text) and not isinstance(kind, Text | Json | Uuid | Binary):
            return _parsed(name, kind)
        match kind:
            case Integer() | Boolean():
                # + 0 takes BIT and YEAR for numbers, and drops the zeros that ZEROFILL prints.
                plain = (
                    isinstance(own, Integer)
                    and "zerofill" not in column.native
                    and column.native[:4] != "year"
                )
                return name if plain else f"({name} + 0)"
            case Decimal(scale):
                return _decimal(name, column, scale)
            case Float():
                return _float_bits(f"({name} + 0e0)")
            case Date():
                return name if isinstance(own, Date) else f"DATE({name})"
            case Time() | Timestamp():
                return _with_microseconds(name, own, kind, column.fraction or 0)
            case Binary():
                return f"LOWER(HEX({_utf8(name, column) if isinstance(own, Text) else name}))"
            case Bits():
                return f"LPAD(BIN({name} + 0), {_width(column.native)}, '0')"
            case Uuid():
                return _uuid(name, own)
            case Json():
                return f"CAST({name} AS CHAR)" if column.native == "json" else _utf8(name, column)
            case _:
                return _as_own_text(self, column)


def _as_own_text(dialect: MySQLDialect, column: Column) -> str:
    """Text as it is; any other type, compared as text on request, by its own canonical text."""
    if isinstance(column.type, Text):
        return _utf8(dialect.quote(column.name), column)
    if isinstance(column.type, Unsupported | Array):
        return f"CAST({dialect.quote(column.name)} AS CHAR)"
    return dialect.as_text(dialect.canonical(column, column.type))


def _utf8(name: str, column: Column) -> str:
    if column.native in ("inet4", "inet6"):
        return f"CAST({name} AS CHAR)"  # or the text beside it would be read as an address
    return name if column.charset in _UTF8 else f"CONVERT({name} USING utf8mb4)"


def _decimal(name: str, column: Column, scale: int | None) -> str:
    own = (column.fraction or 0) if isinstance(column.type, Decimal) else 0
    value = (
        f"({name} + 0)" if "zerofill" in column.native or isinstance(column.type, Bits) else name
    )
    if scale is None and not isinstance(column.type, Float):
        return _at_scale(value, None) if own else value
    if isinstance(column.type, Float) or scale is None:
        # By its shortest text, which is how people read it; a cast of the number itself would round.
        return _at_scale(f"CAST(CONCAT({value}) AS DECIMAL(65,30))", scale)
    if scale == own:
        return value
    if scale < own:
        return _at_scale(value, scale)
    return f"CONCAT({value},'{'' if own else '.'}{'0' * (scale - own)}')"


def _with_microseconds(name: str, own: Type, kind: Type, fraction: int) -> str:
    if isinstance(own, Date):
        return f"CONCAT({name},' 00:00:00.000000')"
    if isinstance(kind, Time) and isinstance(own, Timestamp):
        return f"CAST(TIME({name}) AS TIME(6))"
    return (
        name
        if fraction == 6
        else f"CONCAT({name},'{'' if fraction else '.'}{'0' * (6 - fraction)}')"
    )


def _uuid(name: str, own: Type) -> str:
    if isinstance(own, Uuid):
        return f"LOWER({name})"
    if not isinstance(own, Binary):
        # LOWER knows letters beyond ASCII, which are no matter of UUIDs and differ by collation.
        lowered = name
        for letter in string.ascii_uppercase:
            lowered = f"REPLACE({lowered},'{letter}','{letter.lower()}')"
        return f"IF(LENGTH({name}) = CHAR_LENGTH({name}), LOWER({name}), {lowered})"
    digits = f"LOWER(HEX({name}))"
    places = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    dashed = ",'-',".join(f"SUBSTR({digits},{at},{size})" for at, size in places)
    return f"IF(LENGTH({name}) = 16, CONCAT({dashed}), {digits})"


def _float_bits(x: str) -> str:
    """The IEEE bits of a double by exact arithmetic: these servers have no other way to them.

    `u` is |x| scaled by a power of two to about [1, 2): exact. LOG2 may be off by one beside a power
    of two, so `u` may fall just outside; the mantissa is then taken at the neighbouring exponent.
    Exponent and mantissa are added as integers: a double has no room for both.
    """
    size = f"ABS({x})"
    exponent = f"FLOOR(LOG2({size}))"
    u = f"({size} * POW(2, -({exponent})))"

    def bits(bias: int, scaled: str) -> str:
        whole = f"CAST({exponent} + {bias} AS UNSIGNED) * 4503599627370496"
        return f"{whole} + CAST(({scaled} - 1) * 4503599627370496 AS UNSIGNED)"

    normal = (
        f"CASE WHEN {u} >= 2 THEN {bits(1024, f'{u} / 2')}"
        f" WHEN {u} < 1 THEN {bits(1022, f'{u} * 2')} ELSE {bits(1023, u)} END"
    )
    # POW(2, 1074) overflows: the smallest numbers are scaled in two steps.
    subnormal = f"CAST({size} * POW(2, 537) * POW(2, 537) AS UNSIGNED)"
    magnitude = f"CASE WHEN {x} = 0 THEN 0 WHEN {size} < 2.2250738585072014e-308 THEN {subnormal} ELSE {normal} END"
    # Put together by bits, which gives an unsigned integer: HEX of a DECIMAL goes through a double.
    signed = f"({magnitude}) | IF({x} < 0, 1 << 63, 0)"
    return f"IF({x} IS NULL, NULL, LPAD(LOWER(HEX({signed})), 16, '0'))"


def _float_parameter(bits: str) -> float:
    number: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return number


# Written for PCRE (MariaDB) and ICU (MySQL); \\\\z is the end of the text, where $ would pass over a newline.
# Only plain forms that surely fit: a cast beyond its range would be a warning, and the run would stop.
_PATTERNS: dict[type, str] = {
    Integer: "^[-+]?[0-9]{1,60}\\\\z",
    Boolean: "^[-+]?[0-9]{1,60}\\\\z",
    Decimal: "^[-+]?([0-9]{1,30}([.][0-9]{0,30})?|[.][0-9]{1,30})\\\\z",
    Float: "^[-+]?([0-9]{1,60}([.][0-9]{0,60})?|[.][0-9]{1,60})([eE][-+]?[0-9]{1,2})?\\\\z",
    Date: "^[0-9]{4,}-[0-9]{2}-[0-9]{2}\\\\z",
    Time: "^-?[0-9]{2,4}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?\\\\z",
    Timestamp: "^[0-9]{4,}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?\\\\z",
}


def _parsed(name: str, kind: Type) -> str:
    """Text read as another type on request; what does not fit is `?` and hex, never a silent zero."""
    match kind:
        case Integer() | Boolean():
            value = f"CAST({name} AS DECIMAL(65,0))"
        case Decimal(scale):
            value = _at_scale(f"CAST({name} AS DECIMAL(65,30))", scale)
        case Float():
            value = _float_bits(f"({name} + 0e0)")
        case Time():
            value = _padded_fraction(name)
        case Timestamp():
            value = _padded_fraction(f"REPLACE({name},'T',' ')")
        case _:
            value = name
    pattern = _PATTERNS.get(type(kind))
    if pattern is None:
        return name
    return f"IF({name} REGEXP '{pattern}', {value}, CONCAT('?', LOWER(HEX({name}))))"


def _at_scale(value: str, scale: int | None) -> str:
    """A decimal with at least so many digits after the point, and no zeros beyond them."""
    trimmed = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {value}))"
    if scale is None:
        return trimmed
    return f"IF({value} = ROUND({value},{scale}), CAST(ROUND({value},{scale}) AS CHAR), {trimmed})"


def _padded_fraction(text: str) -> str:
    pointed = f"IF(LOCATE('.',{text}), {text}, CONCAT({text},'.'))"
    return f"RPAD({pointed}, CHAR_LENGTH(SUBSTRING_INDEX({text},'.',1)) + 7, '0')"


def _width(native: str) -> int:
    match = re.search(r"\((\d+)\)", native)
    return int(match[1]) if match else 1
