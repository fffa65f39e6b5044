"""Between the change stream and its replication: what verifiers hear of every batch, and how far it has come."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.model.change import CHANGE_SCHEMA, RENAME
from truecopy.model.endpoint import Endpoint
from truecopy.model.position import contains, parse_position
from truecopy.stream.offset import Offset
from truecopy.transfer.packing import Apply, Packed
from truecopy.transfer.proof.verifier import Verifier

KEYS = pa.schema([CHANGE_SCHEMA.field(name) for name in ("table", "schema_id", "kind", "key")])
"""What verifiers hear of a change."""


def observed(apply: Apply, verifiers: Sequence[Verifier]) -> Apply:
    """For `foreachBatch`: verifiers hear of a batch before it is applied, and again when it is."""

    def apply_observed(changes: Packed, number: int) -> None:
        reached = positions_after(changes)
        for keys in changes.pieces(*KEYS.names):
            named = keys.filter(pc.not_equal(keys.column("kind"), RENAME))
            for verifier in verifiers:
                verifier.observe(named, {})
        for verifier in verifiers:
            verifier.observe(KEYS.empty_table(), reached)
        apply(changes, number)
        for verifier in verifiers:
            verifier.applied()

    return apply_observed


def positions_after(changes: Packed) -> dict[str, str]:
    """Where each shard stands after the batch."""
    ordered = sorted(changes.facts, key=lambda fact: fact.commit_order)
    return {fact.shard: fact.position for fact in ordered if fact.commit_order >= 0}


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
        """The running query, which reads the change stream; None while there is none."""
        self.reached: Offset | None = None
        """Where the stream was found to have nothing more, without a query."""

    @property
    def end(self) -> Offset | None:
        """Up to where everything is applied; None before the first batch."""
        return end_offset(self.query) if self.query is not None else self.reached

    def __call__(self, endpoint: Endpoint, position: str) -> bool:
        end = self.end
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
