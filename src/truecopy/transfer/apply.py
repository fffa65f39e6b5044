"""A batch of changes into the target: its net effect per key, part by part, each in one transaction.

A part is what moves on together: one of 64 slices of the keys, a table, or everything, as the task's
consistency asks. A part's transaction first moves its line of the ledger, and only from where the driver
saw it: a batch that is applied again, or by an attempt that was given up, finds the line elsewhere.

A batch holds whole transactions, however large. Of more than some megabytes the net effect is made for one class
of keys after the other, as the shuffle brings them, and rows are on disk until all that has to go is gone.

Where foreign keys of the target do what the source's log does not tell, a batch is several net effects, one
after the other, and between them the changes by which foreign keys act: such a part is held whole. So is one of
tables that are merged into one and may hold the same keys: a row goes from one of them to another in one batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines import pool
from truecopy.engines.lines import transaction
from truecopy.engines.loading import comment
from truecopy.engines.protocols import Statement
from truecopy.model.change import DELETE, UPDATE
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.position import contains, parse_position
from truecopy.spark import spare_the_collector
from truecopy.transfer.acting import Piece, cut_at_acts
from truecopy.transfer.effect import Layouts, identities, in_order, net_effect
from truecopy.transfer.ledger import Ledger, Overtaken
from truecopy.transfer.origins import Origins
from truecopy.transfer.packing import unpacked
from truecopy.transfer.plan import ChangeTarget
from truecopy.transfer.spooled import spooled_rows

Place = tuple[str, int]
"""A position of a shard, and the commit time there."""

TIED = "c/tied"
"""Within a shard, the part of all tables that foreign keys tie together, or that share rows."""

STEP_BYTES = 64 << 20
"""What a worker holds of a part's changes at once, if it can."""

DONE = pa.schema(
    [
        ("part", pa.string()),
        ("table", pa.string()),
        ("changes", pa.int64()),
        ("failure", pa.string()),
    ]
)
"""What became of each table of a part; `failure`, where its rows are not in though its line has moved."""

_TEXTS = pa.list_(pa.string())
EFFECTS = pa.schema(
    [
        ("table", pa.string()),
        ("schema_id", pa.string()),
        ("kind", pa.string()),
        ("key", _TEXTS),
        ("row", _TEXTS),
        ("before", _TEXTS),
        ("unchanged", pa.list_(pa.int32())),
        ("commit_order", pa.int64()),
        ("seq", pa.int32()),
        ("step", pa.int32()),
        ("position", pa.string()),
    ]
)


@dataclass(frozen=True)
class Applying:
    """What executors need to apply a batch; plain values.

    Attributes:
        targets: By `schema_id`.
        stands: Where each part stands that has a line in the ledger; others had no change so far.
        starts, ends: Of each shard: where the batch begins and ends.
        copied_at: Of tables without a key: the position that their copy is of.
        origin: The shard that the changes are of, where the target records that.
        progress_first: At most once: the line moves in a transaction of its own, before the rows.
        emptied: By table, the number of the change that empties it: what comes before is gone.
        replaying: The replay has not passed the end of the copy: a row may be gone on the target already.
        leave_none: Connections are counted: the next batch may go to other workers, whose connections count, too.
        step_bytes: See `STEP_BYTES`.
    """

    task: str
    epoch: int
    annotation: str
    endpoint: Endpoint
    targets: Mapping[str, ChangeTarget]
    stands: Mapping[str, Place]
    starts: Mapping[str, Place]
    ends: Mapping[str, Place]
    copied_at: Mapping[str, str] = field(default_factory=dict)
    emptied: Mapping[str, int] = field(default_factory=dict)
    origin: str = ""
    progress_first: bool = False
    replaying: bool = False
    leave_none: bool = False
    step_bytes: int = STEP_BYTES

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Applies the packed changes of a Spark partition, which come sorted by part, table and slice."""
        lines = chain.from_iterable(map(lines_of, batches))
        for part, mine in groupby(lines, lambda line: line.part):
            if not self._is_in(part):
                yield self._apply(part, mine)
        if self.leave_none:
            pool.close_idle()
        spare_the_collector("apply")

    def _is_in(self, part: str) -> bool:
        """Whether a part stands beyond the batch, since a run ended between two parts: its line must not go back."""
        if part not in self.stands:
            return False
        end, _ = self.ends[shard_of(part)]
        return contains(parse_position(self.stands[part][0]), parse_position(end))

    def _apply(self, part: str, lines: Iterator[Line]) -> pa.RecordBatch:
        counts, failure = Counter[str](), None
        steps = self.steps(part, lines, counts)
        with pool.lease(self.endpoint) as session:
            target: Any = session
            ledger = Ledger(target, self.task)
            if part not in self.stands:
                ledger.open_part(part, *self.starts[shard_of(part)], self.epoch)
            with transaction(target):
                self.mark(target)
                is_new = self.advance(ledger, part)
                if is_new and not self.progress_first:
                    self.write_steps(target, steps)
            if is_new and self.progress_first:
                failure = self._write_behind(target, ledger, part, steps)
        for _ in steps:
            pass  # what an earlier attempt has written is counted, too
        done = counts or {"": 0}
        return pa.RecordBatch.from_pydict(
            {
                "part": [part] * len(done),
                "table": list(done),
                "changes": list(done.values()),
                "failure": [failure] * len(done),
            },
            schema=DONE,
        )

    def _write_behind(
        self, target: Any, ledger: Ledger, part: str, steps: Iterator[pa.Table]
    ) -> str | None:
        """Writes a part whose line has moved already; gives what went wrong.

        It is not raised: the task would be tried again, find the line moved, and all would seem to be well.
        """
        end, _ = self.ends[shard_of(part)]
        try:
            with transaction(target):
                ledger.require_at(part, end, self.epoch)
                self.write_steps(target, steps)
        except Overtaken:
            raise
        except Exception as error:  # noqa: BLE001 - told to the driver
            said = error if isinstance(error, TruecopyError) else f"{type(error).__name__}: {error}"
            return (
                f"{said}. With delivery: at-most-once the changes of {part} up to {end} are not tried again: compare"
                " with truecopy verify"
            )
        return None

    def steps(self, part: str, lines: Iterator[Line], counts: Counter[str]) -> Iterator[pa.Table]:
        """The changes of a part that are not in yet, some megabytes at a time: all that there is of some keys."""
        is_whole = self._is_held_whole(part)
        waiting, size, before = list[pa.Table](), 0, ("", 0)
        for line in lines:
            keys = line.table, line.slice
            is_between = keys != before or not self.targets[line.schema_id].key_places
            if size >= self.step_bytes and is_between and not is_whole:
                yield self._news(part, pa.concat_tables(waiting), counts)
                waiting, size = [], 0
            before = keys
            for one in map(as_effects, unpacked(line.packed)):
                waiting.append(one)
                size += one.nbytes
        if waiting:
            yield self._news(part, pa.concat_tables(waiting), counts)

    def _is_held_whole(self, part: str) -> bool:
        """Whether rows of a part may depend on those of others: in that of tied tables, or the one of everything."""
        shard = shard_of(part)
        return part in (shard, f"{shard}/{TIED}") and any(
            to.may_act or to.shared for to in self.targets.values()
        )

    def _news(self, part: str, changes: pa.Table, counts: Counter[str]) -> pa.Table:
        """Without what is in already: a part may be ahead of some of the batch, since a run ended between two."""
        tables = pc.unique(changes.column("table")).to_pylist()
        shard = shard_of(part)
        start, _ = self.starts[shard]
        stands, _ = self.stands.get(part, (start, 0))
        if not contains(parse_position(start), parse_position(stands)):
            changes = changes.filter(is_behind(changes.column("position").combine_chunks(), stands))
        for table in tables:
            # A table that had a line of its own when a run ended may stand further there.
            own, _ = self.stands.get(f"{shard}/t/{table}", (start, 0))
            for position in {own, self.copied_at.get(table, start)} - {start, stands}:
                of_others = pc.not_equal(changes.column("table"), table)
                behind = is_behind(changes.column("position").combine_chunks(), position)
                changes = changes.filter(pc.or_(of_others, behind))
            if table in self.emptied:
                of_others = pc.not_equal(changes.column("table"), table)
                after = pc.greater(changes.column("seq"), self.emptied[table])
                changes = changes.filter(pc.or_(of_others, after))
        counts.update(dict.fromkeys(tables, 0))
        counts.update(changes.column("table").to_pylist())
        return changes

    def mark(self, target: Any) -> None:
        """First in a transaction that brings rows to a shard: where they come from."""
        if self.origin:
            Origins(target).move(self.origin, *self.ends[self.origin])

    def advance(self, ledger: Ledger, part: str) -> bool:
        """Moves a part's line to the end of the batch; False where that was done before."""
        shard = shard_of(part)
        old, _ = self.stands.get(part, self.starts[shard])
        return ledger.advance(part, old, *self.ends[shard], self.epoch)

    def pieces(self, changes: pa.Table) -> list[Piece]:
        """What to write, one after the other; net effects where foreign keys do not act."""
        return [
            piece if piece.acts else Piece(self._net(piece.changes))
            for piece in cut_at_acts(changes, self.targets)
        ]

    @cached_property
    def _layouts(self) -> Layouts:
        return {
            schema_id: {
                column.name: place
                for column, place in zip(to.relation.columns, to.places, strict=True)
            }
            for schema_id, to in self.targets.items()
        }

    def _net(self, changes: pa.Table) -> pa.Table:
        """The net effect, and of a row that several tables share, the row that one of them has in the end."""
        if not any(to.shared for to in self.targets.values()):
            return net_effect(changes, self._layouts)
        effect = net_effect(changes.take(in_order(changes)), self._layouts).combine_chunks()
        onto = {
            schema_id: str(to.relation.tables[0]) if to.shared else to.table
            for schema_id, to in self.targets.items()
        }
        names = pa.array([onto[one] for one in effect.column("schema_id").to_pylist()])
        numbers = identities(names, effect.column("key").combine_chunks())
        is_row = np.asarray(pc.not_equal(effect.column("kind"), DELETE), bool)
        rows = np.flatnonzero(is_row)
        last = np.full(numbers.max(initial=-1) + 1, -1)
        last[numbers[rows]] = rows  # of several for one row, the last stays
        lines = np.arange(len(numbers))
        return effect.filter(pa.array(np.where(is_row, last[numbers] == lines, last[numbers] < 0)))

    def write_steps(self, target: Any, steps: Iterator[pa.Table]) -> None:
        """Writes all of a part, inside the open transaction: first what goes, of all steps, and then what comes."""
        first, second = next(steps, None), next(steps, None)
        if first is None:
            return
        if second is None:
            self.write(target, self.pieces(first))
            return
        with spooled_rows() as spooled:
            for step in chain((first, second), steps):
                for schema_id, rows in _by_definition(net_effect(step, self._layouts)):
                    spooled.keep(schema_id, self._cleared(target, self.targets[schema_id], rows))
            for schema_id, texts in spooled.all():
                self._load(target, self.targets[schema_id], texts)

    def write(self, target: Any, pieces: Sequence[Piece]) -> None:
        """Writes pieces, inside the open transaction."""
        for piece in pieces:
            parts = [(self.targets[one], rows) for one, rows in _by_definition(piece.changes)]
            if piece.acts:
                for to, rows in parts:
                    self._act(target, to, rows)
                continue
            # What one definition of a table lets go of, another may take.
            texts = [(to, self._cleared(target, to, rows)) for to, rows in parts]
            for to, some in texts:
                self._load(target, to, some)

    def _act(self, target: Any, to: ChangeTarget, rows: pa.Table) -> None:
        """Deletes or updates rows, with all that foreign keys then do to others."""
        with target.cascading():
            if _has(rows, DELETE):
                keys = _columns(rows.column("key"), to.key_places, "k")
                target.delete_keys(to.relation, keys, annotation=self.annotation)
                return
            places = to.places[: to.relation.key_width]
            for row in rows.select(["before", "row"]).to_pylist():
                key = tuple(row["before"][place] for place in places)
                texts = [row["row"][place] for place in to.places]
                if target.move_row(to.relation, key, texts, annotation=self.annotation) != 1:
                    raise CannotFinish(
                        f"the row {', '.join(map(str, key))} of {to.table} was updated, and the target does not have"
                        " it: was it deleted there? Repair the table (truecopy verify --repair)"
                    )

    def _cleared(self, target: Any, to: ChangeTarget, rows: pa.Table) -> pa.Table:
        """Deletes every key that was touched; gives the rows that are there now, to be loaded: right for swaps, too."""
        kept = rows.filter(pc.not_equal(rows.column("kind"), DELETE))
        if not to.key_places:
            if kept.num_rows != rows.num_rows or _has(kept, UPDATE):
                raise CannotFinish(
                    f"{to.table} has no key, so a deleted or updated row cannot be found on the target: give it a key,"
                    " or leave it out"
                )
            return _columns(kept.column("row"), to.places, "c")
        texts = _columns(kept.column("row"), to.places, "c")
        keys = _columns(rows.column("key"), to.key_places, "k")
        if any(map(len, filter(None, kept.column("unchanged").to_pylist()))):
            texts = self._filled(target, to, kept, texts)
        target.delete_keys(to.relation, keys, annotation=self.annotation)
        return texts

    def _load(self, target: Any, to: ChangeTarget, texts: pa.Table) -> None:
        if texts.num_rows:
            target.load(to.relation, texts, annotation=self.annotation)

    def _filled(self, target: Any, to: ChangeTarget, kept: pa.Table, texts: pa.Table) -> pa.Table:
        """Puts values that the log left out in from the rows that are about to be replaced."""
        open_places = kept.column("unchanged").to_pylist()
        keys = _columns(kept.column("key"), to.key_places, "k").to_pylist()
        wanted = {
            tuple(key.values()): at
            for at, (key, places) in enumerate(zip(keys, open_places, strict=True))
            if places
        }
        found = target.rows_by_key(to.relation, list(wanted))
        there = {tuple(row.values())[: to.relation.key_width]: row for row in found.to_pylist()}
        rows = texts.to_pylist()
        gone = set()
        for key, at in wanted.items():
            if key not in there:
                self._require_replaying(to, key)
                gone.add(at)
                continue
            held = list(there[key].values())
            for column, place in enumerate(to.places):
                if place in open_places[at]:
                    rows[at][f"c{column}"] = held[column]
        left = [row for at, row in enumerate(rows) if at not in gone]
        return pa.Table.from_pylist(left, schema=texts.schema)

    def _require_replaying(self, to: ChangeTarget, key: tuple[str | None, ...]) -> None:
        """A row that the copy did not see any more is deleted further on; any other must be there."""
        if not self.replaying:
            raise CannotFinish(
                f"the row {', '.join(map(str, key))} of {to.table} was updated, the log left out its long values, and"
                " the target does not have the row: was it deleted there? Repair the table (truecopy verify --repair),"
                " or let the source log whole rows"
            )


class Withdrawing(Applying):
    """Takes out what a batch deletes in the end, and leaves the lines where they stand: the batch comes again.

    Of legs that share a target, each may wait for a row that the other has yet to delete, where rows have moved both
    ways. What a batch updates or inserts stays as it is.
    """

    def _apply(self, part: str, lines: Iterator[Line]) -> pa.RecordBatch:
        stands, _ = self.stands.get(part, self.starts[shard_of(part)])
        with pool.lease(self.endpoint) as session, suppress(Overtaken):  # or the part is in already
            target: Any = session
            with transaction(target):
                Ledger(target, self.task).require_at(part, stands, self.epoch)
                self.mark(target)
                for step in self.steps(part, lines, Counter()):
                    for schema_id, rows in _by_definition(self._net(step)):
                        gone = rows.filter(pc.equal(rows.column("kind"), DELETE))
                        self._cleared(target, self.targets[schema_id], gone)
        for _ in lines:
            pass
        return pa.RecordBatch.from_pylist([], schema=DONE)


class Line(NamedTuple):
    """Packed changes that share all of this."""

    part: str
    table: str
    schema_id: str
    slice: int
    packed: pa.RecordBatch


def lines_of(batch: pa.RecordBatch) -> Iterator[Line]:
    """Packed changes line by line."""
    columns = (batch.column(name).to_pylist() for name in ("part", "table", "schema_id", "slice"))
    for at, (part, table, schema_id, number) in enumerate(zip(*columns, strict=True)):
        yield Line(part, table, schema_id, number, batch.slice(at, 1))


def _by_definition(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for schema_id in pc.unique(rows.column("schema_id")).to_pylist():
        yield schema_id, rows.filter(pc.equal(rows.column("schema_id"), schema_id))


def as_effects(changes: pa.Table) -> pa.Table:
    """Changes that arrive as they are, or as a mapping made them, with the columns of `net_effect`."""
    if "row" not in changes.column_names:
        names = ["row" if name == "after" else name for name in changes.column_names]
        steps = pa.repeat(pa.scalar(0, pa.int32()), changes.num_rows)
        changes = changes.rename_columns(names).append_column("step", steps)
    if "before" not in changes.column_names:
        changes = changes.append_column("before", pa.nulls(changes.num_rows, _TEXTS))
    return changes.select(EFFECTS.names).cast(EFFECTS)


def shard_of(part: str) -> str:
    """The shard whose changes a part takes: its name has no slash, and that of a table may have some."""
    return part.partition("/")[0]


def run_all(target: Any, statements: Sequence[str], annotation: str) -> None:
    """Runs statements that define something, each for itself: most engines commit them at once anyhow."""
    for statement in statements:
        with transaction(target):
            target.execute(Statement(comment(annotation) + statement))


def is_behind(positions: pa.Array, stands: str) -> pa.Array:
    """Which positions come after one; a batch has few that differ, next to its changes."""
    known = parse_position(stands)
    coded = pc.dictionary_encode(positions)
    behind = [not contains(known, parse_position(text)) for text in coded.dictionary.to_pylist()]
    return pc.take(pa.array(behind, pa.bool_()), coded.indices)


def _has(rows: pa.Table, kind: str) -> bool:
    return bool(pc.any(pc.equal(rows.column("kind"), kind)).as_py())


def _columns(lists: pa.ChunkedArray, places: Sequence[int], prefix: str) -> pa.Table:
    """Elements of arrays as columns."""
    whole = lists.combine_chunks()
    return pa.table(
        {f"{prefix}{i}": pc.list_element(whole, place) for i, place in enumerate(places)}
    )
