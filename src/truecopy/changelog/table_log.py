"""A change log as a table of a database: `truecopy_changes`, with its progress in the same transactions.

A batch is one transaction of the target. It first moves the log's line, and only from where the driver saw it; a
task that is tried again, or that was overtaken, finds the line elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import duckdb
import pyarrow as pa

from truecopy.changelog.events import without_known
from truecopy.changelog.loading import RowTarget, find_or_make, row_target
from truecopy.changelog.record import Listener, RecordReport, open_stream
from truecopy.changelog.stepping import CURRENT, NEVER, Steps, identity
from truecopy.engines import pool
from truecopy.engines.lines import Lines
from truecopy.metastore.definitions import Definitions
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Integer, Text, Timestamp, Type
from truecopy.spark import explained
from truecopy.spark import session as spark_session
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.log import Part
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request, parse_point

CHANGES, LOGS, DEFINITIONS = "truecopy_changes", "truecopy_changes_log", "truecopy_definition"
_CREATE = (
    f"""CREATE TABLE IF NOT EXISTS {LOGS} (
        log VARCHAR(64) NOT NULL PRIMARY KEY, source TEXT NOT NULL, batch BIGINT NOT NULL, ends TEXT NOT NULL,
        reached TEXT NOT NULL, epoch BIGINT NOT NULL, stop INTEGER NOT NULL)""",
    f"""CREATE TABLE IF NOT EXISTS {DEFINITIONS} (
        schema_id VARCHAR(64) NOT NULL PRIMARY KEY, document TEXT NOT NULL)""",
)
_NAME = "character varying(190)"
_COLUMNS: tuple[tuple[str, Type, str, str], ...] = (
    ("log", Text(), "character varying(64)", "'{log}'"),
    ("batch", Integer(), "bigint", "'{batch}'"),
    ("shard", Text(), _NAME, "shard"),
    ("commit_order", Integer(), "bigint", "CAST(commit_order AS VARCHAR)"),
    ("seq", Integer(), "integer", "CAST(seq AS VARCHAR)"),
    ("position", Text(), "text", "position"),
    ("txn", Text(), "text", "txn"),
    (
        "committed_at",
        Timestamp(zone=False),
        "timestamp without time zone",
        "strftime(CAST(committed_at AS TIMESTAMP), '%Y-%m-%d %H:%M:%S.%f')",
    ),
    ("kind", Text(), "character varying(20)", "kind"),
    ("table_name", Text(), _NAME, '"table"'),
    ("row_key", Text(), "text", 'CAST(to_json("key") AS VARCHAR)'),
    ("before_row", Text(), "text", 'CAST(to_json("before") AS VARCHAR)'),
    ("after_row", Text(), "text", 'CAST(to_json("after") AS VARCHAR)'),
    ("unchanged", Text(), "text", "CAST(to_json(unchanged) AS VARCHAR)"),
    ("schema_id", Text(), "character varying(64)", "schema_id"),
    ("annotation", Text(), "text", "annotation"),
    ("origin", Text(), "text", "origin"),
)
"""Name, type, declaration (as PostgreSQL has it), and how DuckDB makes its text of an event."""
_KEY = ("log", "batch", "shard", "commit_order", "seq")
_MOST_ROWS = 100_000


@dataclass(frozen=True)
class WritingRows:
    """What an executor needs to write a batch; plain values."""

    log: str
    epoch: int
    batch: int
    end: str
    reached_before: Mapping[str, str]
    reached: str
    parts: Sequence[Part]
    target: RowTarget

    def __call__(self, _: int) -> Iterator[int]:
        """Writes all events in one transaction; gives how many."""
        with pool.lease(self.target.relation.endpoint) as session:
            target: Any = session
            lines = Lines(target)
            rows, schema_ids = 0, set[str]()
            with lines.transaction():
                if not self._advance(lines):
                    return
                for events in self._events():
                    target.load(self.target.relation, self._texts(events))
                    rows += events.num_rows
                    schema_ids |= set(events.column("schema_id").unique().to_pylist())
                self._keep(lines, sorted(filter(None, schema_ids)))
        yield rows

    def _advance(self, lines: Lines) -> bool:
        """Moves the log's line; False where an earlier attempt has done it."""
        moved = lines.execute(
            f"UPDATE {LOGS} SET batch = ?, ends = ?, reached = ? WHERE log = ? AND batch = ? AND epoch = ?",
            *(self.batch, self.end, self.reached, self.log, self.batch - 1, self.epoch),
        )
        if moved:
            return True
        found = lines.fetch(f"SELECT batch, epoch FROM {LOGS} WHERE log = ?", self.log)
        if found and (int(found[0][0]), int(found[0][1])) == (self.batch, self.epoch):
            return False
        raise CannotFinish(f"the log {self.log} is written by somebody newer")

    def _events(self) -> Iterator[pa.Table]:
        waiting, rows = list[pa.RecordBatch](), 0
        for part in self.parts:
            for batch in part.read():
                news = without_known(batch, self.reached_before)
                waiting.append(news)
                rows += news.num_rows
                if rows >= _MOST_ROWS:
                    yield pa.Table.from_batches(waiting)
                    waiting, rows = [], 0
        if rows:
            yield pa.Table.from_batches(waiting)

    def _texts(self, events: pa.Table) -> pa.Table:
        """Events as the texts of the table's columns; arrays as JSON."""
        told = [made.format(log=self.log, batch=self.batch) for *_, made in _COLUMNS]
        columns = ", ".join(f"{told[place]} AS c{i}" for i, place in enumerate(self.target.places))
        with duckdb.connect() as scratch:
            scratch.execute("SET TimeZone = 'UTC'; SET threads = 1")
            scratch.register("events", events)
            found: pa.Table = scratch.execute(f"SELECT {columns} FROM events").to_arrow_table()
        return found.cast(pa.schema([(name, pa.string()) for name in found.column_names]))

    def _keep(self, lines: Lines, schema_ids: Sequence[str]) -> None:
        for schema_id in schema_ids:
            if not lines.fetch(f"SELECT 1 FROM {DEFINITIONS} WHERE schema_id = ?", schema_id):
                document = Definitions().find(schema_id).to_json()
                lines.execute(f"INSERT INTO {DEFINITIONS} VALUES (?, ?)", schema_id, document)


class TableRecording:
    """One run of a log in a table."""

    def __init__(
        self,
        request: Request,
        to: str,
        *,
        log: str = "changes",
        start: str = CURRENT,
        interval: float = 1.0,
        master: str | None = None,
        listener: Listener | None = None,
    ) -> None:
        if not log.replace("_", "").replace("-", "").isalnum() or len(log) > 64:
            raise UsageError(f"{log!r} cannot be the name of a log: use letters, digits, - and _")
        self._request = request
        self._line = LogLine(parse_endpoint(to), log)
        self._start = start
        self._interval = interval
        self._master = master
        self._listener = listener or Listener()
        self._is_told_to_stop = False
        self._events = 0

    def stop(self) -> None:
        """Ends the run after the batch that is being written; may be called by a signal."""
        self._is_told_to_stop = True

    def run(self, until: str = NEVER) -> RecordReport:
        """Goes on where the table stands, to the end asked for."""
        spark = spark_session(self._master)
        with open_stream(self._request, self._master, self._listener.said) as stream:
            limit = stream.current() if until == CURRENT else None
            epoch = self._claim(stream)
            with pool.lease(self._line.endpoint) as session:
                target = row_target(session, _table(), find_or_make(session, _table()))

            def apply(before: Offset, after: Offset) -> None:
                parts = stream.parts(before, after, 1)
                writing = self._line.writing(epoch, parts, after, target)
                # One task, since a batch is one transaction.
                for rows in spark.sparkContext.parallelize([0], 1).flatMap(writing).collect():
                    self._events += rows
                    self._listener.recorded(rows)

            steps = Steps(stream, self._request, self._interval, apply, self._is_stopping)
            with explained():
                steps.go(self._line.read().end, limit)
        return RecordReport(self._events, 0, str(self._line.read().end.token()))

    def _claim(self, stream: KeyspaceStream) -> int:
        """Takes the log over from whoever had it, or begins it; gives the epoch."""
        source = identity(self._request)
        found = self._line.source()
        if found is None:
            at = parse_point(self._start, ("start", CURRENT))
            self._line.begin(source, stream.visible() if at == CURRENT else stream.start(at))
        elif found != source:
            raise UsageError(
                f"the log {self._line.log} in {self._line.endpoint} is of {found}, not of {source}: give this one a"
                " name (--log)"
            )
        return self._line.claim()

    def _is_stopping(self) -> bool:
        return self._is_told_to_stop or self._line.read().is_stopping


@dataclass(frozen=True)
class Standing:
    """How far a log has come: its last batch, where that ended, and the last position of every shard ever read."""

    batch: int
    end: Offset
    reached: Mapping[str, str]
    is_stopping: bool


@dataclass(frozen=True)
class LogLine:
    """The line of a log in its target."""

    endpoint: Endpoint
    log: str

    def source(self) -> str | None:
        """What the log is of; None where there is none. The tables are made."""
        with self._lines() as lines:
            lines.create(_CREATE)
            rows = lines.look(f"SELECT source FROM {LOGS} WHERE log = ?", self.log)
        return rows[0][0] if rows else None

    def begin(self, source: str, start: Offset) -> None:
        reached = {name: mark.position for name, mark in start.marks.items()}
        with self._lines() as lines, lines.transaction():
            lines.execute(
                f"INSERT INTO {LOGS} (log, source, batch, ends, reached, epoch, stop) VALUES (?, ?, 0, ?, ?, 0, 0)",
                *(self.log, source, json.dumps(start.plain()), json.dumps(reached)),
            )

    def claim(self) -> int:
        """A new epoch, with which the writes of others find no line."""
        with self._lines() as lines, lines.transaction():
            lines.execute(f"UPDATE {LOGS} SET epoch = epoch + 1, stop = 0 WHERE log = ?", self.log)
            ((epoch,),) = lines.fetch(f"SELECT epoch FROM {LOGS} WHERE log = ?", self.log)
        return int(epoch)

    def read(self) -> Standing:
        with self._lines() as lines:
            ((batch, ends, reached, stop),) = lines.look(
                f"SELECT batch, ends, reached, stop FROM {LOGS} WHERE log = ?", self.log
            )
        return Standing(
            int(batch), Offset.parse(json.loads(ends)), json.loads(reached), bool(int(stop))
        )

    def writing(
        self, epoch: int, parts: Sequence[Part], after: Offset, target: RowTarget
    ) -> WritingRows:
        """The next batch, for an executor."""
        now = self.read()
        further = {**now.reached, **{name: mark.position for name, mark in after.marks.items()}}
        return WritingRows(
            self.log,
            epoch,
            now.batch + 1,
            json.dumps(after.plain()),
            now.reached,
            json.dumps(further),
            parts,
            target,
        )

    def ask_to_stop(self) -> None:
        """Whoever writes it, wherever, ends after its batch."""
        if self.source() is None:
            raise UsageError(f"{self.endpoint} has no log {self.log}")
        with self._lines() as lines, lines.transaction():
            lines.execute(f"UPDATE {LOGS} SET stop = 1 WHERE log = ?", self.log)

    @contextmanager
    def _lines(self) -> Iterator[Lines]:
        with pool.lease(self.endpoint) as session:
            yield Lines(cast(Any, session))


def _table() -> Table:
    columns = tuple(
        Column(name, kind, native, nullable=name not in _KEY) for name, kind, native, _ in _COLUMNS
    )
    made = Table(TableName(None, CHANGES), columns, keys=(_KEY,), unique=(_KEY,), primary=_KEY)
    return replace(made, engine="postgresql")
