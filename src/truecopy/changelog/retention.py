"""No more of the past than is wanted: the base moves forward, and only then are older events removed.

The new base is the tables as they were at the end of a batch. So whatever is kept can be restored.
"""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from truecopy.changelog.base import BASE_SCHEMA
from truecopy.changelog.facts import Base, BaseChunk, BaseTable, partition
from truecopy.changelog.log import Log
from truecopy.changelog.packing import Settling
from truecopy.changelog.points import after_batch
from truecopy.changelog.state import TableLog, Take
from truecopy.changelog.store import BASE, CHANGES, Store
from truecopy.changelog.table_rows import Held
from truecopy.changelog.table_store import BASE_ROWS, TableStore
from truecopy.changelog.table_store import CHANGES as CHANGES_TABLE
from truecopy.engines import pool
from truecopy.engines.lake_tables import make_durable
from truecopy.engines.lines import Lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DICE = random.SystemRandom()


class WritesBase(Protocol):
    """How rows get into the base of one kind of log."""

    @property
    def is_alone(self) -> bool:
        """Whether only one task at a time may write."""
        ...

    def writing(self, base: int, table: str, schema_id: str) -> Take:
        """What executors do with a slice: gives its number, the name of what was written, and how many rows."""
        ...

    def move(self, old: Base, new: Base, tables: list[BaseTable], chunks: list[BaseChunk]) -> None:
        """Puts the new base into the place of the old one, and removes the events that are in it."""
        ...


def move_base(log: Log, spark: SparkSession, before: int, writes: WritesBase) -> int:
    """Writes the tables as they were before a time as the new base; gives how many events are gone."""
    old = log.bases()[-1] if log.bases() else None
    batch = _last_before(log, old, before) if old is not None else None
    if old is None or batch is None:
        return 0
    # Under a number of its own, so that an attempt that was given up, or overtaken, is not taken for this one.
    number, point = old.number + _DICE.randrange(1, 1000), after_batch(log, batch)
    tables, chunks = list[BaseTable](), list[BaseChunk]()
    eras = [era.number for era in log.eras() if era.first <= batch]
    for name in log.tables():
        events = TableLog(log, spark, name, old)
        if not events.lines and not any(file.first <= batch for file in events.files):
            continue  # it came later
        final = events.definition(point)
        log.keep(final)
        tables += [BaseTable(era, name, final.schema_id, events.engine, None) for era in eras]
        work = writes.writing(number, name, final.schema_id)
        written = events.settled([point], final, events.slices, work, is_alone=writes.is_alone)
        chunks += [
            BaseChunk(0, name, at, "[null, null]", rows, where)
            for at, where, rows in written.collect()
        ]
    gone = sum(file.rows for file in log.files() if file.last <= batch)
    ready_at = max(log.end_of(batch).slowest, old.ready_at)
    writes.move(old, Base(number, batch, batch, ready_at), tables, chunks)
    return gone


def _last_before(log: Log, base: Base, before: int) -> int | None:
    """The last batch that ended before a time, and that the base can be moved to."""
    if base.ready is None:
        return None
    low, high = max(base.ready, log.oldest), log.last
    if log.end_of(low).slowest >= before:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if log.end_of(middle).slowest < before else (low, middle - 1)
    return low if low > base.batch else None


def _as_rows(settling: Settling, events: pa.Table, schema_id: str) -> pa.Table:
    rows = settling.rows(events)
    columns = {
        "shard": pa.nulls(rows.num_rows, pa.string()),
        "era": rows.column("era"),
        "key": rows.column("key"),
        "after": rows.column("row"),
        "schema_id": pa.repeat(pa.scalar(schema_id), rows.num_rows),
    }
    return pa.table(columns).cast(BASE_SCHEMA)


@dataclass(frozen=True)
class FilesOfBase:
    """See `WritesBase`: files of a folder."""

    store: Store
    is_alone = False

    def writing(self, base: int, table: str, schema_id: str) -> Take:
        below = f"{base}/table={partition(table)}"
        (self.store.folder / BASE / below).mkdir(parents=True)
        return WritingFile(str(self.store.folder / BASE), below, schema_id)

    def move(self, old: Base, new: Base, tables: list[BaseTable], chunks: list[BaseChunk]) -> None:
        gone = self.store.move_base(old.number, new, tables, chunks)
        with self.store.files_held():
            for name in gone:
                (self.store.folder / CHANGES / name).unlink(missing_ok=True)
        shutil.rmtree(self.store.folder / BASE / str(old.number), ignore_errors=True)


@dataclass(frozen=True)
class WritingFile:
    """What executors need to write slices of a base to files; plain values."""

    folder: str
    below: str
    schema_id: str

    def __call__(
        self, number: int, settling: Settling, events: pa.Table
    ) -> Iterator[tuple[int, str, int]]:
        rows = _as_rows(settling, events, self.schema_id)
        # Under a name of its own: of an attempt that was given up, the file is not noted.
        name = f"{self.below}/{uuid.uuid4().hex}.parquet"
        path = Path(self.folder) / name
        pq.write_table(rows, path, compression="zstd")
        make_durable(path, path.parent)
        yield number, name, rows.num_rows


@dataclass(frozen=True)
class RowsOfBase:
    """See `WritesBase`: rows of a database."""

    store: TableStore

    @property
    def is_alone(self) -> bool:
        with pool.lease(self.store.endpoint) as session:
            return session.driver_local

    def writing(self, base: int, table: str, schema_id: str) -> Take:
        return WritingRowsOfBase(self.store.rows, self.store.log, base, table, schema_id)

    def move(self, old: Base, new: Base, tables: list[BaseTable], chunks: list[BaseChunk]) -> None:
        log = self.store.log
        with self.store.transaction():
            self.store.move_base(old.number, new, tables, chunks)
            self.store.remove(f"{CHANGES_TABLE} WHERE log = ? AND batch <= ?", log, new.batch)
            # Also what attempts have left that were given up.
            self.store.remove(f"{BASE_ROWS} WHERE log = ? AND base <> ?", log, new.number)


@dataclass(frozen=True)
class WritingRowsOfBase:
    """What executors need to write slices of a base to a database; plain values."""

    held: Held
    log: str
    base: int
    table: str
    schema_id: str

    def __call__(
        self, number: int, settling: Settling, events: pa.Table
    ) -> Iterator[tuple[int, str, int]]:
        rows = _as_rows(settling, events, self.schema_id)
        place = self.log, self.base, self.table, number
        with pool.lease(self.held.relation.endpoint) as session:
            target: Any = session
            lines = Lines(target)
            with lines.transaction():
                lines.execute(
                    f"DELETE FROM {BASE_ROWS} WHERE log = ? AND base = ? AND table_name = ? AND chunk = ?",
                    *place,
                )
                if rows.num_rows:
                    words = {"base": self.base, "table": self.table, "chunk": number}
                    target.load(self.held.relation, self.held.texts(rows, log=self.log, **words))
        yield number, "", rows.num_rows
