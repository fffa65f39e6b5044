"""What the keyspace adds to the parts of its shards: restart times, key ranges, heartbeats, second tries."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.metastore.definitions import Definitions
from truecopy.model.change import CHANGE_SCHEMA, HEARTBEAT, REDEFINITIONS, TRUNCATE, Definition
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.keyspace import FUNCTIONS, KeyRange, Sharding
from truecopy.stream.log import LogGone, Mark, Part

TRIES = 3
"""How often a part may fail at the same row in the same way: a server that went away fails otherwise each time."""

PAUSE_SECONDS = 1.0

_MOST_TRIES = 30
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
        for batch in _read_through(self.part):
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


def _read_through(part: Part) -> Iterator[pa.RecordBatch]:
    """A part's rows, each once, though its server goes away half-way.

    The part finds another server, or its own again; a part read twice gives the same rows, so those that
    were given are passed over.
    """
    given, seam = 0, ("", -1)
    failure, repeats = "", 0
    for _ in range(_MOST_TRIES):
        try:
            for batch in _after(part.read(), given, seam):
                given += batch.num_rows
                seam = _last_row(batch)
                yield batch
        except LogGone:
            raise
        except CannotFinish as error:
            said = f"{given} {error}"
            repeats = repeats + 1 if said == failure else 1
            failure = said
            if repeats == TRIES:
                raise
            time.sleep(PAUSE_SECONDS)
        else:
            return
    raise CannotFinish(f"a part of the log cannot be read to its end: {failure}")


def _after(
    batches: Iterator[pa.RecordBatch], given: int, seam: tuple[str, int]
) -> Iterator[pa.RecordBatch]:
    """Without the rows that were given before, of which the last one must be the same as then."""
    left = given
    for batch in batches:
        if left >= batch.num_rows:
            left -= batch.num_rows
            if not left and given and batch.num_rows:
                _check_seam(batch, seam)
                given = 0
            continue
        if left:
            _check_seam(batch.slice(0, left), seam)
        yield batch.slice(left)
        left = 0


def _check_seam(batch: pa.RecordBatch, seam: tuple[str, int]) -> None:
    if _last_row(batch) != seam:
        raise UsageError(
            f"two servers of a shard have different logs: one has the transaction {seam[0]} where the other has"
            f" {_last_row(batch)[0]}; take one of them out of the shard"
        )


def _last_row(batch: pa.RecordBatch) -> tuple[str, int]:
    last = batch.num_rows - 1
    return batch.column("txn")[last].as_py(), batch.column("seq")[last].as_py()


class _RangeFilter:
    """Keeps the rows whose keyspace id is in the range, before or after the change."""

    def __init__(self, part: Part, key_range: KeyRange, sharding: Mapping[str, Sharding]) -> None:
        self._range = key_range
        self._sharding = sharding
        definitions: Mapping[str, Definition] = getattr(part, "definitions", {})
        self._definitions = {d.schema_id: d for d in definitions.values()}
        self._known: dict[tuple[str, str], bool] = {}

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        kinds = batch.column("kind").to_pylist()
        schema_ids = batch.column("schema_id").to_pylist()
        # A table that is emptied is emptied for every range.
        mask = [kind in (TRUNCATE, *REDEFINITIONS) for kind in kinds]
        for schema_id in {one for one, kept in zip(schema_ids, mask, strict=True) if not kept}:
            rows = [i for i, one in enumerate(schema_ids) if one == schema_id and not mask[i]]
            for row, is_inside in zip(rows, self._inside(batch, schema_id, rows), strict=True):
                mask[row] = is_inside
        return batch.filter(pa.array(mask))

    def _inside(self, batch: pa.RecordBatch, schema_id: str, rows: Sequence[int]) -> Iterator[bool]:
        definition = self._definition(schema_id)
        rule = self._rule(definition)
        chosen = batch.take(pa.array(rows))
        if rule.column in definition.key:
            # An update that changes the key is a delete and an insert, so the key tells all.
            place = definition.key.index(rule.column)
            columns = [_values(chosen.column("key"), place)]
        else:
            place = definition.names.index(rule.column)
            columns = [_values(chosen.column(image), place) for image in ("before", "after")]
        for texts in zip(*columns, strict=True):
            known = [text for text in texts if text is not None]
            if not known:
                raise UsageError(
                    f"a change of {definition.table} does not say its {rule.column}, by which the table is sharded"
                    " (it is NULL, or the log or keys_only left it out): ask for whole shards"
                )
            yield any(self._is_inside(rule.function, text) for text in known)

    def _definition(self, schema_id: str) -> Definition:
        if schema_id not in self._definitions:
            self._definitions[schema_id] = Definitions().find(schema_id)
        return self._definitions[schema_id]

    def _rule(self, definition: Definition) -> Sharding:
        bare = definition.table.rpartition(".")[2]
        rule = self._sharding.get(definition.table) or self._sharding.get(bare)
        if rule is None:
            raise UsageError(
                f"the keyspace file does not say how {definition.table} is sharded, and only a part of its shard"
                f" was asked for: add it under sharding:, or ask for whole shards"
            )
        if rule.column not in definition.names:
            raise UsageError(
                f"the keyspace file shards {definition.table} by {rule.column}, and it has no such column"
            )
        return rule

    def _is_inside(self, function: str, text: str) -> bool:
        found = self._known.get((function, text))
        if found is None:
            if len(self._known) > 100_000:
                self._known.clear()
            found = self._known[function, text] = self._range.contains(FUNCTIONS[function](text))
        return found


def _values(images: pa.Array, place: int) -> list[str | None]:
    """One column of the images; None where there is no image."""
    found: list[str | None] = pc.list_element(images, place).to_pylist()
    return found
