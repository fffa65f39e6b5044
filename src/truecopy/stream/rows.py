"""Changes on their way into Arrow: values row after row, everything else once per run of rows.

A decoder appends the texts of whole rows to `keys`, `before` and `after`, which are flat, and then
says how many rows of which kind that were. What rows have in common (their transaction, their table)
is kept once per run and spread out in Arrow, not in Python.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truecopy.model.change import CHANGE_SCHEMA
from truecopy.model.errors import CannotFinish

BATCH_BYTES = 4 << 20
BATCH_ROWS = 32_768
_UNCOLLECTED = 200_000

_Text = str | bytes | None
_TEXTS = CHANGE_SCHEMA.field("key").type
_NUMBERS = CHANGE_SCHEMA.field("unchanged").type


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Lets the garbage collector come less often while millions of small values are made and kept.

    None of them can be part of a cycle, and at its own pace it would take a quarter of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(_UNCOLLECTED, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Run(NamedTuple):
    """What rows that follow each other have in common; a width of -1 means that they have no such image."""

    kind: str
    table: str
    schema_id: str
    key_width: int = -1
    before_width: int = -1
    after_width: int = -1


class ChangeRows:
    """Collects changes of one shard until they fill a batch.

    Attributes:
        keys, before, after: Texts (UTF-8 as `bytes`, or `str`) of row after row.
    """

    def __init__(self, shard: str) -> None:
        self._shard = shard
        self._clear()

    def _clear(self) -> None:
        self.keys: list[Any] = []
        self.before: list[Any] = []
        self.after: list[Any] = []
        self.rows = 0
        self.bytes = 0
        # One entry per run of rows: what it is, how many rows, the first one's number, the annotation.
        self._runs: list[tuple[Run, int, int, str | None]] = []
        self._unchanged: list[tuple[int, Sequence[int]]] = []
        # One entry per transaction: how many runs it has, and what `end_transaction` was told.
        self._open_runs = 0
        self._transactions: list[tuple[int, str, str, int, int, str | None]] = []

    def add_run(
        self,
        kind: str,
        table: str,
        schema_id: str,
        count: int,
        first_seq: int,
        *,
        key_width: int,
        before_width: int = -1,
        after_width: int = -1,
        annotation: str | None = None,
        size: int = 0,
    ) -> None:
        """Says what the last `count` rows are; a width of -1 means that they have no such image."""
        run = Run(kind, table, schema_id, key_width, before_width, after_width)
        self.add(run, count, first_seq, annotation, size)

    def add(
        self, run: Run, count: int, first_seq: int, annotation: str | None = None, size: int = 0
    ) -> None:
        """Says what the last `count` rows are."""
        self._runs.append((run, count, first_seq, annotation))
        self._open_runs += 1
        self.rows += count
        self.bytes += size

    def mark_unchanged(self, columns: Sequence[int]) -> None:
        """The columns that the log left out of the row that is about to be said by `add_run`."""
        self._unchanged.append((self.rows, columns))

    def end_transaction(
        self,
        position: str,
        txn: str,
        commit_order: int,
        committed_at: int,
        origin: str | None = None,
    ) -> None:
        """What the runs since the last call belong to; also for the first part of a long transaction."""
        if not self._open_runs:
            return
        self._transactions.append(
            (self._open_runs, position, txn, commit_order, committed_at, origin)
        )
        self._open_runs = 0

    @property
    def full(self) -> bool:
        return self.bytes >= BATCH_BYTES or self.rows >= BATCH_ROWS

    def take(self) -> pa.RecordBatch:
        """Everything collected, as one batch; what was collected is forgotten. Transactions must be ended."""
        assert not self._open_runs, "end the transaction first"
        if not self._runs:
            return pa.RecordBatch.from_pylist([], schema=CHANGE_SCHEMA)
        # Comprehensions: `zip(*…)` over ten thousands of short tuples takes ten times as long.
        kinds, kind_of_run = _distinct([run[0] for run in self._runs])
        counts = np.array([run[1] for run in self._runs], np.int64)
        first_seq = np.array([run[2] for run in self._runs], np.int64)
        run_counts = [transaction[0] for transaction in self._transactions]
        run = np.repeat(np.arange(len(counts)), counts)
        kind = kind_of_run[run]
        transaction = np.repeat(np.arange(len(run_counts)), run_counts)[run]
        starts = np.cumsum(counts) - counts
        seq = first_seq[run] + np.arange(self.rows) - starts[run]
        told = partial(_told, self._transactions)
        positions, txns = told(1), told(2)
        position = _spread(positions, transaction)
        columns = {
            "shard": pa.repeat(pa.scalar(self._shard, pa.string()), self.rows),
            "position": position,
            # A MariaDB with one domain says its position by naming the transaction.
            "txn": position if positions == txns else _spread(txns, transaction),
            "commit_order": pa.array(np.array(told(3), np.int64)[transaction]),
            "seq": pa.array(seq.astype(np.int32)),
            "committed_at": _instants(np.array(told(4), np.int64)[transaction]),
            "restart_at": pa.nulls(self.rows, CHANGE_SCHEMA.field("restart_at").type),
            "kind": _spread([one.kind for one in kinds], kind),
            "table": _spread([one.table for one in kinds], kind),
            "key": _lists(self.keys, [one.key_width for one in kinds], kind),
            "before": _lists(self.before, [one.before_width for one in kinds], kind),
            "after": _lists(self.after, [one.after_width for one in kinds], kind),
            "unchanged": self._unchanged_lists(),
            "schema_id": _spread([one.schema_id for one in kinds], kind),
            "annotation": _spread([one[3] for one in self._runs], run),
            "origin": _spread(told(5), transaction),
        }
        self._clear()
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in CHANGE_SCHEMA.names], schema=CHANGE_SCHEMA
        )

    def _unchanged_lists(self) -> pa.Array:
        if not self._unchanged:
            return pa.nulls(self.rows, _NUMBERS)
        lists: list[Sequence[int] | None] = list(repeat(None, self.rows))
        for row, columns in self._unchanged:
            lists[row] = columns
        return pa.array(lists, _NUMBERS)


def _distinct(runs: list[Run]) -> tuple[list[Run], npt.NDArray[np.int64]]:
    """The few kinds of runs that there are, and which one each is. A decoder says the same objects again and again."""
    numbers = {number: at for at, number in enumerate(dict.fromkeys(map(id, runs)))}
    kinds = list({id(run): run for run in runs}.values())
    return kinds, np.fromiter(map(numbers.__getitem__, map(id, runs)), np.int64, len(runs))


def _told(transactions: list[tuple[Any, ...]], field: int) -> list[Any]:
    return [transaction[field] for transaction in transactions]


def texts_to_arrow(values: list[_Text]) -> pa.Array:
    """Texts as Arrow's strings.

    By way of bytes, which takes half the time: UTF-8 is then checked once over the whole.
    """
    try:
        texts = pa.array(values, pa.binary()).cast(pa.string())
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        raise CannotFinish(
            f"a change holds text that is not UTF-8 ({error}): correct the value at the source, or leave its"
            " table out of the stream"
        ) from None
    if isinstance(texts, pa.ChunkedArray):
        raise CannotFinish(
            "a change holds more than 2 GiB of text: leave its table out of the stream"
        )
    return texts


def _spread(values: Sequence[str | None], index: npt.NDArray[np.int64]) -> pa.Array:
    """The value of each row; most batches hold one value only, or one per row."""
    if not values or (values[0] is None and not any(values)):
        return pa.nulls(len(index), pa.string())
    if values[0] == values[-1] and len(set(values)) == 1:
        return pa.repeat(pa.scalar(values[0], pa.string()), len(index))
    array = pa.array(values, pa.string())
    is_one_each = len(values) == len(index) and bool((index[1:] > index[:-1]).all())
    return array if is_one_each else array.take(pa.array(index))


def _instants(microseconds: npt.NDArray[np.int64]) -> pa.Array:
    instants = pa.array(microseconds).cast(CHANGE_SCHEMA.field("committed_at").type)
    if microseconds.all():
        return instants
    return pa.compute.if_else(pa.array(microseconds != 0), instants, None)


def _lists(values: list[_Text], widths: Sequence[int], run: npt.NDArray[np.int64]) -> pa.Array:
    per_row = np.array(widths, np.int32)[run]
    absent = per_row < 0
    if absent.all():
        return pa.nulls(len(per_row), _TEXTS)
    offsets = np.zeros(len(per_row) + 1, np.int32)
    np.cumsum(np.where(absent, 0, per_row), out=offsets[1:])
    texts = texts_to_arrow(values)
    mask = pa.array(absent) if absent.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), texts, type=_TEXTS, mask=mask)
