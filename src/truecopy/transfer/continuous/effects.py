"""Changes of the source as changes of the target, packed: routes, filters, transformers, and the leg of a keyspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from truecopy.mapping.changes import map_changes
from truecopy.mapping.plan import TableMapping
from truecopy.model.change import Definition
from truecopy.transfer.leg import Leg
from truecopy.transfer.narrowing import narrowed_changes
from truecopy.transfer.packing import Packed, pack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def effects(
    changes: Packed,
    definitions: Mapping[str, Definition],
    mappings: Mapping[str, TableMapping],
    leg: Leg | None,
) -> DataFrame:
    """Packed changes of the target's rows, by the names of the source's tables.

    Args:
        changes: A batch.
        definitions: Those that are wanted, by `schema_id`; changes of others are left out.
        mappings: Of definitions whose rows are made by expressions.
        leg: Which rows of a keyspace are wanted.
    """
    from pyspark.sql import functions as F

    frame = changes.frame.where(F.col("schema_id").isin(list(definitions)))
    if leg:
        rows = replace(changes, frame=frame).rows()
        frame = pack(narrowed_changes(rows, leg, definitions))
    mapped = definitions.keys() & mappings.keys()
    frames = [frame.where(F.col("schema_id").isin(list(definitions.keys() - mapped)))]
    for schema_id in mapped:
        of_one = frame.where(F.col("schema_id") == schema_id)
        made = map_changes(replace(changes, frame=of_one).rows(), mappings[schema_id])
        name = definitions[schema_id].table
        frames.append(pack(made.withColumn("table", F.lit(name))))
    return reduce(lambda one, other: one.unionAll(other), frames)
