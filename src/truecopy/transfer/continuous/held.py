"""Changes that wait to be checked together: small batches are held on the driver, a large one stays with Spark.

Nothing that is held is lost with the process: the stored position moves only with the round that checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from truecopy.metastore.definitions import Definitions
from truecopy.model.change import TRUNCATE
from truecopy.model.position import contains, parse_position
from truecopy.transfer.continuous.applied import Part, Place
from truecopy.transfer.continuous.checking import INPUT, TURN
from truecopy.transfer.continuous.effects import effects
from truecopy.transfer.continuous.judge import Emptied
from truecopy.transfer.continuous.tables import Tables
from truecopy.transfer.leg import Leg
from truecopy.transfer.packing import Packed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_BYTES = 8 << 20
"""Batches up to this are held on the driver until a check is due."""


@dataclass
class Held:
    """Batches that wait to be checked together.

    Attributes:
        frames: On the driver, each with the number of its batch.
        large: A batch that stays with Spark.
        ends: Of each part: where the last of its changes stands.
        reached: Of each shard: where the changes end.
        emptied: Tables that were emptied.
    """

    frames: list[pa.Table] = field(default_factory=list)
    large: DataFrame | None = None
    changes: int = 0
    ends: dict[Part, Place] = field(default_factory=dict)
    reached: dict[str, Place] = field(default_factory=dict)
    emptied: dict[tuple[str, str], Emptied] = field(default_factory=dict)


class Gathering:
    """Takes batches of the stream up, one after the other.

    Args:
        tables: Learn the definitions that come.
        leg: Which rows of a keyspace are wanted.
    """

    def __init__(self, tables: Tables, leg: Leg | None) -> None:
        self._tables = tables
        self._leg = leg
        self._definitions = Definitions()
        self._turn = 0

    def hold(self, held: Held, changes: Packed) -> None:
        """Adds a batch: what it is about, and the changes themselves, unless there are very many."""
        from pyspark.sql import functions as F

        facts = changes.facts
        self._turn += 1
        for fact in sorted(facts, key=lambda fact: fact.commit_order):
            held.reached[fact.shard] = fact.position, fact.committed_at
        self._tables.learn({fact.schema_id for fact in facts if fact.schema_id})
        wanted = {
            fact.schema_id: self._definitions.find(fact.schema_id)
            for fact in facts
            if fact.schema_id in self._tables.checks and fact.kind != TRUNCATE
        }
        if any(fact.kind == TRUNCATE for fact in facts):
            held.emptied |= self._emptied(changes)
        if not wanted:
            return
        made = effects(changes, wanted, self._tables.mappings, self._leg)
        made = made.where(F.col("kind") != TRUNCATE)
        told = made.select(
            "shard",
            "table",
            "slice",
            "commit_order",
            "position",
            "committed_at",
            F.length("payload").alias("size"),
        ).collect()
        for row in sorted(told, key=lambda row: row["commit_order"]):
            part = row["shard"], row["table"], row["slice"]
            held.ends[part] = row["position"], row["committed_at"]
        frame = made.select(
            F.concat_ws("/", "shard", "table", F.col("slice").cast("string")).alias("part"),
            F.lit(self._turn).cast("long").alias("turn"),
            *INPUT.names[2:],
        )
        if sum(row["size"] for row in told) > SMALL_BYTES:
            held.large = frame
            return
        table = frame.toArrow().cast(INPUT)
        held.frames.append(table)
        held.changes += sum(map(_rows_inside, table.column("payload")))

    def _emptied(self, changes: Packed) -> dict[tuple[str, str], Emptied]:
        rows = changes.rows().where(f"kind = '{TRUNCATE}'")
        found = rows.select("shard", "table", "commit_order", "seq", "position").collect()
        return {
            (shard, table): Emptied(order + self._turn * TURN, seq, position)
            for shard, table, order, seq, position in sorted(found)
        }


def not_behind(places: Mapping[str, Place], others: Mapping[str, Place]) -> dict[str, Place]:
    """Places by shard, without those that lie behind what another says of the same shard."""
    return {
        shard: place
        for shard, place in places.items()
        if shard not in others
        or contains(parse_position(place[0]), parse_position(others[shard][0]))
    }


def _rows_inside(payload: Any) -> int:
    with pa.ipc.open_stream(payload.as_buffer()) as reader:
        return sum(batch.num_rows for batch in reader)
