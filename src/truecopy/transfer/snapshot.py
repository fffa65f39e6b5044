"""The copy: chunks as Spark tasks, each read in one statement, written in one transaction, compared before commit.

What could go wrong between the steps, and why it does not:

- The source changes while a chunk is read: the statement is one snapshot, and what changed since P0 is
  replayed by the stream afterwards, idempotently. Rows without a key cannot be replayed so: their snapshot
  has a known position, which is noted with the chunk, and changes up to there are passed over.
- A row went from one of several merged tables to another between the reading of both, or it is in both: where
  equal keys are the same row, a chunk takes the place of rows with its keys. It is compared key by key then.
- A task dies before commit: the target rolls back, the chunk is not noted, another attempt does it.
- A task dies after commit, before Spark hears of it: the next attempt finds the chunk noted and skips.
- An attempt that was given up wakes up: the chunk is noted, or the epoch is another: it rolls back.
- The target changed a value on the way in (charset, rounding, a trigger): the digests differ, nothing is
  committed, and after some attempts the run fails and names the chunk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines import pool
from truecopy.engines.lines import transaction
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.fingerprint import Digest
from truecopy.model.relation import WHOLE, Chunk
from truecopy.spark import spare_the_collector
from truecopy.transfer.jobs import run_job
from truecopy.transfer.ledger import Ledger, Overtaken
from truecopy.transfer.plan import TablePlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPTS = 3
KEYS_AT_A_TIME = 1000


@dataclass(frozen=True)
class CopyTask:
    """One chunk to copy, of about `rows` rows; plain values."""

    task: str
    epoch: int
    annotation: str
    plan: TablePlan
    number: int
    chunk: Chunk
    rows: int = 0


@dataclass(frozen=True)
class Copied:
    """A chunk that is in, and what its reading took of the time."""

    table: str
    rows: int
    seconds: float
    read_seconds: float = 0.0


class ChunkDiffers(CannotFinish):
    """What the target holds is not what was sent."""


class Paced(Protocol):
    """Gives out the chunks to copy, group by group."""

    @property
    def lanes(self) -> int: ...
    def next_group(self, per_lane: int | None = None) -> list[CopyTask]: ...
    def note(self, copied: Copied) -> None: ...


def copy_chunks(spark: SparkSession, pace: Paced) -> Iterator[Copied]:
    """Copies chunks, group by group, in as many lanes as there may be; a lane has one connection to each side."""
    context = spark.sparkContext
    while group := pace.next_group():
        count = min(pace.lanes, len(group))
        lanes = [group[lane::count] for lane in range(count)]
        # Fewer lanes than cores: the next group may go to other workers, whose connections count, too.
        is_scarce = pace.lanes < context.defaultParallelism
        # Secrets travel inside the function, over the wire; elements of a collection pass through a file.
        numbers = context.parallelize(range(count), count)
        work = numbers.flatMap(partial(_outcomes, lanes, is_scarce))
        outcomes = run_job(spark, work.collect)
        for outcome in outcomes:
            if isinstance(outcome, Copied):
                pace.note(outcome)
                yield outcome
        for outcome in outcomes:
            if isinstance(outcome, TruecopyError):
                raise outcome


def _outcomes(
    lanes: Sequence[Sequence[CopyTask]], close: bool, number: int
) -> Iterator[Copied | TruecopyError]:
    """Of the chunks of a lane, up to the first that cannot be copied."""
    try:
        for task in lanes[number]:
            yield copy_chunk(task)
    except TruecopyError as error:
        yield error
    if close:
        pool.close_idle()
    spare_the_collector("copy")


def copy_chunk(task: CopyTask) -> Copied:
    """Copies one chunk."""
    return tried(partial(_copy_once, task), task.plan.source_name)


def tried(copy: Callable[[], Copied], table: str) -> Copied:
    """Copies a chunk of a table; a mismatch or a lost connection is tried again, within limits."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return copy()
        except Overtaken:
            return Copied(table, 0, 0.0)
        except CannotFinish:
            if attempt == ATTEMPTS:
                raise
            time.sleep(0.3 * attempt)
    raise AssertionError("unreachable")


def _copy_once(task: CopyTask) -> Copied:
    with pool.lease(task.plan.read.endpoint) as source:
        begun = time.monotonic()  # to connect is no part of what the statement takes
        rows, position = read_chunk(cast(Any, source), task)
    return write_chunk(task, rows, begun, position)


def read_chunk(source: Any, task: CopyTask) -> tuple[pa.Table, str | None]:
    """The rows with their `fingerprint`; of a table without a key, the position that they are of."""
    if task.plan.is_keyless:
        return cast(tuple[pa.Table, str], source.fingerprinted_rows_at(task.plan.read))
    return source.fingerprinted_rows(task.plan.read, task.chunk), None


def write_chunk(
    task: CopyTask, rows: pa.Table, begun: float, position: str | None = None
) -> Copied:
    """Writes rows of the target's texts with their `fingerprint`, and commits if the target holds just these."""
    plan = task.plan
    read_seconds = time.monotonic() - begun
    sent = digest_of(rows)
    with pool.lease(plan.target.endpoint) as session:
        target: Any = session
        with transaction(target):
            ledger = Ledger(target, task.task)
            ledger.note_copied(plan.source_name, task.number, sent.count, task.epoch, position)
            texts = rows.drop_columns(["fingerprint"])
            if texts.num_rows and plan.mapping.shares_rows and plan.mapping.keeps_rows_apart:
                target.delete_keys(plan.target, _keys(plan, texts), annotation=task.annotation)
            if texts.num_rows:
                target.load(plan.target, texts, annotation=task.annotation)
            held = _held(target, task, texts)
            if held is not None and held != sent:
                raise ChunkDiffers(
                    f"chunk {task.number} of {plan.source_name} is not on the target as it was sent:"
                    f" {held.count} rows there, {sent.count} sent; nothing of it was committed. Is the target table"
                    " empty, without triggers, and of types that hold these values?"
                )
    seconds = time.monotonic() - begun
    return Copied(plan.source_name, sent.count, seconds, read_seconds)


def _held(target: Any, task: CopyTask, texts: pa.Table) -> Digest | None:
    """What the target holds of a chunk: by its range where both sides order keys alike, else key by key.

    Rows without a key are told from others only where they are all in one chunk.
    """
    plan = task.plan
    if plan.comparison.ordered and not plan.is_mapped:
        return cast(Digest, target.digest(plan.target, task.chunk))
    if not plan.target.key_width:
        is_alone = task.chunk == WHOLE and not plan.mapping.merged
        return cast(Digest, target.digest(plan.target, WHOLE)) if is_alone else None
    keys = _keys(plan, texts)
    found = Digest()
    for at in range(0, keys.num_rows, KEYS_AT_A_TIME):
        some = list(
            zip(*(c.to_pylist() for c in keys.slice(at, KEYS_AT_A_TIME).columns), strict=True)
        )
        found = found + _digest_of_keys(target.fingerprints_by_key(plan.target, some), set(some))
    return found


def _keys(plan: TablePlan, texts: pa.Table) -> pa.Table:
    width = plan.target.key_width
    return texts.select(range(width)).rename_columns([f"k{i}" for i in range(width)])


def _digest_of_keys(rows: pa.Table, wanted: set[Any]) -> Digest:
    """A collation that ignores case answers with rows of other keys as well."""
    *keys, fingerprints = (column.to_pylist() for column in rows.columns)
    mine = [f for f, *key in zip(fingerprints, *keys, strict=True) if tuple(key) in wanted]
    return Digest(len(mine), sum(mine))


def digest_of(rows: pa.Table) -> Digest:
    """Count and sum of the fingerprints that came with the rows."""
    total = pc.sum(rows.column("fingerprint").cast(pa.decimal128(38))).as_py()
    return Digest(rows.num_rows, int(total or 0))
