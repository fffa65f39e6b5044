"""Canonical text as values of Spark, and values of Spark as canonical text.

Rows travel as canonical text. Expressions of a task want numbers, days and bytes: a column that one
of them names is cast before, and its result turned back into text. Casts are strict: what cannot be
read is an error, never a NULL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from truecopy.model.table import Column
from truecopy.model.types import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Timestamp,
    Type,
    Unknown,
    Uuid,
)
from truecopy.sparksql.dialect import text_sql
from truecopy.sparksql.text import decimal_sql, parse_sql

MOST_DIGITS = 38
"""Of Spark's decimals."""
_FRACTION = 18  # of a decimal whose column does not constrain it
_WIDE = {
    "hugeint": "DECIMAL(38,0)",
    "uhugeint": "DECIMAL(38,0)",
    "ubigint": "DECIMAL(20,0)",
}


def typed_sql(text: str, column: Column) -> str:
    """A column's canonical text as a value of Spark.

    Times of day and spans, documents, UUIDs, bits and arrays stay text.
    """
    match column.type:
        case Float():
            # Hex digits of the bits: no decimal text between, which Java 17 would not print exactly.
            bits = f"CAST(conv({text}, 16, -10) AS BIGINT)"
            number = f"java_method('java.lang.Double', 'longBitsToDouble', {bits})"
            return f"IF({text} IS NULL, NULL, CAST({number} AS DOUBLE))"
        case Binary():
            return f"unhex({text})"
        case Timestamp(zone=True):
            return f"CAST(concat({text}, 'Z') AS TIMESTAMP)"
        case _:
            name = spark_type(column.type, column.native)
            return text if name == "STRING" else f"CAST({text} AS {name})"


def spark_type(kind: Type, native: str = "") -> str:
    """The type of Spark that expressions see; a column's declaration tells how wide a number is."""
    declared = native.lower()
    match kind:
        case Integer():
            if "bigint" in declared and "unsigned" in declared:
                return "DECIMAL(20,0)"
            return _WIDE.get(declared, "BIGINT")
        case Boolean():
            return "BOOLEAN"
        case Decimal(scale):
            digits = re.search(r"\((\d+)", declared)
            whole = min(int(digits[1]), MOST_DIGITS) if digits else MOST_DIGITS
            return f"DECIMAL({whole},{min(_FRACTION if scale is None else scale, whole)})"
        case Float():
            return "DOUBLE"
        case Date():
            return "DATE"
        case Timestamp(zone):
            return "TIMESTAMP" if zone else "TIMESTAMP_NTZ"
        case Binary():
            return "BINARY"
        case _:
            return "STRING"


def result_sql(value: str, own: Type, kind: Type) -> str:
    """The canonical text of an expression's result, as one of the column's type.

    Args:
        value: The name of the result.
        own: The canonical type that Spark's type of it has.
        kind: The column's type. A number is rounded to its scale; other losses are errors.
    """
    if _fits(own, kind):
        return text_sql(value, own, kind)
    cast = f"CAST({value} AS {spark_type(kind)})"
    match kind:
        case Decimal(scale):
            return text_sql(cast, Decimal(_FRACTION if scale is None else scale), kind)
        case Uuid() | Json() | Text() | Unknown():
            return parse_sql(cast, kind)
        case _ if (
            spark_type(kind) == "STRING"
        ):  # times, bits, arrays: the text must be one of theirs
            return parse_sql(cast, kind)
        case _:
            return text_sql(cast, kind, kind)


def converted_sql(text: str, own: Type, kind: Type) -> str:
    """Canonical text of one type as that of another; `?` and the hex of the text where it has none."""
    match own, kind:
        case _ if own == kind:
            return text
        case Binary(), _:
            return text_sql(f"unhex({text})", own, kind)
        case Decimal(), Integer() | Boolean():
            return parse_sql(decimal_sql(text, None), kind)
        case Json(), Text():
            return text
        case _:
            return parse_sql(text, kind)


def may_fail(kind: Type) -> bool:
    """Whether a text that begins with `?` is none of the type."""
    return not isinstance(kind, Text | Json | Uuid | Unknown)


def named_in(sql: str, columns: Iterable[Column]) -> frozenset[int]:
    """Places of columns that an expression may refer to: all whose name occurs in it.

    That may be too many, never too few, and needs no parser.
    """
    folded = sql.lower().replace("``", "`")
    return frozenset(i for i, column in enumerate(columns) if column.name.lower() in folded)


def _fits(own: Type, kind: Type) -> bool:
    match own, kind:
        case Decimal(has), Decimal(scale):
            return scale is None or (has or 0) <= scale
        case ((Integer() | Boolean()), (Integer() | Boolean() | Decimal())):
            return not isinstance(kind, Boolean) or isinstance(own, Boolean)
        case Decimal(0), Integer():
            return True
        case _, Text():
            return not isinstance(own, Float | Unknown)
        case _:
            return type(own) is type(kind) and own == kind
