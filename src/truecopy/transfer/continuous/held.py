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
from truecopy.transfer.continuous.effects import effects
from truecopy.transfer.continuous.newest import Emptied
from truecopy.transfer.continuous.pieces import INPUT, TURN
from truecopy.transfer.continuous.tables import Tables
from truecopy.transfer.leg import Leg
from truecopy.transfer.packing import Packed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_BYTES = 8 << 20
"""Batches up to this are held on the driver until a check is due."""

HELD_BYTES = 64 << 20
"""A check is due where more than this is held."""

_LARGE_TURN = 1 << 20
"""The number of a batch that stays with Spark, behind all that are held; one for all: plans are compiled by it."""


@dataclass
class Held:
    """Batches that wait to be checked together.

    Attributes:
        frames: On the driver, each with the number of its batch.
        large: A batch that stays with Spark; the last one.
        batches: How many there are; each has its number.
        changes, size: How many changes are on the driver, and their bytes.
        ends: Of each part: where the last of its changes stands.
        reached: Of each shard: where the changes end.
        emptied: Tables that were emptied.
    """

    frames: list[pa.Table] = field(default_factory=list)
    large: DataFrame | None = None
    batches: int = 0
    changes: int = 0
    size: int = 0
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

    def hold(self, held: Held, changes: Packed) -> None:
        """Adds a batch: what it is about, and the changes themselves, unless there are very many."""
        from pyspark.sql import functions as F

        held.batches += 1
        told = _told(changes.frame)
        for row in told:
            held.reached[row["shard"]] = row["position"], row["committed_at"]
        self._tables.learn({row["schema_id"] for row in told if row["schema_id"]})
        wanted = {
            schema_id: self._definitions.find(schema_id)
            for schema_id in {row["schema_id"] for row in told if row["kind"] != TRUNCATE}
            if schema_id in self._tables.checks
        }
        made = effects(changes, wanted, self._tables.mappings, self._leg)
        made = made.where(F.col("kind") != TRUNCATE)
        if self._leg or wanted.keys() & self._tables.mappings.keys():
            mine = _told(made) if wanted else []
        else:
            mine = [r for r in told if r["schema_id"] in wanted and r["kind"] != TRUNCATE]
        is_large = sum(row["size"] for row in mine) > SMALL_BYTES
        turn = _LARGE_TURN if is_large else held.batches
        emptying = [row for row in told if row["kind"] == TRUNCATE]
        if emptying:
            held.emptied |= _emptied(changes, turn)
        watched = [row for row in emptying if self._tables.carries(row["table"])]
        for row in sorted((*mine, *watched), key=lambda row: row["commit_order"]):
            part = row["shard"], row["table"], row["slice"]
            held.ends[part] = row["position"], row["committed_at"]
        if not wanted:
            return
        frame = made.select(
            F.concat_ws("/", "shard", "table", F.col("slice").cast("string")).alias("part"),
            F.lit(turn).cast("long").alias("turn"),
            *INPUT.names[2:],
        )
        if is_large:
            held.large = frame
            return
        table = frame.toArrow().cast(INPUT)
        held.frames.append(table)
        held.size += table.nbytes
        held.changes += sum(map(_rows_inside, table.column("payload")))


def _told(packed: DataFrame) -> list[Any]:
    """What there is in packed changes, in the order in which it was committed last."""
    from pyspark.sql import functions as F

    names = "shard", "table", "schema_id", "kind", "slice", "commit_order", "position"
    found = packed.select(*names, "committed_at", F.length("payload").alias("size")).collect()
    return sorted(found, key=lambda row: row["commit_order"])


def _emptied(changes: Packed, turn: int) -> dict[tuple[str, str], Emptied]:
    rows = changes.rows().where(f"kind = '{TRUNCATE}'")
    found = rows.select("shard", "table", "commit_order", "seq", "position").collect()
    return {
        (shard, table): Emptied(order + turn * TURN, seq, position)
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
