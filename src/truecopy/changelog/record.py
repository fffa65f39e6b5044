"""Keeping a change log: the source's events into it, batch after batch, each batch once.

How far the log has come is in its ledger, and moves with the events (`truecopy.changelog.ledger`). A batch that was
read and not committed is read again.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from truecopy.changelog.base import (
    Copied,
    CopyChunk,
    CopyingChunks,
    copy_base,
    plan_base,
    servers_at,
)
from truecopy.changelog.eras import Era, current, first_eras, next_eras
from truecopy.changelog.events import WritingEvents
from truecopy.changelog.facts import EventFile, Trait
from truecopy.changelog.folder_views import write_views
from truecopy.changelog.gaps import new_definitions, note_gap
from truecopy.changelog.log import Log
from truecopy.changelog.stepping import CURRENT, NEVER, Steps, databases, identity, now
from truecopy.changelog.store import BASE, Store
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import Definition
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.spark import explained, is_local
from truecopy.spark import session as spark_session
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.log import Part
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request, parse_point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SEEN_SECONDS = 2.0
_SHOW_AGAIN_SECONDS = 60.0


@dataclass
class Listener:
    """Told what happens; by default nobody is."""

    said: Callable[[str], None] = field(default=lambda _: None)
    copied: Callable[[int], None] = field(default=lambda _: None)
    recorded: Callable[[int], None] = field(default=lambda _: None)


@dataclass(frozen=True)
class RecordReport:
    """What a run has done, and where the log stands now."""

    events: int
    rows_copied: int
    token: str


@dataclass(frozen=True)
class Batch:
    """What is to be committed together.

    Attributes:
        eras: The number of each shard's era.
        begun: Eras that begin after it.
        known: The last definition of each table that the log knows.
        shown: What the views of readers know.
        server: One of the source's, which tells how tables are declared.
    """

    number: int
    parts: Sequence[Part]
    after: Offset
    eras: dict[str, int]
    begun: Sequence[Era]
    databases: dict[str, str]
    known: dict[str, Definition]
    shown: frozenset[Trait]
    server: str

    def is_news(self, files: Sequence[EventFile]) -> bool:
        """Whether views have to be made anew to read these."""
        return bool(self.begun) or not {file.trait for file in files} <= self.shown


class Keeps(Protocol):
    """How rows and events get into one kind of log."""

    @property
    def log(self) -> Log: ...

    @property
    def is_alone(self) -> bool:
        """Whether only one task at a time may copy."""
        ...

    @property
    def is_one_transaction(self) -> bool:
        """Whether a batch has to be written by one task."""
        ...

    def copying(self, chunks: Sequence[CopyChunk]) -> Callable[[int], Iterator[Copied]]:
        """What executors do with chunks of the base, by their numbers."""
        ...

    def commit(self, spark: SparkSession, batch: Batch) -> tuple[list[EventFile], list[str]]:
        """Writes the events, their definitions and gaps, and notes them; gives what was noted and what to say."""
        ...

    def show(self) -> str | None:
        """Tells readers what tables and definitions there are by now; gives what to say where it cannot."""
        ...


class Recording:
    """One run of a log in a folder."""

    def __init__(
        self,
        request: Request,
        folder: Path,
        *,
        interval: float = 1.0,
        master: str | None = None,
        listener: Listener | None = None,
    ) -> None:
        self._request = request
        self._folder = folder
        self._interval = interval
        self._master = master
        self._listener = listener or Listener()
        self._is_told_to_stop = False

    def stop(self) -> None:
        """Ends the run after the batch that is being written; may be called by a signal."""
        self._is_told_to_stop = True

    def run(self, until: str = NEVER) -> RecordReport:
        """Goes on where the log stands: copies what is not copied, then records events to the end asked for."""
        with (
            Store.make(self._folder) as store,
            store.writing(),
            open_stream(self._request, self._master, self._listener.said) as stream,
        ):
            run = Run(
                self._request,
                FolderKeeper(store),
                stream,
                spark_session(self._master),
                self._listener,
                self._interval,
                lambda: self._is_told_to_stop or store.word("stop") is not None,
            )
            with explained():
                return run.go(until)


def open_stream(
    request: Request, master: str | None, said: Callable[[str], None]
) -> KeyspaceStream:
    """The stream of a source, once nothing is missing; what the user should know is said."""
    stream = KeyspaceStream(request)
    try:
        if lines := stream.missing():
            raise CannotFinish("; ".join(lines))
        if master and not is_local(master) and stream.driver_local:
            raise UsageError(
                "the source is a file of this machine, which the executors of a cluster cannot open:"
                " leave --master out"
            )
        for line in stream.warnings():
            said(line)
    except BaseException:
        stream.close()
        raise
    return stream


class FolderKeeper:
    """See `Keeps`: files, which the driver notes."""

    is_alone = False
    is_one_transaction = False

    def __init__(self, store: Store) -> None:
        self.log = self._store = store
        self._definitions = Definitions()

    def copying(self, chunks: Sequence[CopyChunk]) -> Callable[[int], Iterator[Copied]]:
        return CopyingChunks(str(self._store.folder / BASE), chunks)

    def commit(self, spark: SparkSession, batch: Batch) -> tuple[list[EventFile], list[str]]:
        files: list[EventFile] = []
        if count := len(batch.parts):
            writing = WritingEvents(
                str(self._store.staged),
                batch.number,
                batch.parts,
                batch.eras,
                batch.databases,
                self._store.reached(),
            )
            # Secrets travel inside the function, over the wire; elements of a collection pass through a file.
            files = spark.sparkContext.parallelize(range(count), count).flatMap(writing).collect()
        said = []
        for table, schema_id in new_definitions(files, batch.known):
            definition = self._definitions.find(schema_id)
            self._store.keep(definition)
            before = batch.known.get(table)
            said.append(note_gap(self._store, batch.server, table, before, definition))
        self._store.commit(batch.after, files, batch.begun, is_news=batch.is_news(files))
        self._store.publish()
        return files, [line for line in said if line]

    def show(self) -> str | None:
        write_views(self._store)
        return None


class Run:
    """The steps of one run, with the log and the source open."""

    def __init__(
        self,
        request: Request,
        keeps: Keeps,
        stream: KeyspaceStream,
        spark: SparkSession,
        listener: Listener,
        interval: float,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._request = request
        self._keeps = keeps
        self._log = keeps.log
        self._stream = stream
        self._spark = spark
        self._listener = listener
        self._is_stopping = is_stopping
        self._steps = Steps(stream, request, interval, self._commit, is_stopping, self._see)
        self._events = self._copied = 0
        self._seen_at = 0.0
        self._show_again_at = math.inf
        self._unable = set[str]()

    def go(self, until: str, start: str = "") -> RecordReport:
        """To the end asked for; a log that begins at a point of its own (`start`) has no base."""
        # The end first: what is committed while rows are copied is not wanted any more.
        limit = self._stream.current() if until == CURRENT else None
        self._begin(start)
        self._known = self._last_definitions()
        self._shown = self._log.traits()
        bases = self._log.bases()
        self._base = bases[-1].number if bases else None
        is_ready = not bases or bases[-1].ready is not None
        if is_ready:
            self._show()  # a run that was ended after its last commit has not
        if is_ready or self._catch_up_with_copy():
            self._steps.go(self._log.end_of(self._log.last), limit)
        token = self._log.end_of(self._log.last).token()
        return RecordReport(self._events, self._copied, str(token))

    def _begin(self, start: str) -> None:
        source = identity(self._request)
        known = self._log.word("source")
        if known is None:
            offset = self._stream.visible()
            if start and start != CURRENT:
                offset = self._stream.start(parse_point(start, ("start", CURRENT)))
            self._log.begin(source, offset, first_eras(offset.marks), now(), has_base=not start)
        elif known != source:
            raise UsageError(
                f"{self._log.place} is a log of {known}, not of {source}: name another place"
            )

    # The base

    def _catch_up_with_copy(self) -> bool:
        """Copies, then records what the copy may hold already; False where it was stopped before."""
        base = self._log.bases()[-1]
        copied_to = self._log.word("copied_to")
        if copied_to is None:
            self._copy(base.number)
            if self._is_stopping():
                return False
            self._known = self._last_definitions()
            copied_to = json.dumps(self._stream.current().plain())
            self._log.say("copied_to", copied_to)
        ready_at = now()
        end = Offset.parse(json.loads(copied_to))
        if not self._steps.go(self._log.end_of(self._log.last), end):
            return False
        self._log.set_ready(base.number, self._log.last, ready_at)
        self._show()
        return True

    def _copy(self, base: int) -> None:
        eras = {era.shard: era.number for era in self._log.eras()}
        servers = servers_at(self._request, self._log.end_of(0))
        left_out = self._stream.left_out()
        for table, why in left_out.items():
            self._listener.said(f"{table} is left out: {why}")
        tables = {
            eras[shard]: plan_base(self._log, base, eras[shard], server, self._request, left_out)
            for shard, server in servers.items()
        }
        shards = {number: shard for shard, number in eras.items()}
        copying, is_alone = self._keeps.copying, self._keeps.is_alone
        for rows in copy_base(
            self._spark, self._log, base, shards, tables, copying, is_alone=is_alone
        ):
            self._copied += rows
            self._listener.copied(rows)
            if self._is_stopping():
                return

    # Events

    def _commit(self, before: Offset, after: Offset) -> None:
        known = self._log.eras()
        number = self._log.last + 1
        begun = next_eras(known, before.marks, after.marks, number)
        one = self._keeps.is_one_transaction
        writers = 1 if one else int(self._spark.sparkContext.defaultParallelism)
        batch = Batch(
            number,
            self._stream.parts(before, after, writers),
            after,
            {shard: era.number for shard, era in current(known).items()},
            begun,
            databases(self._request),
            self._known,
            frozenset(self._shown),
            self._request.keyspace().serving[0].servers[0],
        )
        files, said = self._keeps.commit(self._spark, batch)
        for line in said:
            self._listener.said(line)
        for table, schema_id in list(new_definitions(files, self._known)):
            self._known[table] = self._log.definition(schema_id)
        is_moved = self._is_base_moved()
        if is_moved or batch.is_news(files) or time.monotonic() > self._show_again_at:
            self._shown |= {file.trait for file in files}
            self._show()
        events = sum(file.rows for file in files)
        self._events += events
        self._listener.recorded(events)

    def _is_base_moved(self) -> bool:
        """Whether another process has done it, and made views that know only what is left."""
        bases = self._log.bases()
        before, self._base = self._base, bases[-1].number if bases else None
        if self._base == before:
            return False
        self._shown = self._log.traits()
        return True

    def _show(self) -> None:
        """What stands in the way is said once; it is tried again after a while."""
        why = self._keeps.show()
        self._show_again_at = math.inf if why is None else time.monotonic() + _SHOW_AGAIN_SECONDS
        if why is not None and why not in self._unable:
            self._unable.add(why)
            self._listener.said(why)

    def _see(self, at: int) -> None:
        """The log is read to its end as it was then: a time before that is a point of it, though nothing happened."""
        if time.monotonic() - self._seen_at > _SEEN_SECONDS:
            self._log.say("seen_at", str(at))
            self._seen_at = time.monotonic()

    def _last_definitions(self) -> dict[str, Definition]:
        """The last definition of each table that the log knows."""
        bases = self._log.bases()
        lines = self._log.base_tables(bases[-1].number) if bases else []
        ids = {one.table: one.schema_id for one in lines}
        for table in self._log.tables():
            if (last := self._log.latest(table)) is not None:
                ids[table] = last
        return {table: self._log.definition(schema_id) for table, schema_id in ids.items()}
