"""Keeping a change log: the source's events into files, batch after batch, each batch once.

How far the log has come is in its own database, and moves with the files that hold the events
(`truecopy.changelog.store`). A batch that was read and not committed is read again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from truecopy.changelog.base import copy_base, plan_base, servers_at
from truecopy.changelog.eras import current, first_eras, next_eras
from truecopy.changelog.events import WritingEvents
from truecopy.changelog.stepping import CURRENT, NEVER, Steps, databases, identity, now
from truecopy.changelog.store import EventFile, Store
from truecopy.changelog.views import write_views
from truecopy.engines import connect
from truecopy.engines.protocols import Introspects
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import Definition
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.spark import explained, is_local
from truecopy.spark import session as spark_session
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SEEN_SECONDS = 2.0


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
            run = _Run(
                self._request,
                store,
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


class _Run:
    """The steps of one run, with the log and the source open."""

    def __init__(
        self,
        request: Request,
        store: Store,
        stream: KeyspaceStream,
        spark: SparkSession,
        listener: Listener,
        interval: float,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._request = request
        self._store = store
        self._stream = stream
        self._spark = spark
        self._listener = listener
        self._is_stopping = is_stopping
        self._steps = Steps(stream, request, interval, self._commit, is_stopping, self._see)
        self._definitions = Definitions()
        self._events = self._copied = 0
        self._seen_at = 0.0

    def go(self, until: str) -> RecordReport:
        # The end first: what is committed while rows are copied is not wanted any more.
        limit = self._stream.current() if until == CURRENT else None
        self._begin()
        self._known = self._last_definitions()
        self._shown = {file.table for file in self._store.files()}
        is_ready = self._store.bases()[-1].ready is not None or self._catch_up_with_copy()
        if is_ready:
            self._steps.go(self._store.end_of(self._store.last), limit)
        token = self._store.end_of(self._store.last).token()
        return RecordReport(self._events, self._copied, str(token))

    def _begin(self) -> None:
        source = identity(self._request)
        known = self._store.word("source")
        if known is None:
            start = self._stream.visible()
            self._store.begin(source, start, first_eras(start.marks), now())
        elif known != source:
            raise UsageError(
                f"{self._store.folder} is a log of {known}, not of {source}: name another folder"
            )

    # The base

    def _catch_up_with_copy(self) -> bool:
        """Copies, then records what the copy may hold already; False where it was stopped before."""
        base = self._store.bases()[-1]
        copied_to = self._store.word("copied_to")
        if copied_to is None:
            self._copy(base.number)
            if self._is_stopping():
                return False
            copied_to = json.dumps(self._stream.current().plain())
            self._store.say("copied_to", copied_to)
        ready_at = now()
        end = Offset.parse(json.loads(copied_to))
        if not self._steps.go(self._store.end_of(self._store.last), end):
            return False
        self._store.set_ready(base.number, self._store.last, ready_at)
        write_views(self._store)
        return True

    def _copy(self, base: int) -> None:
        eras = {era.shard: era.number for era in self._store.eras()}
        servers = servers_at(self._request, self._store.end_of(0))
        left_out = self._stream.left_out()
        for table, why in left_out.items():
            self._listener.said(f"{table} is left out: {why}")
        tables = {
            eras[shard]: plan_base(self._store, base, eras[shard], server, self._request, left_out)
            for shard, server in servers.items()
        }
        shards = {number: shard for shard, number in eras.items()}
        for rows in copy_base(self._spark, self._store, base, shards, tables):
            self._copied += rows
            self._listener.copied(rows)
            if self._is_stopping():
                return

    # Events

    def _commit(self, before: Offset, after: Offset) -> None:
        known = self._store.eras()
        number = self._store.last + 1
        context = self._spark.sparkContext
        parts = self._stream.parts(before, after, context.defaultParallelism)
        files: list[EventFile] = []
        if parts:
            eras = {shard: era.number for shard, era in current(known).items()}
            writing = WritingEvents(
                str(self._store.staged),
                number,
                parts,
                eras,
                databases(self._request),
                self._store.reached(),
            )
            # Secrets travel inside the function, over the wire; elements of a collection pass through a file.
            files = context.parallelize(range(len(parts)), len(parts)).flatMap(writing).collect()
        new = self._keep_definitions(files)
        eras_begun = next_eras(known, before.marks, after.marks, number)
        self._store.commit(after, files, eras_begun)
        self._store.publish()
        tables = {file.table for file in files}
        if new or eras_begun or not tables <= self._shown:
            self._shown |= tables
            write_views(self._store)
        events = sum(file.rows for file in files)
        self._events += events
        self._listener.recorded(events)

    def _see(self, at: int) -> None:
        """The log is read to its end as it was then: a time before that is a point of it, though nothing happened."""
        if time.monotonic() - self._seen_at > _SEEN_SECONDS:
            self._store.say("seen_at", str(at))
            self._seen_at = time.monotonic()

    # Definitions

    def _last_definitions(self) -> dict[str, Definition]:
        """The last definition of each table that the log knows."""
        base = self._store.bases()[-1]
        ids = {one.table: one.schema_id for one in self._store.base_tables(base.number)}
        for table in self._store.tables():
            if (last := self._store.latest(table)) is not None:
                ids[table] = last
        return {table: self._store.definition(schema_id) for table, schema_id in ids.items()}

    def _keep_definitions(self, files: Sequence[EventFile]) -> bool:
        """Beside the log, before its events refer to them; whether there are new ones."""
        is_new = False
        for table, schema_id in dict.fromkeys(
            (f.table, one) for f in files for one in f.schema_ids
        ):
            last = self._known.get(table)
            if last is not None and last.schema_id == schema_id:
                continue
            definition = self._definitions.find(schema_id)
            self._store.keep(definition)
            if last is not None:
                self._note_gap(table, last, definition)
            self._known[table] = definition
            is_new = True
        return is_new

    def _note_gap(self, table: str, before: Definition, after: Definition) -> None:
        """Columns that the source has filled by itself, in rows that it did not log."""
        names = {name.lower() for name in before.names}
        added = [name for name in after.names if name.lower() not in names]
        filled = [name for name in added if not self._is_empty_at_first(table, name)]
        if filled:
            self._store.note_gap(table, after.schema_id, filled)
            self._listener.said(
                f"{table} got the column {filled[0]} with a value in every row, which no log tells: rows that do not"
                " change from now on cannot be restored after this; begin a log anew"
            )

    def _is_empty_at_first(self, table: str, name: str) -> bool:
        """Whether a column is NULL in every row that was there before it."""
        server = self._request.keyspace().serving[0].servers[0]
        with connect(parse_endpoint(server)) as session:
            source = cast(Introspects, session)
            found = source.find(table)
            described = source.describe(found) if found else None
        column = described.column(name) if described else None
        if described is None or column is None:
            return False
        return column.nullable and not column.generated and column.name not in described.defaulted
