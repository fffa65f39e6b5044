"""A batch of changes as its net effect: for each key of the target the last that happened to it.

A log may leave out long values that did not change. Such an update is put on top of what the batch says
of the row before it; what is still left out then is on the target, in the row that is about to be replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from truecopy.model.change import UPDATE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHANGES = (
    "shard", "position", "table", "schema_id", "kind", "key", "row", "unchanged", "commit_order",
    "seq", "step",
)  # fmt: skip
"""What a change is made of here: those of the stream, with `row` for what the target gets."""


def net_effect(changes: DataFrame, *, left_out: bool) -> DataFrame:
    """The last change of each key; of a table without a key, every change.

    Args:
        changes: `CHANGES`, and `part`.
        left_out: Whether some of them lack values that did not change.
    """
    from pyspark.sql import functions as F

    order = F.struct("commit_order", "seq", "step")
    alone = F.when(F.coalesce(F.size("key"), F.lit(0)) <= 0, order)
    told = ("kind", "row", "schema_id", "unchanged")
    last = _folded(order, told) if left_out else F.max_by(F.struct(*told), order)
    return (
        changes.groupBy("part", "table", "key", alone.alias("alone"))
        .agg(last.alias("last"), F.count(F.lit(1)).alias("changes"))
        .select("part", "table", "key", "last.*", "changes")
    )


def _folded(order: Column, told: tuple[str, ...]) -> Column:
    """All that happened to a row, one upon the other."""
    from pyspark.sql import functions as F

    history = F.array_sort(F.collect_list(F.struct(order.alias("order"), *told)))
    started = history[0]
    later = F.slice(history, 2, F.size(history))
    return F.aggregate(later, F.struct(*(started[name].alias(name) for name in told)), _upon)


def _upon(before: Column, change: Column) -> Column:
    from pyspark.sql import functions as F

    open_places = F.coalesce(change["unchanged"], F.array().cast("array<int>"))
    is_partial = (change["kind"] == UPDATE) & (F.size(open_places) > 0) & before["row"].isNotNull()
    filled = F.transform(
        change["row"],
        lambda text, at: F.when(F.array_contains(open_places, at), before["row"][at]).otherwise(
            text
        ),
    )
    still_open = F.array_intersect(
        open_places, F.coalesce(before["unchanged"], F.array().cast("array<int>"))
    )
    return F.struct(
        change["kind"].alias("kind"),
        F.when(is_partial, filled).otherwise(change["row"]).alias("row"),
        change["schema_id"].alias("schema_id"),
        F.when(is_partial, still_open).otherwise(change["unchanged"]).alias("unchanged"),
    )
