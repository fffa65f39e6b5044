"""Keeping a change log as tables of a database, with its ledger in the same transactions.

A batch is one transaction of the target. It first moves the log's turn, and only from where the driver saw it; a
task that is tried again, or that was overtaken, finds it elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.changelog.base import Copied, CopyChunk
from truecopy.changelog.events import as_events, file_of, without_known
from truecopy.changelog.facts import EventFile
from truecopy.changelog.gaps import new_definitions, note_gap
from truecopy.changelog.ledger import Ledger
from truecopy.changelog.record import Batch, Listener, RecordReport, Run, open_stream
from truecopy.changelog.stepping import NEVER
from truecopy.changelog.table_rows import Held
from truecopy.changelog.table_store import TURN, TableStore, keep_definition
from truecopy.changelog.table_views import show
from truecopy.engines import pool
from truecopy.engines.lines import Lines
from truecopy.metastore.definitions import Definitions
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.spark import explained
from truecopy.spark import session as spark_session
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_ROWS = 100_000


@dataclass(frozen=True)
class CopyingRows:
    """Chunks into the table of base rows, for executors, by number; plain values."""

    log: str
    held: Held
    chunks: Sequence[CopyChunk]

    def __call__(self, number: int) -> Iterator[Copied]:
        """Writes a chunk and its line in one transaction."""
        one = self.chunks[number]
        rows, position = one.read()
        with pool.lease(self.held.relation.endpoint) as session:
            target: Any = session
            lines = Lines(target)
            with lines.transaction():
                ledger = Ledger(lines, self.log, is_open=True)
                if not ledger.note_chunk(one.base, one.chunk, rows.num_rows, position):
                    return  # another attempt has done it
                if rows.num_rows:
                    words = {"table": one.chunk.table, "chunk": one.chunk.number}
                    texts = self.held.texts(rows, log=self.log, base=one.base, **words)
                    target.load(self.held.relation, texts)
        yield number, rows.num_rows, position


@dataclass(frozen=True)
class WritingRows:
    """What an executor needs to write a batch; plain values."""

    log: str
    turn: str
    next_turn: str
    batch: Batch
    held: Held

    def __call__(self, _: int) -> Iterator[tuple[list[EventFile], list[str]]]:
        """Writes all events in one transaction, with what is noted of them; gives that, and what to say."""
        with pool.lease(self.held.relation.endpoint) as session:
            target: Any = session
            lines = Lines(target)
            with lines.transaction():
                if not self._advance(lines):
                    return
                ledger = Ledger(lines, self.log, is_open=True)
                noted: dict[str, EventFile] = {}
                for events in self._events(ledger.reached()):
                    target.load(self.held.relation, self.held.texts(events, log=self.log))
                    self._note(events, noted)
                files = list(noted.values())
                said = list(self._keep_definitions(lines, ledger, files))
                is_news = self.batch.is_news(files)
                ledger.commit(self.batch.after, files, self.batch.begun, is_news=is_news)
        yield files, said

    def _advance(self, lines: Lines) -> bool:
        """Moves the log's turn; False where an earlier attempt has done it."""
        if lines.execute(
            "UPDATE truecopy_log_word SET value = ? WHERE log = ? AND name = ? AND value = ?",
            *(self.next_turn, self.log, TURN, self.turn),
        ):
            return True
        found = lines.fetch(
            "SELECT value FROM truecopy_log_word WHERE log = ? AND name = ?", self.log, TURN
        )
        if found and found[0][0] == self.next_turn:
            return False
        raise CannotFinish(f"the log {self.log} is written by somebody newer")

    def _events(self, reached: dict[str, str]) -> Iterator[pa.Table]:
        batch = self.batch
        waiting, rows = list[pa.RecordBatch](), 0
        for part in batch.parts:
            for changes in part.read():
                news = without_known(changes, reached)
                waiting.append(news)
                rows += news.num_rows
                if rows >= _MOST_ROWS:
                    table = pa.Table.from_batches(waiting)
                    yield as_events(table, batch.number, batch.eras, batch.databases)
                    waiting, rows = [], 0
        if rows:
            table = pa.Table.from_batches(waiting)
            yield as_events(table, batch.number, batch.eras, batch.databases)

    def _note(self, events: pa.Table, noted: dict[str, EventFile]) -> None:
        for table in pc.unique(events.column("table")).to_pylist():
            name = f"{self.batch.number:010d}-{len(noted):06d}"
            some = events.filter(pc.equal(events.column("table"), table))
            one, before = file_of(some, name, table, self.batch.number), noted.get(table)
            noted[table] = _together(before, one) if before else one

    def _keep_definitions(
        self, lines: Lines, ledger: Ledger, files: Sequence[EventFile]
    ) -> Iterator[str]:
        for table, schema_id in new_definitions(files, self.batch.known):
            definition = Definitions().find(schema_id)
            keep_definition(lines, definition)
            before = self.batch.known.get(table)
            if line := note_gap(ledger, self.batch.server, table, before, definition):
                yield line


class TableKeeper:
    """See `truecopy.changelog.record.Keeps`."""

    is_one_transaction = True

    def __init__(self, store: TableStore, epoch: int) -> None:
        self.log = self._store = store
        self._epoch = epoch
        self._written = 0
        with pool.lease(store.endpoint) as session:
            self.is_alone = session.driver_local

    def copying(self, chunks: Sequence[CopyChunk]) -> Callable[[int], Iterator[Copied]]:
        return CopyingRows(self._store.log, self._store.rows, chunks)

    def commit(self, spark: SparkSession, batch: Batch) -> tuple[list[EventFile], list[str]]:
        turn, next_turn = (f"{self._epoch} {n}" for n in (self._written, self._written + 1))
        writing = WritingRows(self._store.log, turn, next_turn, batch, self._store.events)
        found = spark.sparkContext.parallelize([0], 1).flatMap(writing).collect()
        self._written += 1
        if found:
            return found[0]
        # The attempt that did it was lost with what it said.
        return self._store.files(after=batch.number - 1), []

    def show(self) -> str | None:
        return show(self._store)


class TableRecording:
    """One run of a log in a database."""

    def __init__(
        self,
        request: Request,
        to: str,
        *,
        log: str = "changes",
        start: str = "",
        interval: float = 1.0,
        master: str | None = None,
        listener: Listener | None = None,
    ) -> None:
        self._request = request
        self._endpoint = parse_endpoint(to)
        self._log = log
        self._start = start
        self._interval = interval
        self._master = master
        self._listener = listener or Listener()
        self._is_told_to_stop = False

    def stop(self) -> None:
        """Ends the run after the batch that is being written; may be called by a signal."""
        self._is_told_to_stop = True

    def run(self, until: str = NEVER) -> RecordReport:
        """Goes on where the log stands, to the end asked for."""
        spark = spark_session(self._master)
        store = TableStore.make(self._endpoint, self._log)
        with open_stream(self._request, self._master, self._listener.said) as stream:
            run = Run(
                self._request,
                TableKeeper(store, store.claim()),
                stream,
                spark,
                self._listener,
                self._interval,
                lambda: self._is_told_to_stop or store.word("stop") is not None,
            )
            with explained():
                return run.go(until, self._start)


def _together(one: EventFile, other: EventFile) -> EventFile:
    return replace(
        one,
        day=max(one.day, other.day),
        rows=one.rows + other.rows,
        bytes=one.bytes + other.bytes,
        left_out=one.left_out or other.left_out,
        truncates=one.truncates + other.truncates,
        schema_ids=tuple(sorted({*one.schema_ids, *other.schema_ids})),
    )
