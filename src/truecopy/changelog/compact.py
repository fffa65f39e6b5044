"""Fewer and larger files, and no more of the past than is wanted.

*Compaction* merges the small files of a table's day. The merged files are put into a new folder, with whatever else
the day's folder holds; then the two folders change places, in one step where the system can (Linux). A reader that
lists the folder sees the one or the other. One that has listed it before and opens a file that is gone gets an
error, and asks again.

*Retention* moves the base forward: the tables as they were at the end of a batch are written as a new base, and only
then are older events removed. So whatever is kept can be restored.
"""

from __future__ import annotations

import fcntl
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from truecopy.changelog.base import BASE_SCHEMA
from truecopy.changelog.events import EVENT_SCHEMA
from truecopy.changelog.facts import (
    Base,
    BaseChunk,
    BaseTable,
    EventFile,
    files_by_folder,
    partition,
)
from truecopy.changelog.packing import Settling
from truecopy.changelog.points import after_batch
from truecopy.changelog.state import TableLog
from truecopy.changelog.store import BASE, CHANGES, OWN, Store
from truecopy.changelog.views import write_views
from truecopy.engines.lake_tables import make_durable
from truecopy.model.errors import CannotFinish
from truecopy.spark import explained
from truecopy.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_BYTES = 128 << 20
"""Files of this size are left alone, and none is merged to more than about it."""


@dataclass(frozen=True)
class CompactReport:
    """What was done."""

    files_before: int
    files_after: int
    events_removed: int


@dataclass(frozen=True)
class Merge:
    """Files of one folder that become one; plain values for executors."""

    folder: str
    inputs: tuple[EventFile, ...]
    output: EventFile
    paths: tuple[str, ...]
    path: str


def compact(
    folder: Path,
    *,
    before: int | None = None,
    file_bytes: int = FILE_BYTES,
    master: str | None = None,
) -> CompactReport:
    """Merges small files; with `before` (microseconds), moves the base forward to then. May run beside the writer."""
    spark = spark_session(master)
    with Store.open(folder) as store, _alone(store), explained():
        store.publish()
        _sweep(store)
        count = len(store.files())
        removed = _move_base(store, spark, before) if before is not None else 0
        _merge_files(store, spark, file_bytes)
        write_views(store)
        return CompactReport(count, len(store.files()), removed)


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    with (store.folder / OWN / "compact.lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotFinish(f"{store.folder} is being compacted by another process") from None
        yield


def _sweep(store: Store) -> None:
    """Removes what a compaction left that was ended: files that the log does not know."""
    shutil.rmtree(store.folder / OWN / "fresh", ignore_errors=True)
    with store.files_held():
        known = {store.path(file) for file in store.files()}
        for path in (store.folder / CHANGES).glob("*/*/*.parquet"):
            if path not in known:
                path.unlink(missing_ok=True)
    kept = {str(base.number) for base in store.bases()}
    for path in (store.folder / BASE).iterdir():
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


# Small files


def _merge_files(store: Store, spark: SparkSession, file_bytes: int) -> None:
    """Folder by folder, so that nothing is lost when it is ended in the middle."""
    plans = {}
    for folder, files in files_by_folder(store.files()).items():
        fresh = uuid.uuid4().hex
        merges = plan_merges(store, folder, files, fresh, file_bytes)
        if merges:
            plans[folder] = fresh, merges
    merges = [merge for _, some in plans.values() for merge in some]
    if not merges:
        return
    numbers = spark.sparkContext.parallelize(range(len(merges)), len(merges))
    sizes = dict(numbers.flatMap(partial(_merged, merges)).collect())
    for folder, (fresh, some) in plans.items():
        gone = [file.name for merge in some for file in merge.inputs]
        made = [replace(merge.output, bytes=sizes[merge.output.name]) for merge in some]
        with store.files_held():
            store.finish_swaps()
            store.decide_swap(folder, gone, fresh, made)
            store.finish_swaps()


def plan_merges(
    store: Store, folder: str, files: Sequence[EventFile], fresh: str, file_bytes: int
) -> list[Merge]:
    """Runs of small files that become one each."""
    runs: list[list[EventFile]] = [[]]
    for file in files:
        if sum(one.bytes for one in runs[-1]) + file.bytes > file_bytes:
            runs.append([])
        runs[-1].append(file)
    return [_merge(store, folder, run, fresh) for run in runs if len(run) > 1]


def _merge(store: Store, folder: str, run: Sequence[EventFile], fresh: str) -> Merge:
    first, last = min(file.first for file in run), max(file.last for file in run)
    name = f"{first:010d}-{last:010d}-{uuid.uuid4().hex[:8]}.parquet"
    output = EventFile(
        f"{folder}/{name}",
        run[0].table,
        run[0].day,
        first,
        last,
        sum(file.rows for file in run),
        0,
        any(file.left_out for file in run),
        sum(file.truncates for file in run),
        tuple(sorted({one for file in run for one in file.schema_ids})),
    )
    path = store.folder / OWN / "fresh" / fresh / name
    return Merge(
        folder, tuple(run), output, tuple(str(store.path(file)) for file in run), str(path)
    )


def _merged(merges: Sequence[Merge], number: int) -> Iterator[tuple[str, int]]:
    """Writes a merged file, a row group at a time."""
    merge = merges[number]
    path = Path(merge.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with pq.ParquetWriter(path, EVENT_SCHEMA, compression="zstd") as writer:
        for one in merge.paths:
            with pq.ParquetFile(one) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group).select(EVENT_SCHEMA.names)
                    writer.write_table(table.cast(EVENT_SCHEMA))
                    rows += table.num_rows
    if rows != merge.output.rows:
        raise CannotFinish(
            f"{merge.folder} has {rows} events in files that were noted with {merge.output.rows}"
        )
    make_durable(path)
    yield merge.output.name, path.stat().st_size


# The past


def _move_base(store: Store, spark: SparkSession, before: int) -> int:
    """Writes the tables as they were at a batch's end as the new base; gives how many events are gone."""
    old = store.bases()[-1]
    batch = _last_before(store, old, before)
    if batch is None:
        return 0
    number, point = old.number + 1, after_batch(store, batch)
    tables, chunks = list[BaseTable](), list[BaseChunk]()
    eras = [era.number for era in store.eras() if era.first <= batch]
    for name in store.tables():
        log = TableLog(store, spark, name, old)
        if not log.lines and not any(file.first <= batch for file in log.files):
            continue  # it came later
        final = log.definition(point)
        store.keep(final)
        tables += [BaseTable(era, name, final.schema_id, log.engine, None) for era in eras]
        below = f"{number}/table={partition(name)}"
        path = store.folder / BASE / below
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        work = WritingBase(str(path), final.schema_id)
        written = log.settled([point], final, log.slices, work).collect()
        chunks += [
            BaseChunk(0, name, at, "[null, null]", rows, f"{below}/{file}")
            for at, (file, rows) in enumerate(written)
        ]
    events = sum(file.rows for file in store.files() if file.last <= batch)
    ready_at = max(store.end_of(batch).slowest, old.ready_at)
    gone = store.move_base(old.number, Base(number, batch, batch, ready_at), tables, chunks)
    with store.files_held():
        for name in gone:
            (store.folder / CHANGES / name).unlink(missing_ok=True)
    shutil.rmtree(store.folder / BASE / str(old.number), ignore_errors=True)
    return events


def _last_before(store: Store, base: Base, before: int) -> int | None:
    """The last batch that ended before a time, and that the base can be moved to."""
    if base.ready is None:
        return None
    low, high = max(base.ready, store.oldest), store.last
    if store.end_of(low).slowest >= before:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if store.end_of(middle).slowest < before else (low, middle - 1)
    return low if low > base.batch else None


@dataclass(frozen=True)
class WritingBase:
    """What executors need to write rows of a base; plain values."""

    folder: str
    schema_id: str

    def __call__(self, _: int, settling: Settling, events: pa.Table) -> Iterator[tuple[str, int]]:
        """Writes the rows of a slice; gives the name of the file, and how many."""
        rows = settling.rows(events)
        columns = {
            "shard": pa.nulls(rows.num_rows, pa.string()),
            "era": rows.column("era"),
            "key": rows.column("key"),
            "after": rows.column("row"),
            "schema_id": pa.repeat(pa.scalar(self.schema_id), rows.num_rows),
        }
        # Under a name of its own: of an attempt that was given up, the file is not noted.
        path = Path(self.folder) / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.table(columns).cast(BASE_SCHEMA), path, compression="zstd")
        make_durable(path, path.parent)
        yield path.name, rows.num_rows
