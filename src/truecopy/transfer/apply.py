"""A batch of changes into the target: its net effect per key, part by part, each in one transaction.

A part is what moves on together: one of 64 slices of the keys, a table, or everything, as the task's
consistency asks. A part's transaction first moves its line of the ledger, and only from where the driver
saw it: a batch that is applied again, or by an attempt that was given up, finds the line elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines import pool
from truecopy.model.change import DELETE
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.transfer.ledger import Ledger
from truecopy.transfer.plan import ChangeTarget

SLICES = 64


@dataclass(frozen=True)
class PartStep:
    """Where a part stands before the batch, and where it stands after."""

    old: str
    new: str
    committed_at: int


@dataclass(frozen=True)
class Applying:
    """What executors need to apply a batch; plain values.

    Attributes:
        targets: By `schema_id`.
        steps: By part.
        progress_first: At most once: the line moves in a transaction of its own, before the rows.
    """

    task: str
    epoch: int
    annotation: str
    endpoint: Endpoint
    targets: Mapping[str, ChangeTarget]
    steps: Mapping[str, PartStep]
    progress_first: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Applies the rows of a Spark partition, which come sorted by part."""
        part, waiting = None, list[pa.RecordBatch]()
        for batch in batches:
            for name, rows in _runs(batch, "part"):
                if name != part and waiting:
                    yield self._apply(str(part), pa.Table.from_batches(waiting))
                    waiting = []
                part = name
                waiting.append(rows)
        if waiting:
            yield self._apply(str(part), pa.Table.from_batches(waiting))

    def _apply(self, part: str, rows: pa.Table) -> pa.RecordBatch:
        step = self.steps[part]
        with pool.lease(self.endpoint) as session:
            target: Any = session
            ledger = Ledger(target, self.task)
            with _transaction(target):
                is_new = ledger.advance(part, step.old, step.new, step.committed_at, self.epoch)
                if is_new and not self.progress_first:
                    self._write(target, rows)
            if is_new and self.progress_first:
                with _transaction(target):
                    self._write(target, rows)
        counts = rows.group_by(["part", "table"]).aggregate([("changes", "sum")])
        return pa.RecordBatch.from_arrays(
            [counts.column(name).combine_chunks() for name in ("part", "table", "changes_sum")],
            names=["part", "table", "changes"],
        )

    def _write(self, target: Any, rows: pa.Table) -> None:
        for schema_id in pc.unique(rows.column("schema_id")).to_pylist():
            of_table = rows.filter(pc.equal(rows.column("schema_id"), schema_id))
            self._write_table(target, self.targets[schema_id], of_table)

    def _write_table(self, target: Any, to: ChangeTarget, rows: pa.Table) -> None:
        """Deletes every key that was touched, then inserts those that are there: right for swaps, too."""
        kept = rows.filter(pc.not_equal(rows.column("kind"), DELETE))
        if to.key_places:
            keys = _columns(rows.column("key"), to.key_places, "k")
            target.delete_keys(to.relation, keys, annotation=self.annotation)
        elif kept.num_rows != rows.num_rows:
            raise CannotFinish(
                f"{to.table} has no key, so a deleted or updated row cannot be found on the target: give it a key,"
                " or leave it out"
            )
        if kept.num_rows:
            texts = _columns(kept.column("after"), to.places, "c")
            target.load(to.relation, texts, annotation=self.annotation)


@contextmanager
def _transaction(target: Any) -> Iterator[None]:
    target.begin()
    try:
        yield
    except BaseException:
        with suppress(TruecopyError):
            target.rollback()
        raise
    target.commit()


def _columns(lists: pa.ChunkedArray, places: Sequence[int], prefix: str) -> pa.Table:
    """Elements of arrays as columns."""
    whole = lists.combine_chunks()
    return pa.table(
        {f"{prefix}{i}": pc.list_element(whole, place) for i, place in enumerate(places)}
    )


def _runs(batch: pa.RecordBatch, column: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Neighbouring rows of one value."""
    values = batch.column(column)
    if not len(values):
        return
    start, texts = 0, values.to_pylist()
    for at in range(1, len(texts) + 1):
        if at == len(texts) or texts[at] != texts[start]:
            yield texts[start], batch.slice(start, at - start)
            start = at
