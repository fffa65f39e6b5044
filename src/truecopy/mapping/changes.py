"""Changes through a mapping: what an update of the source is on a target that has only some rows of it.

| before | after | on the target |
| --- | --- | --- |
| passes the filter | passes | an update; a delete and an insert where the target's key changes |
| passes | does not | a delete |
| does not | passes | an insert |
| does not | does not | nothing |

A log may leave out the row before a change. Then it is not known whether the target has the row, and
what is done is right in both cases: an update, which writes the whole row, or a delete by the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from truecopy.mapping.plan import (
    Converted,
    Copied,
    Expressed,
    Masked,
    Origin,
    TableMapping,
)
from truecopy.mapping.transformers import CARRIED, evaluate
from truecopy.mapping.typed import named_in
from truecopy.model.change import DELETE, INSERT, UPDATE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PASSED = (
    "shard", "position", "txn", "commit_order", "seq", "committed_at", "restart_at", "schema_id",
    "annotation", "origin",
)  # fmt: skip
"""Columns of the stream that changes keep."""


def map_changes(frame: DataFrame, mapping: TableMapping) -> DataFrame:
    """Changes of a source table as changes of the target's.

    Args:
        frame: Rows of the change stream, all of the definition that the mapping was planned from.
        mapping: What becomes of rows.

    Returns:
        The columns `PASSED`, and:
        kind: As in the stream. Other kinds than of rows pass with neither key nor row.
        table: The target's name.
        key: Texts of the target's key: of the row that goes, or comes, or stays.
        row: Texts of the target's columns; NULL for a delete.
        unchanged: Places in `row` of columns that the log left out because they did not change.
        step: 0, or 1 for the insert that follows a delete of the same change.
    """
    from pyspark.sql import functions as F

    carried = _with_images(frame, mapping)
    if mapping.is_identity and _follows_key(mapping):
        made = _copied(mapping)
    else:
        carried = evaluate(carried, mapping, "new", "row", range(len(mapping.columns)))
        carried = evaluate(
            carried, mapping, "old", "old_key", mapping.key_places, undecided=_undecided(mapping)
        )
        made = _judged(mapping)
    passed = [F.col(f"{CARRIED}.{name}") for name in PASSED]
    changes = carried.select(*passed, F.explode(made).alias("made"))
    table = F.lit(str(mapping.target)).alias("table")
    made_columns = (f"made.{name}" for name in ("key", "row", "unchanged", "step"))
    return changes.select(*PASSED, "made.kind", table, *made_columns)


def _with_images(frame: DataFrame, mapping: TableMapping) -> DataFrame:
    """The carried column: the change, and its images with all that is known of them.

    `old` is the row before, or what the key tells of it; `whole` says which of the two.
    """
    from pyspark.sql import functions as F

    places = {name: at for at, name in enumerate(mapping.source_key)}
    of_key = [
        F.col("key")[places[column.name]] if column.name in places else F.lit(None)
        for column in mapping.source_columns
    ]
    known = F.when(
        F.col("kind").isin(UPDATE, DELETE),
        F.coalesce(F.col("before"), F.array(*of_key).cast(_TEXTS)),
    )
    images = frame.select("*", known.alias("old"))
    left_out = (F.size("unchanged") > 0) & F.col("old").isNotNull()
    filled = F.transform(
        "after",
        lambda text, at: F.when(F.array_contains("unchanged", at), F.col("old")[at]).otherwise(
            text
        ),
    )
    return images.select(
        F.struct(
            *PASSED,
            "kind",
            "key",
            "unchanged",
            "old",
            F.col("before").isNotNull().alias("whole"),
            F.when(F.coalesce(left_out, F.lit(False)), filled)
            .otherwise(F.col("after"))
            .alias("new"),
        ).alias(CARRIED)
    )


def _copied(mapping: TableMapping) -> Column:
    """A change of a table whose rows arrive as they are: one change, by the same key."""
    from pyspark.sql import functions as F

    new, key = F.col(f"{CARRIED}.new"), F.col(f"{CARRIED}.key")
    names = [column.name for column in mapping.source_columns]
    of_key = [mapping.source_key.index(names[mapping.places[at]]) for at in mapping.key_places]
    row = F.when(new.isNotNull(), F.array(*(new[place] for place in mapping.places)))
    mapped = F.when(key.isNotNull(), F.array(*(key[at] for at in of_key)).cast(_TEXTS))
    kind = F.col(f"{CARRIED}.kind")
    return F.array(_made(kind, mapped, row, _unchanged(mapping)))


def _judged(mapping: TableMapping) -> Column:
    """What a change is on the target, by the filter and the key before and after it."""
    from pyspark.sql import functions as F

    def field(name: str) -> Column:
        return F.col(f"{CARRIED}.{name}")

    nothing = F.array().cast(_CHANGES)
    comes, was = field("row_kept"), field("old_key_kept")
    row, old_key = field("row"), field("old_key")
    key = F.when(comes, F.array(*(row[at] for at in mapping.key_places)).cast(_TEXTS))
    gone = _made(F.lit(DELETE), old_key)
    insert = _made(F.lit(INSERT), key, row)
    update = (
        F.when(
            comes & was & key.eqNullSafe(old_key),
            _made_all(_made(F.lit(UPDATE), key, row, _unchanged(mapping))),
        )
        .when(comes & was, _made_all(gone, _made(F.lit(INSERT), key, row, step=1)))
        .when(comes, _made_all(insert))
        .when(was, _made_all(gone))
        .otherwise(nothing)
    )
    kind = field("kind")
    judged = (
        F.when(kind == INSERT, F.when(comes, _made_all(insert)).otherwise(nothing))
        .when(kind == UPDATE, update)
        .when(kind == DELETE, F.when(was, _made_all(gone)).otherwise(nothing))
        .otherwise(_made_all(_made(kind)))
    )
    problem = _problem(mapping)
    return F.when(problem.isNotNull(), F.raise_error(problem).cast(_CHANGES)).otherwise(judged)


_TEXTS = "array<string>"
_CHANGES = (
    "array<struct<kind:string,key:array<string>,row:array<string>,unchanged:array<int>,step:int>>"
)


def _made(
    kind: Column,
    key: Column | None = None,
    row: Column | None = None,
    unchanged: Column | None = None,
    step: int = 0,
) -> Column:
    from pyspark.sql import functions as F

    none = F.lit(None)
    return F.struct(
        kind.alias("kind"),
        (none if key is None else key).cast(_TEXTS).alias("key"),
        (none if row is None else row).cast(_TEXTS).alias("row"),
        (none if unchanged is None else unchanged).cast("array<int>").alias("unchanged"),
        F.lit(step).alias("step"),
    )


def _made_all(*changes: Column) -> Column:
    from pyspark.sql import functions as F

    return F.array(*changes).cast(_CHANGES)


def _needs(mapping: TableMapping, origin: Origin) -> frozenset[int]:
    """Places of the source's columns that a value is made of."""
    match origin:
        case Copied(place) | Converted(place) | Masked(place=place):
            return frozenset([place])
        case Expressed(sql):
            return named_in(sql, mapping.source_columns)
        case _:
            return frozenset()


def _key_columns(mapping: TableMapping) -> frozenset[int]:
    return frozenset(
        at for at, column in enumerate(mapping.source_columns) if column.name in mapping.source_key
    )


def _follows_key(mapping: TableMapping) -> bool:
    """Whether the source's key alone tells the target's."""
    known = _key_columns(mapping)
    return all(_needs(mapping, mapping.columns[at].origin) <= known for at in mapping.key_places)


def _undecided(mapping: TableMapping) -> Column:
    """Whether the old image has too little for the filter."""
    from pyspark.sql import functions as F

    needed = frozenset[int]().union(
        *(named_in(sql, mapping.source_columns) for sql in mapping.filter)
    )
    decided = needed <= _key_columns(mapping)
    return F.lit(False) if decided else ~F.col(f"{CARRIED}.whole")


def _left_out() -> Column:
    """Whether the log left values out that nothing else tells."""
    from pyspark.sql import functions as F

    unchanged, whole = F.col(f"{CARRIED}.unchanged"), F.col(f"{CARRIED}.whole")
    return F.coalesce((F.size(unchanged) > 0) & ~whole, F.lit(False))


def _unchanged(mapping: TableMapping) -> Column:
    """Places of the target's columns that are made of left out values only: they did not change."""
    from pyspark.sql import functions as F

    unchanged = F.col(f"{CARRIED}.unchanged")
    known = _key_columns(mapping)
    places = []
    for at, column in enumerate(mapping.columns):
        needed = _needs(mapping, column.origin) - known
        if needed:
            listed = F.array(*(F.lit(place) for place in sorted(needed)))
            places.append(F.when(F.size(F.array_except(listed, unchanged)) == 0, F.lit(at)))
    found = F.array_compact(F.array(*places)) if places else F.lit(None)
    return F.when(_left_out(), found)


def _problem(mapping: TableMapping) -> Column:
    """Why a change cannot be mapped; NULL where it can."""
    from pyspark.sql import functions as F

    unchanged = F.col(f"{CARRIED}.unchanged")
    problem = F.lit(None).cast("string")
    remedy = "have the source log whole rows (PostgreSQL: REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL)"

    def says(what: str) -> Column:
        return F.concat(
            F.lit(f"{mapping.source} at "),
            F.col(f"{CARRIED}.position"),
            F.lit(f": {what}; {remedy}"),
        )

    mixed = F.lit(False)
    for column in mapping.columns:
        if isinstance(column.origin, Expressed):
            needed = sorted(_needs(mapping, column.origin))
            listed = F.array(*(F.lit(place) for place in needed)).cast("array<int>")
            missing = F.size(F.array_intersect(listed, unchanged))
            mixed = mixed | ((missing > 0) & (missing < len(needed)))
    if not _follows_key(mapping):
        unknown = F.col(f"{CARRIED}.kind").isin(UPDATE, DELETE) & ~F.col(f"{CARRIED}.whole")
        what = "the log has no row before the change, of which the target's key is made"
        problem = F.when(unknown, says(what))
    if mapping.filter:
        what = "the log left out values that did not change, and the row may be new to the target"
        problem = F.coalesce(problem, F.when(_left_out(), says(what)))
    what = "the log left out values that did not change, of which an expression needs some"
    return F.coalesce(problem, F.when(_left_out() & mixed, says(what)))
