"""Changes of a key range: what an update is to a shard that has only some rows of its source.

| before | after | on the shard |
| --- | --- | --- |
| in the range | in it | an update |
| in it | not | a delete |
| not | in it | an insert |
| not | not | nothing |

Where the log has no row before a change, what is done is right in both cases: a delete by the key, or the
whole row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from truecopy.mapping.choice import nearest
from truecopy.model.change import DELETE, INSERT, UPDATE, Definition
from truecopy.model.errors import UsageError
from truecopy.model.keyspace import KeyRange, Sharding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_LARGEST = "18446744073709551615"
_INCOMPLETE = (
    "comes into the key range, and the log left out values that did not change; have the source log whole rows"
    " (PostgreSQL: REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL)"
)


def only_range(
    changes: DataFrame, definition: Definition, rule: Sharding, wanted: KeyRange
) -> DataFrame:
    """The changes of one definition that concern a range, as that range sees them.

    Args:
        changes: Rows of the change stream, none of which empties the table.
        definition: What all of them were made under.
        rule: How the table is sharded.
        wanted: The range.
    """
    from pyspark.sql import functions as F

    column = _column(definition, rule)
    if column in definition.key:
        # An update that changes the key is a delete and an insert, so the key tells all.
        text = F.col("key")[definition.key.index(column)]
        return changes.where(_is_inside(text, definition, rule, wanted))
    place = definition.names.index(column)
    was = _image_is_inside("before", place, definition, rule, wanted)
    comes = _image_is_inside("after", place, definition, rule, wanted)
    kind, after, unchanged = F.col("kind"), F.col("after"), F.col("unchanged")
    is_update = kind == UPDATE
    # NULL where the log has no row before the change: the shard may have the row, or not.
    leaves, enters = is_update & ~comes, is_update & comes & ~F.coalesce(was, F.lit(True))
    left_out = F.coalesce(F.size(unchanged) > 0, F.lit(False))
    kept = (
        F.when(kind == INSERT, comes)
        .when(kind == DELETE, F.coalesce(was, F.lit(True)))
        .otherwise(comes | F.coalesce(was, F.lit(True)))
    )
    seen = changes.where(kept)
    seen = seen.withColumn(
        "kind",
        F.when(leaves, DELETE)
        .when(enters & left_out, _failure(definition, _INCOMPLETE))
        .when(enters, INSERT)
        .otherwise(kind),
    )
    return seen.withColumn("after", F.when(F.col("kind") != DELETE, after))


def is_in_range(text: Column, function: str, wanted: KeyRange) -> Column:
    """Whether the keyspace id of a value lies in a range, by its canonical text."""
    from pyspark.sql import functions as F

    digits = _digits(text, function)
    inside = F.lit(True)
    if wanted.low:
        inside = inside & (digits >= wanted.low.hex())
    if wanted.high:
        inside = inside & (digits < wanted.high.hex())
    return inside


def _digits(text: Column, function: str) -> Column:
    """The keyspace id in hex, whose order is that of the bytes."""
    from pyspark.sql import functions as F

    if function == "hash":
        return F.substring(F.sha2(text.cast("binary"), 256), 1, 16)
    if function == "numeric":
        # Texts of one length are ordered as their numbers are.
        fits = F.lpad(text, len(_LARGEST), "0") <= _LARGEST
        is_one = text.rlike("^(0|[1-9][0-9]{0,19})$") & fits
        refused = F.raise_error(
            F.concat(text, F.lit(" has no numeric keyspace id: it is no integer from 0 to 2^64-1"))
        ).cast("string")
        return F.when(is_one, F.lower(F.lpad(F.conv(text, 10, 16), 16, "0"))).otherwise(refused)
    if function == "binary":
        return text
    return F.lower(F.hex(text.cast("binary")))


def _image_is_inside(
    image: str, place: int, definition: Definition, rule: Sharding, wanted: KeyRange
) -> Column:
    """Of one image of a row; NULL where there is no image."""
    from pyspark.sql import functions as F

    row = F.col(image)
    return F.when(row.isNotNull(), _is_inside(row[place], definition, rule, wanted))


def _is_inside(text: Column, definition: Definition, rule: Sharding, wanted: KeyRange) -> Column:
    from pyspark.sql import functions as F

    what = (
        f"has no {rule.column}, by which the table is sharded: it is NULL, or the log left it out"
    )
    nameless = _failure(definition, what)
    return F.when(text.isNull(), nameless.cast("boolean")).otherwise(
        is_in_range(text, rule.function, wanted)
    )


def _failure(definition: Definition, what: str) -> Column:
    from pyspark.sql import functions as F

    where = F.concat(F.lit("at "), F.col("position"), F.lit(f" a row of {definition.table} {what}"))
    return F.raise_error(where).cast("string")


def _column(definition: Definition, rule: Sharding) -> str:
    for name in definition.names:
        if name.lower() == rule.column.lower():
            return name
    raise UsageError(
        f"{definition.table} is sharded by {rule.column}, which is no column of it"
        f"{nearest(rule.column, definition.names)}"
    )
