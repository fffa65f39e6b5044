"""Rows through a mapping, as Spark expressions: filters, masks, casts, SQL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from truecopy.mapping.plan import (
    Constant,
    Converted,
    Copied,
    Expressed,
    Masked,
    TableMapping,
    TargetColumn,
)
from truecopy.mapping.typed import (
    converted_sql,
    may_fail,
    named_in,
    result_sql,
    spark_type,
    typed_sql,
)
from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret
from truecopy.model.table import Column
from truecopy.model.types import Array, Float, Text, Type, Unsupported, type_name
from truecopy.sparksql.dialect import canonical_type, quote

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

CARRIED = "__truecopy"
"""The one column beside the source's own while their expressions are evaluated; no table has it."""
_BLOCK = 64
_OF_ONE_ROW = {"Project", "OneRowRelation"}
_CLOCK = re.compile(
    r"\b(now|current_timestamp|current_date|current_time|localtimestamp|curdate|unix_timestamp)\b",
    re.IGNORECASE,
)


def map_rows(frame: DataFrame, mapping: TableMapping) -> DataFrame:
    """Rows of the source as rows of the target.

    Args:
        frame: The source's columns, as canonical text, in the mapping's order.
        mapping: What becomes of them.

    Returns:
        The target's columns, as canonical text.
    """
    from pyspark.sql import functions as F

    texts = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
    if mapping.is_identity:
        return texts.select(
            *(
                F.col(f"c{place}").alias(column.name)
                for place, column in zip(mapping.places, mapping.columns, strict=True)
            )
        )
    carried = texts.select(F.struct(F.array("*").alias("image")).alias(CARRIED))
    done = evaluate(carried, mapping, "image", "row", range(len(mapping.columns)))
    return done.where(f"{CARRIED}.row_kept").select(
        *(F.col(f"{CARRIED}.row")[i].alias(c.name) for i, c in enumerate(mapping.columns))
    )


def evaluate(
    frame: DataFrame,
    mapping: TableMapping,
    image: str,
    result: str,
    places: Sequence[int],
    undecided: Expression | None = None,
) -> DataFrame:
    """Adds what becomes of one image of a row to the carried column.

    Args:
        frame: The carried column alone.
        mapping: What becomes of rows.
        image: The carried field with the image: texts in the source's order, or NULL for none.
        result: The new field for the target's texts, NULL where the row is left out. Beside it
            `…_kept`: whether the row passes the filter, NULL where there is no image.
        places: Which columns of the target are wanted.
        undecided: Where the image has too little for the filter; it is kept then.
    """
    from pyspark.sql import functions as F

    here = F.col(f"{CARRIED}.{image}")
    columns = mapping.source_columns
    named = _named(mapping, places)
    typed = [
        F.expr(typed_sql(f"{CARRIED}.{image}[{i}]", columns[i])).alias(columns[i].name)
        for i in sorted(named)
    ]
    stage = frame.select(CARRIED, *typed)
    passes = [F.coalesce(_parsed(condition), F.lit(False)) for condition in mapping.filter]
    kept = reduce(and_, passes, F.lit(True))
    if undecided is not None:
        kept = F.when(undecided, F.lit(True)).otherwise(kept)
    stage = stage.select("*", F.when(here.isNotNull(), kept).alias(f"{CARRIED}_kept"))
    # A row that stays behind may be one that an expression fails on: it is not asked.
    wanted = F.col(f"{CARRIED}_kept")
    expressed = {
        place: origin.sql
        for place in places
        if isinstance(origin := mapping.columns[place].origin, Expressed)
    }
    stage = stage.select(
        CARRIED,
        f"{CARRIED}_kept",
        *(F.when(wanted, _parsed(sql)).alias(f"x{place}") for place, sql in expressed.items()),
    )
    found = {place: canonical_type(stage.schema[f"x{place}"].dataType) for place in expressed}
    texts = [
        _text(mapping, place, f"{CARRIED}.{image}", found.get(place)).cast("string")
        for place in places
    ]
    return stage.select(
        F.struct(
            f"{CARRIED}.*",
            wanted.alias(f"{result}_kept"),
            F.when(wanted, F.array(*texts).cast("array<string>")).alias(result),
        ).alias(CARRIED)
    )


def hmac_sha256(text: Expression, key: Secret) -> Expression:
    """HMAC-SHA-256 in hex, by two nested hashes as RFC 2104 has it; NULL of NULL.

    The key travels as blocks of bytes, and never as a part of an expression's text: plans are
    printed, and `truecopy.spark` has Spark leave out what looks like such a block.
    """
    from pyspark.sql import functions as F

    secret = key.reveal().encode()
    if not secret:
        raise UsageError("the key of a mask is empty")
    padded = (hashlib.sha256(secret).digest() if len(secret) > _BLOCK else secret).ljust(
        _BLOCK, b"\0"
    )
    inner, outer = (F.lit(bytearray(b ^ pad for b in padded)) for pad in (0x36, 0x5C))
    digest = F.sha2(F.concat(inner, text.cast("binary")), 256)
    return F.sha2(F.concat(outer, F.unhex(digest)), 256)


def inferred_by(spark: SparkSession) -> Callable[[Sequence[Column], str], Type]:
    """What tells the type of an expression over columns, and refuses one that cannot be used."""

    def infer(columns: Sequence[Column], sql: str) -> Type:
        return _analysed(spark, columns, sql)

    return infer


def check_expressions(spark: SparkSession, mapping: TableMapping) -> None:
    """Has Spark read every expression of a mapping; what it does not take is one line."""
    for condition in mapping.filter:
        kind = _reported(f"{mapping.source}: filter", spark, mapping, condition)
        if type_name(kind) != "boolean":
            raise UsageError(
                f"{mapping.source}: filter {condition!r} is {type_name(kind)} and no condition"
            )
    for column in mapping.columns:
        if isinstance(column.origin, Expressed):
            where = f"{mapping.source}.{column.name}"
            _require_text(where, _reported(where, spark, mapping, column.origin.sql), column)


def _reported(where: str, spark: SparkSession, mapping: TableMapping, sql: str) -> Type:
    try:
        return _analysed(spark, mapping.source_columns, sql)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _analysed(spark: SparkSession, columns: Sequence[Column], sql: str) -> Type:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    nothing = (f"CAST(NULL AS {spark_type(c.type, c.native)}) AS {quote(c.name)}" for c in columns)
    try:
        found = spark.sql(f"SELECT {', '.join(nothing)}").select(F.when(F.lit(True), _parsed(sql)))
        plan = found._jdf.queryExecution().analyzed()
    except PySparkException as error:
        raise UsageError(f"{sql!r} is not understood: {_first_line(str(error))}") from None
    if not set(_nodes(plan)) <= _OF_ONE_ROW or plan.subqueriesAll().nonEmpty():
        raise UsageError(f"{sql!r} takes more than the row itself: only its columns can be used")
    if not plan.deterministic() or _CLOCK.search(sql):
        raise UsageError(
            f"{sql!r} is not the same each time: rows are computed again after a crash, and must be"
        )
    return canonical_type(found.schema[0].dataType)


def _nodes(plan: Any) -> Iterator[str]:
    yield plan.nodeName()
    children = plan.children()
    for at in range(children.size()):
        yield from _nodes(children.apply(at))


def _first_line(message: str) -> str:
    """What Spark says, without its code, its state and its plan."""
    line = next((line for line in message.splitlines() if line.strip()), "")
    return re.sub(r"^\[[\w.]+\] | SQLSTATE: .*", "", line.strip())


def _require_text(where: str, own: Type, column: TargetColumn) -> None:
    if isinstance(own, Unsupported):
        raise UsageError(f"{where}: {own.reason}")
    if isinstance(own, Float) and isinstance(column.type, Text):
        raise UsageError(
            f"{where}: a double has no exact text; round it: CAST(… AS DECIMAL(38, 6))"
        )
    if isinstance(column.type, Array) and own != column.type:
        raise UsageError(f"{where}: {type_name(own)} is no {type_name(column.type)}")


def _named(mapping: TableMapping, places: Sequence[int]) -> frozenset[int]:
    """Columns of the source whose values some expression needs."""
    origins = (mapping.columns[place].origin for place in places)
    texts = [origin.sql for origin in origins if isinstance(origin, Expressed)]
    return frozenset().union(
        *(named_in(sql, mapping.source_columns) for sql in (*mapping.filter, *texts))
    )


def _parsed(sql: str) -> Expression:
    from pyspark.sql import functions as F

    return F.expr(sql)


def _text(mapping: TableMapping, place: int, image: str, found: Type | None) -> Expression:
    """The canonical text of a column of the target."""
    from pyspark.sql import functions as F

    column = mapping.columns[place]
    match column.origin:
        case Copied(at):
            return F.expr(f"{image}[{at}]")
        case Masked(at, key, length):
            return F.substring(hmac_sha256(F.expr(f"{image}[{at}]"), key), 1, length)
        case Constant(same):
            return F.lit(same)
        case Converted(at):
            own = mapping.source_columns[at]
            text = F.expr(converted_sql(f"{image}[{at}]", own.type, column.type))
            return _checked(mapping, column, text, F.expr(f"{image}[{at}]"))
        case Expressed():
            assert found is not None
            text = F.expr(result_sql(f"x{place}", found, column.type))
            return _checked(mapping, column, text, F.expr(f"CAST(x{place} AS STRING)"))


def _checked(
    mapping: TableMapping, column: TargetColumn, text: Expression, given: Expression
) -> Expression:
    """The text, or an error where the value is none of the column's type."""
    from pyspark.sql import functions as F

    if not may_fail(column.type):
        return text
    where = F.lit(f"{mapping.source}.{column.name}: not of the type {type_name(column.type)}: ")
    failure = F.raise_error(F.concat(where, given)).cast("string")
    return F.when(text.startswith("?"), failure).otherwise(text)
