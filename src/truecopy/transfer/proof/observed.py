"""Between the change stream and its replication: what verifiers hear of every batch, and how far it has come."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from truecopy.model.endpoint import Endpoint
from truecopy.model.position import contains, parse_position
from truecopy.stream.offset import Offset
from truecopy.transfer.proof.verifier import Verifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Apply = Callable[["DataFrame", int], None]


def observed(apply: Apply, verifiers: Sequence[Verifier]) -> Apply:
    """For `foreachBatch`: verifiers hear of a batch before it is applied, and again when it is."""

    def apply_observed(batch: DataFrame, number: int) -> None:
        batch = batch.persist()
        try:
            keys, reached = changed_keys(batch), positions_after(batch)
            for verifier in verifiers:
                verifier.observe(keys, reached)
            apply(batch, number)
        finally:
            batch.unpersist()
        for verifier in verifiers:
            verifier.applied()

    return apply_observed


def changed_keys(batch: DataFrame) -> pa.Table:
    """The keys of a batch, as `Verifier.observe` wants them."""
    found: pa.Table = batch.select("table", "schema_id", "kind", "key").toArrow()
    return found


def positions_after(batch: DataFrame) -> dict[str, str]:
    """Where each shard stands after the batch."""
    from pyspark.sql import functions as F

    last = F.max_by("position", "commit_order").alias("position")
    rows = batch.where("commit_order IS NOT NULL").groupBy("shard").agg(last).collect()
    return {row["shard"]: row["position"] for row in rows}


class AppliedByQuery:
    """How far a streaming query has come, for `Scene.has_applied`.

    The end of the last batch that was applied counts, not the last change of the task's tables: other
    databases of the source move its position, too.

    Args:
        shards: The shard of each endpoint of the source.
    """

    def __init__(self, shards: Mapping[Endpoint, str]) -> None:
        self._shards = shards
        self.query: Any = None
        """The running query, whose source is `truecopy.changes`; None while there is none."""

    def __call__(self, endpoint: Endpoint, position: str) -> bool:
        end = end_offset(self.query) if self.query is not None else None
        mark = end.marks.get(self._shards[endpoint]) if end else None
        return mark is not None and contains(
            parse_position(mark.position), parse_position(position)
        )


def end_offset(query: Any) -> Offset | None:
    """Where the last batch of a query ended that was applied; None before the first."""
    done = query.lastProgress
    end = done["sources"][0]["endOffset"] if done else None
    if not end:
        return None
    return Offset.parse(json.loads(end) if isinstance(end, str) else end)
