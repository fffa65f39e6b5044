"""Fewer and larger files.

The merged files of a table's day are put into a new folder, with whatever else the day's folder holds; then the two
folders change places, in one step where the system can (Linux). A reader that lists the folder sees the one or the
other. One that has listed it before and opens a file that is gone gets an error, and asks again.
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

import pyarrow.parquet as pq

from truecopy.changelog.events import EVENT_SCHEMA
from truecopy.changelog.facts import EventFile, files_by_folder
from truecopy.changelog.folder_views import write_views
from truecopy.changelog.retention import FilesOfBase, RowsOfBase, move_base
from truecopy.changelog.store import BASE, CHANGES, OWN, Store
from truecopy.changelog.table_store import TableStore
from truecopy.changelog.table_views import show
from truecopy.engines.lake_tables import make_durable
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.spark import explained
from truecopy.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_BYTES = 128 << 20
"""Files of this size are left alone, and none is merged to more than about it."""


@dataclass(frozen=True)
class CompactReport:
    """What was done; of a log in a database, files are lines of its ledger."""

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
        removed = 0
        if before is not None:
            removed = move_base(store, spark, before, FilesOfBase(store))
        _merge_files(store, spark, file_bytes)
        write_views(store)
        return CompactReport(count, len(store.files()), removed)


def leave_past(
    endpoint: Endpoint, log: str, before: int, *, master: str | None = None
) -> CompactReport:
    """Moves the base of a log in a database forward; there are no files to merge. May run beside the writer."""
    spark = spark_session(master)
    store = TableStore.open(endpoint, log)
    count = len(store.files())
    with explained():
        removed = move_base(store, spark, before, RowsOfBase(store))
    show(store)  # what stands in the way, the writer says
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
