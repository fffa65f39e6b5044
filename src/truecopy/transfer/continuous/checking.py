"""A round on an executor: new changes and pending rows of some parts, looked at on the target and judged."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines import pool
from truecopy.engines.protocols import Reads, Session, Views
from truecopy.model.change import DELETE
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import TruecopyError
from truecopy.model.relation import Relation
from truecopy.spark import spare_the_collector
from truecopy.transfer.continuous.applied import Applied, Part, View
from truecopy.transfer.continuous.compare import Check, Comparer, packed
from truecopy.transfer.continuous.entries import (
    Numbers,
    counts_by_kind,
    lines_of,
    name_of,
    plain,
    to_bytes,
)
from truecopy.transfer.continuous.judge import (
    MICROSECONDS,
    Event,
    Round,
    Rules,
    Seen,
    without_released,
)
from truecopy.transfer.continuous.pieces import Group, due_at, lines_in

ROWS_AT_ONCE, BYTES_AT_ONCE = 50_000, 32 << 20
"""What a worker gathers, part by part, before it asks the target; and how many rows it has of that at a time."""

_FIRST_ROWS = 1000
"""What it asks for to learn how large the rows are."""

PIECE_BYTES = 4 << 20
"""About the size of a blob of pending rows."""

DONE = pa.schema(
    [
        ("part", pa.string()),
        ("payload", pa.binary()),
        ("counts", pa.string()),
        ("due_at", pa.int64()),
        ("processed", pa.string()),
        ("events", pa.string()),
        ("troubles", pa.string()),
    ]
)
_TEXTS = pa.list_(pa.string())


@dataclass(frozen=True)
class Checking:
    """What executors need for a round; plain values.

    Attributes:
        batch: Keys that one question asks for.
        rate: Rows per second that one worker may ask for; 0 for no limit.
        leave_none: Connections are counted: workers keep none.
    """

    endpoint: Endpoint
    applied: Applied
    comparer: Comparer
    rules: Rules
    batch: int
    rate: float = 0.0
    leave_none: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Goes through the rows of a Spark partition, which come sorted by part."""
        group = Group()
        for batch in batches:
            for line in lines_in(batch):
                if line.part not in group.parts and group.is_full(self._rows, BYTES_AT_ONCE):
                    yield self._check(group)
                    group = Group()
                group.add(line)
        if group.parts:
            yield self._check(group)
        if self.leave_none:
            pool.close_idle()
        spare_the_collector("check")

    @property
    def _rows(self) -> int:
        """Rows that are looked at in one state of the target; a ceiling must not keep that open for long."""
        seconds = self.rules.interval / MICROSECONDS
        return min(ROWS_AT_ONCE, int(self.rate * seconds) + 1) if self.rate else ROWS_AT_ONCE

    def _check(self, group: Group) -> pa.RecordBatch:
        entries, resting = group.entries(self.comparer.checks)
        changes = group.changes(self.comparer.checks)
        done = Round(entries, changes, self.rules, self.comparer)
        look = _Look(self, done.asked_for)
        if len(done.wanted):
            done.settle(look.seen())
        resting = without_released(resting, self.rules)
        resting = due_at(resting, self.rules.now + self.rules.longest)
        left = pa.concat_tables([done.left(), resting]).combine_chunks()
        found = [*self._parts(group, left)]
        found.append(
            {
                "processed": json.dumps(counts_by_kind(changes.column("kind"))),
                "events": json.dumps([self._told(event) for event in done.events]),
                "troubles": json.dumps(look.troubles),
            }
        )
        return pa.RecordBatch.from_pylist(found, schema=DONE)

    def _parts(self, group: Group, left: pa.Table) -> Iterator[dict[str, object]]:
        """A line for each part: what is pending there now, or nothing."""
        names = part_names(left)
        for part in group.parts:
            mine = left.filter(pc.equal(names, part))
            if not mine.num_rows:
                yield {"part": part}
            step = max(1, int(mine.num_rows * PIECE_BYTES / max(mine.nbytes, 1)))
            for at in range(0, mine.num_rows, step):
                piece = mine.slice(at, step)
                waiting = piece.filter(pc.invert(piece.column("is_error")))
                failed = waiting.filter(pc.greater(waiting.column("first_failed_at"), 0))
                counts = {
                    "rows": counts_by_kind(waiting.column("kind")),
                    "failed": counts_by_kind(failed.column("kind")),
                    "errors": piece.num_rows - waiting.num_rows,
                }
                yield {
                    "part": part,
                    "payload": to_bytes(piece),
                    "counts": json.dumps(counts),
                    "due_at": pc.min(piece.column("due_at")).as_py(),
                }

    def _told(self, event: Event) -> dict[str, Any]:
        """An event for the record."""
        image = event.image
        told: dict[str, Any] = {
            "name": name_of(image["shard"], image["table"], image["key"]),
            "table": image["table"],
            "resolved": event.resolved,
        }
        if not event.resolved and image["schema_id"] in self.comparer.checks:
            told |= vars(self.comparer.explain(image, event.seen))
            told |= {
                "first_failed_at": event.first_failed_at,
                "last_failed_at": event.last_failed_at,
            }
        return told


class _Look:
    """Asks the target for rows, all of them in one state of it.

    Attributes:
        troubles: By source table: why the target would not tell.
    """

    def __init__(self, checking: Checking, images: pa.Table) -> None:
        self._checking = checking
        self._images = images
        count = images.num_rows
        self._told, self._right = np.ones(count, bool), np.zeros(count, bool)
        self._at: Numbers = np.full(count, None, object)
        self._wrong: list[Numbers] = []
        self._rows: list[pa.Array] = []
        self.troubles: dict[str, str] = {}

    def seen(self) -> Seen:
        images, checks = self._images, self._checking.comparer.checks
        with pool.lease(self._checking.endpoint) as session:
            view = self._checking.applied.view(session)
            for schema_id in pc.unique(images.column("schema_id")).to_pylist():
                at = np.flatnonzero(np.asarray(pc.equal(images.column("schema_id"), schema_id)))
                self._at[at] = self._positions(view, at)
                try:
                    self._look_through(session, checks[schema_id], at)
                except TruecopyError as error:
                    # Where the session is lost, this raises, and the round is tried again.
                    cast(Views, session).rollback()
                    view = self._checking.applied.view(session)
                    self.troubles[checks[schema_id].table] = str(error)
                    self._told[at] = False
            cast(Views, session).rollback()
        positions = pa.array(self._at.tolist(), pa.string())
        return Seen(self._told, self._right, self._lists(), positions, view.exact)

    def _look_through(self, session: Session, check: Check, at: Numbers) -> None:
        """Piece by piece, since rows may be larger than their changes: the log leaves out what stayed as it was."""
        start, step = 0, _FIRST_ROWS
        while start < len(at):
            some = at[start : start + step]
            size = self._look_at(session, check, some)
            start += len(some)
            step = max(1, min(ROWS_AT_ONCE, len(some) * BYTES_AT_ONCE // max(size, 1)))

    def _look_at(self, session: Session, check: Check, at: Numbers) -> int:
        """Gives the bytes of what was found."""
        comparer, images = self._checking.comparer, lines_of(self._images, at)
        wanted = check.key_columns(plain(images.column("key")))
        relation = check.relation if comparer.whole else _keys_only(check.relation)
        found = self._ask(session, relation, wanted)
        held = packed([plain(found.column(i)) for i in range(check.width)])
        places = pc.index_in(packed(wanted), value_set=held)
        there = np.asarray(pc.is_valid(places)).astype(bool)
        columns = [plain(column) for column in found.columns]
        gone = np.asarray(pc.equal(images.column("kind"), DELETE)).astype(bool)
        right = gone != there
        both = np.flatnonzero(right & there)
        if comparer.whole and len(both):
            some = lines_of(images.select(["row", "unchanged"]), both)
            right[both] = comparer.equal_columns(
                check,
                plain(some.column("row")),
                plain(some.column("unchanged")),
                [column.take(places.take(pa.array(both))) for column in columns],
            )
        self._right[at] = right
        wrong = np.flatnonzero(~right)
        self._wrong.append(at[wrong])
        seen = places.take(pa.array(wrong))
        self._rows.append(_as_lists([c.take(seen) for c in columns], there[wrong]))
        return int(found.nbytes)

    def _ask(self, session: Session, relation: Relation, wanted: Sequence[pa.Array]) -> pa.Table:
        checking, parts = self._checking, list[pa.Table]()
        keys = list(zip(*(column.to_pylist() for column in wanted), strict=True))
        # With a ceiling there is a pause after each question.
        step = checking.batch if checking.rate else len(keys)
        for at in range(0, len(keys), step):
            begun, some = time.monotonic(), keys[at : at + step]
            parts.append(cast(Reads, session).rows_by_key(relation, some, checking.batch))
            if checking.rate:
                time.sleep(max(0.0, len(some) / checking.rate - (time.monotonic() - begun)))
        return pa.concat_tables(parts)

    def _lists(self) -> pa.Array:
        """The rows that are not right, each in its place."""
        count = self._images.num_rows
        if not self._wrong:
            return pa.nulls(count, _TEXTS)
        lines = np.concatenate(self._wrong)
        places = np.full(count, -1)
        places[lines] = np.arange(len(lines))
        return pa.concat_arrays(self._rows).take(pa.array(places, mask=places < 0))

    def _positions(self, view: View, at: Numbers) -> Numbers:
        """Where the rows of some lines' parts stand; there are few parts."""
        images = self._images.select(["shard", "table", "slice"]).take(pa.array(at))
        codes = np.asarray(pc.dictionary_encode(plain(part_names(images))).indices)
        parts, firsts = np.unique(codes, return_index=True)
        found: Numbers = np.full(len(parts), None, object)
        for place, row in enumerate(images.take(pa.array(firsts)).to_pylist()):
            part: Part = (row["shard"], row["table"], row["slice"])
            found[place] = view.at(part)
        each: Numbers = found[codes]
        return each


def part_names(rows: pa.Table) -> pa.ChunkedArray:
    """The part that each row belongs to: what is checked, and kept, together."""
    numbers = pc.cast(rows.column("slice"), pa.string())
    return pc.binary_join_element_wise(rows.column("shard"), rows.column("table"), numbers, "/")


def _keys_only(relation: Relation) -> Relation:
    return replace(relation, columns=relation.key, types=relation.key_types)


def _as_lists(columns: Sequence[pa.Array], there: Numbers) -> pa.Array:
    """Columns as a list for each row; NULL where there is no row."""
    count, width = len(there), len(columns)
    order = np.arange(count * width).reshape(width, count).T.ravel()
    values = pa.concat_arrays([column.cast(pa.string()) for column in columns])
    offsets = pa.array(np.arange(count + 1) * width, pa.int32())
    lists = pa.ListArray.from_arrays(offsets, values.take(pa.array(order)))
    return pc.if_else(pa.array(there), lists.cast(_TEXTS), pa.scalar(None, _TEXTS))
