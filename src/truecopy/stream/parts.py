"""What the keyspace adds to the parts of its shards: restart times, key ranges, heartbeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from truecopy.model.change import CHANGE_SCHEMA, HEARTBEAT, Definition
from truecopy.model.errors import UsageError
from truecopy.model.keyspace import FUNCTIONS, KeyRange, Sharding
from truecopy.stream.log import Mark, Part

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = CHANGE_SCHEMA.field("restart_at").type
_RESTART = CHANGE_SCHEMA.get_field_index("restart_at")


@dataclass(frozen=True)
class ShardPart:
    """A part of one shard's log.

    Attributes:
        restart_at: Microseconds, 0 where not known.
        key_range: Only rows of this range; None for all.
    """

    shard: str
    part: Part
    restart_at: int
    key_range: KeyRange | None = None
    sharding: Mapping[str, Sharding] = field(default_factory=dict)

    def read(self) -> Iterator[pa.RecordBatch]:
        keep = _RangeFilter(self.part, self.key_range, self.sharding) if self.key_range else None
        for batch in self.part.read():
            chosen = keep.filter(batch) if keep else batch
            if not chosen.num_rows:
                continue
            if self.restart_at:
                times = pa.repeat(pa.scalar(self.restart_at, pa.int64()), chosen.num_rows)
                chosen = chosen.set_column(
                    _RESTART, CHANGE_SCHEMA.field(_RESTART), times.cast(_INSTANT)
                )
            yield chosen


@dataclass(frozen=True)
class HeartbeatPart:
    """Says of each shard of an idle stream that it is idle, and where."""

    marks: Mapping[str, Mark]
    at: int
    restart_at: int

    def read(self) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = [
            {
                "shard": shard,
                "position": mark.position,
                "committed_at": _EPOCH + timedelta(microseconds=self.at),
                "restart_at": _EPOCH + timedelta(microseconds=self.restart_at)
                if self.restart_at
                else None,
                "kind": HEARTBEAT,
            }
            for shard, mark in self.marks.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=CHANGE_SCHEMA)


class _RangeFilter:
    """Keeps the rows whose keyspace id is in the range, before or after the change."""

    def __init__(self, part: Part, key_range: KeyRange, sharding: Mapping[str, Sharding]) -> None:
        self._range = key_range
        self._sharding = sharding
        definitions: Mapping[str, Definition] = getattr(part, "definitions", {})
        self._definitions = {d.schema_id: d for d in definitions.values()}
        self._known: dict[tuple[str, str], bool] = {}

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema_ids = batch.column("schema_id").to_pylist()
        images = [batch.column(name) for name in ("key", "before", "after")]
        mask = [False] * batch.num_rows
        for schema_id in set(schema_ids):
            rows = [i for i, one in enumerate(schema_ids) if one == schema_id]
            function, places = self._place(schema_id)
            for image, place in zip(images, places, strict=True):
                if place is None:
                    continue
                for row in rows:
                    values = image[row]
                    if values.is_valid and not mask[row]:
                        mask[row] = self._is_inside(function, values[place].as_py())
        return batch.filter(pa.array(mask))

    def _place(self, schema_id: str) -> tuple[str, tuple[int | None, int | None, int | None]]:
        """The function, and where the sharding column is in the key and in the images."""
        definition = self._definitions[schema_id]
        bare = definition.table.rpartition(".")[2]
        rule = self._sharding.get(definition.table) or self._sharding.get(bare)
        if rule is None:
            raise UsageError(
                f"the keyspace file does not say how {definition.table} is sharded, and only a part of its shard"
                f" was asked for: add it under sharding:, or ask for whole shards"
            )
        if rule.column in definition.key:
            place = definition.key.index(rule.column)
            # An update that changes the key is a delete and an insert, so the key tells all.
            return rule.function, (place, None, None)
        place = definition.names.index(rule.column)
        return rule.function, (None, place, place)

    def _is_inside(self, function: str, text: str | None) -> bool:
        if text is None:
            return False
        found = self._known.get((function, text))
        if found is None:
            if len(self._known) > 100_000:
                self._known.clear()
            found = self._known[function, text] = self._range.contains(FUNCTIONS[function](text))
        return found
