"""How Spark writes things: types, and the canonical text and fingerprint of each as SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truecopy.model.fingerprint import HEX_DIGITS
from truecopy.model.table import Column
from truecopy.model.types import (
    Array,
    Binary,
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
    Unsupported,
    Uuid,
    is_free_text,
)
from truecopy.sparksql.text import MICROSECONDS, decimal_sql, float_bits_sql, let, parse_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import DataType

_SIMPLE: dict[str, Type] = {
    "tinyint": Integer(),
    "smallint": Integer(),
    "int": Integer(),
    "bigint": Integer(),
    "boolean": Boolean(),
    "float": Float(),
    "double": Float(),
    "date": Date(),
    "timestamp": Timestamp(zone=True),
    "timestamp_ntz": Timestamp(zone=False),
    "string": Text(),
    "binary": Binary(),
    "void": Unknown(),
}
_TOO_SMALL_TO_BE_PLAIN = 6


def canonical_type(data_type: DataType) -> Type:
    """The canonical type of a column of a frame."""
    from pyspark.sql.types import ArrayType, DecimalType

    native = data_type.simpleString()
    if isinstance(data_type, DecimalType):
        return Decimal(data_type.scale)
    if isinstance(data_type, ArrayType):
        element = canonical_type(data_type.elementType)
        return element if isinstance(element, Unsupported) else Array(element)
    word = native.partition("(")[0].partition(" ")[0]  # `time(6)`, `string collate …`
    if word in ("char", "varchar"):
        return Text()
    if word == "time":
        return Time()
    reason = f"{native} has no canonical text; compare it with a cast to json or text"
    return _SIMPLE.get(word, Unsupported(reason))


def quote(name: str) -> str:
    """An identifier, quoted."""
    return "`" + name.replace("`", "``") + "`"


def needs_python(column: Column, kind: Type) -> bool:
    """Whether SQL cannot give the text: Java 17 does not print the shortest digits of a float."""
    return isinstance(column.type, Float) and not isinstance(kind, Float)


def canonical_sql(column: Column, kind: Type) -> str:
    """The canonical text of a column; a document (deferred) as it is written. NULL stays NULL."""
    name = quote(column.name)
    value = f"rtrim({name})" if column.padded else name
    if isinstance(column.type, Unsupported):
        nested = column.native.startswith(("struct", "map", "array", "variant"))
        return parse_sql(f"to_json({name})" if nested else f"CAST({name} AS STRING)", kind)
    return text_sql(value, column.type, kind)


def fingerprint_sql(texts: Sequence[str], types: Sequence[Type]) -> str:
    """The fingerprint of a row from columns that hold its canonical texts."""
    parts = [piece for text in texts for piece in ("','", f"coalesce({text}, '')")][1:]
    separator = "';'"
    for text, kind in zip(texts, types, strict=True):
        if is_free_text(kind):
            parts += [separator, f"coalesce(CAST(octet_length({text}) AS STRING), '')"]
            separator = "','"
    row = f"concat({', '.join(parts)})" if parts else "''"
    digits = f"substr(sha2(CAST({row} AS BINARY), 256), 1, {HEX_DIGITS})"
    return f"CAST(conv({digits}, 16, 10) AS BIGINT)"


def text_sql(x: str, own: Type, kind: Type) -> str:
    """The canonical text, under an agreed type, of an expression of the type `own`."""
    match own, kind:
        case ((Text() | Unknown()), _):
            return parse_sql(x, kind, shown=_valid(x))
        case Binary(), Binary():
            return f"lower(hex({x}))"
        case Binary(), Uuid():
            return f"CASE WHEN octet_length({x}) = 16 THEN {_dashed(x)} ELSE lower(hex({x})) END"
        case Binary(), _:
            return parse_sql(_valid(x), kind)
        case Float(), _:  # with `needs_python` for what is not a float
            return let(f"CAST({x} AS DOUBLE)", float_bits_sql)
        case ((Integer() | Decimal()), Float()):
            return let(f"CAST({x} AS DOUBLE)", float_bits_sql)
        case Integer(), Decimal(scale):
            return f"concat({x}, '.{'0' * scale}')" if scale else f"CAST({x} AS STRING)"
        case Decimal(has), Decimal(scale):
            return _decimal(x, has or 0, scale)
        case Decimal(has), Integer() | Boolean():
            return parse_sql(_decimal(x, has or 0, None), kind)
        case Array(own_element), Array(element):
            inner = f"{x}_" if x.startswith("item") else "item"
            texts = f"transform({x}, {inner} -> {text_sql(inner, own_element, element)})"
            item = "t -> coalesce(concat(octet_length(t), ':', t), '-')"
            return f"array_join(transform({texts}, {item}), '')"
        case ((Integer() | Boolean()), (Integer() | Boolean())):
            return _own_text(x, own)
        case Array(), Json():
            return f"to_json({x})"
        case _:
            plain = _own_text(x, own)
            return plain if type(own) is type(kind) else parse_sql(plain, kind)


def _own_text(x: str, own: Type) -> str:
    """The canonical text of a column under its own type."""
    match own:
        case Boolean():
            return f"CASE WHEN {x} THEN '1' WHEN NOT {x} THEN '0' END"
        case Date():
            return f"ltrim('+', CAST({x} AS STRING))"  # years after 9999 come with a sign
        case Time():
            return parse_sql(f"CAST({x} AS STRING)", own)
        case Timestamp():
            return f"ltrim('+', date_format({x}, '{MICROSECONDS}'))"
        case Decimal(scale):
            return _decimal(x, scale or 0, scale)
        case Array():
            return text_sql(x, own, own)
        case _:
            return f"CAST({x} AS STRING)"


def _decimal(x: str, has: int, scale: int | None) -> str:
    text = f"CAST({x} AS STRING)"
    if has > _TOO_SMALL_TO_BE_PLAIN:
        # Without ANSI mode small numbers are printed as 1E-10.
        text = f"IF(contains({text}, 'E'), {decimal_sql(text, has)}, {text})"
    if scale == has:
        return text
    if scale is None:
        return f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {text}))" if has else text
    if scale > has:
        return f"concat({text}, '{'' if has else '.'}{'0' * (scale - has)}')"
    return decimal_sql(text, scale)


def _valid(x: str) -> str:
    """Bytes or text as text; what is not UTF-8 as its hex, as the model has it."""
    text = f"CAST({x} AS STRING)"
    return f"coalesce(try_validate_utf8({text}), lower(hex({text})))"


def _dashed(x: str) -> str:
    digits = f"lower(hex({x}))"
    places = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    parts = ", ".join(f"substr({digits}, {at}, {size})" for at, size in places)
    return f"concat_ws('-', {parts})"
