"""From a batch of the change stream to what verifiers hear of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from truecopy.model.endpoint import Endpoint
from truecopy.model.position import contains, parse_position
from truecopy.stream.offset import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def changed_keys(batch: DataFrame) -> pa.Table:
    """The keys of a batch, as `Verifier.observe` wants them."""
    found: pa.Table = batch.select("table", "schema_id", "key").toArrow()
    return found


class AppliedByQuery:
    """How far a streaming query has come, for `Scene.has_applied`.

    The end of the last batch that was applied counts, not the last change of the task's tables: other
    databases of the source move its position, too.

    Args:
        query: The running query, whose source is `truecopy.changes`.
        shards: The shard of each endpoint of the source.
    """

    def __init__(self, query: Any, shards: dict[Endpoint, str]) -> None:
        self._query = query
        self._shards = shards

    def __call__(self, endpoint: Endpoint, position: str) -> bool:
        done = self._query.lastProgress
        end = done["sources"][0]["endOffset"] if done else None
        if not end:
            return False
        mark = Offset.parse(json.loads(end) if isinstance(end, str) else end).marks.get(
            self._shards[endpoint]
        )
        return mark is not None and contains(
            parse_position(mark.position), parse_position(position)
        )
