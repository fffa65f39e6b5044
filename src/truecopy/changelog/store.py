"""A change log as a folder: files of events, base snapshots, definitions, and one small database that decides.

    changes/table=orders/day=2026-01-31/…   events, as Parquet
    base/1/table=orders/…                   the rows that were there before the first event
    definitions/….json                      the tables' definitions, by `schema_id`
    views/duckdb.sql, views/spark.sql       "current" and "history", for readers
    _truecopy/log.db                        what is committed, and how far the log has come
    _truecopy/staged/                       files that are not committed yet

A batch of events goes through these states, and a process may end between any two of them:

1. *Staged*. Executors write its files under names of their own. Ended here: nothing happened; the next writer
   removes the files.
2. *Committed*. One transaction of the database notes the files, and how far the source's log is read by them.
   Ended before it: the batch is read again, perhaps cut otherwise. Ended after it: its events are in.
3. *Published*. Each file is renamed to where readers look, whole. Ended in between: whoever opens the log next
   goes on; a file that was renamed already is left where it is.

So whoever lists `changes/` sees committed events only, each once.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from truecopy.changelog.eras import Era
from truecopy.engines.lake_tables import make_durable
from truecopy.model.change import Definition
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.stream.offset import Offset

CHANGES, BASE, DEFINITIONS, VIEWS, OWN = "changes", "base", "definitions", "views", "_truecopy"
NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""Of events whose commit time the source does not tell, as Hive, Spark and DuckDB write it."""

_WAIT_SECONDS = 60.0
_CREATE = """
CREATE TABLE IF NOT EXISTS word (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS batch (number INTEGER PRIMARY KEY, ends TEXT NOT NULL, events INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS file (
    name TEXT PRIMARY KEY, table_name TEXT NOT NULL, day TEXT NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL, left_out INTEGER NOT NULL,
    truncates INTEGER NOT NULL, schema_ids TEXT NOT NULL, staged TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS swap (folder TEXT PRIMARY KEY, gone TEXT NOT NULL, fresh TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS era (number INTEGER PRIMARY KEY, shard TEXT NOT NULL, first INTEGER NOT NULL,
    ancestors TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS base (
    number INTEGER PRIMARY KEY, batch INTEGER NOT NULL, ready INTEGER, ready_at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS base_table (
    base INTEGER NOT NULL, era INTEGER NOT NULL, table_name TEXT NOT NULL, schema_id TEXT NOT NULL,
    engine TEXT NOT NULL, position TEXT, PRIMARY KEY (base, era, table_name));
CREATE TABLE IF NOT EXISTS chunk (
    base INTEGER NOT NULL, era INTEGER NOT NULL, table_name TEXT NOT NULL, number INTEGER NOT NULL,
    bounds TEXT NOT NULL, rows INTEGER, name TEXT NOT NULL, PRIMARY KEY (base, era, table_name, number));
CREATE TABLE IF NOT EXISTS gap (table_name TEXT NOT NULL, schema_id TEXT NOT NULL, batch INTEGER NOT NULL,
    columns TEXT NOT NULL, PRIMARY KEY (table_name, schema_id));
"""


@dataclass(frozen=True)
class EventFile:
    """A file of events of one table and day.

    Attributes:
        name: Below `changes/`.
        first, last: The batches that its events are of.
        left_out: Whether some event leaves out values that did not change.
        truncates: How often the table was emptied.
        staged: Where the file is as long as it is not published; then empty.
    """

    name: str
    table: str
    day: str
    first: int
    last: int
    rows: int
    bytes: int
    left_out: bool
    truncates: int
    schema_ids: tuple[str, ...]
    staged: str = ""


@dataclass(frozen=True)
class Base:
    """A base snapshot: what events with a larger batch than its own are put upon.

    Attributes:
        batch: The last one whose events are in it.
        ready: The batch after which the events have overtaken the copy; None while they have not.
        ready_at: When that was, in microseconds.
    """

    number: int
    batch: int
    ready: int | None
    ready_at: int


@dataclass(frozen=True)
class BaseTable:
    """A table of a base: its definition, whose declarations those are, and the position of a copy without a key."""

    era: int
    table: str
    schema_id: str
    engine: str
    position: str | None


@dataclass(frozen=True)
class BaseChunk:
    """A chunk of a base; `rows` is None while it is not in."""

    era: int
    table: str
    number: int
    bounds: str
    rows: int | None
    name: str


class Store:
    """One log; used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own = folder / OWN
        self._connection = _connect(self._own / "log.db")

    @classmethod
    def make(cls, folder: Path) -> Store:
        """Opens the log of a folder, made where it is missing; other files in it are a reason to stop."""
        if folder.exists() and not (folder / OWN / "log.db").exists():
            strange = [one.name for one in folder.iterdir() if one.name != OWN]
            if strange:
                raise UsageError(
                    f"{folder} holds {strange[0]} and no change log: name a folder for the log alone"
                )
        (folder / OWN / "staged").mkdir(parents=True, exist_ok=True)
        for name in (CHANGES, BASE, DEFINITIONS, VIEWS):
            (folder / name).mkdir(exist_ok=True)
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Opens a log that is there."""
        if not (folder / OWN / "log.db").exists():
            raise UsageError(
                f"there is no change log in {folder}: truecopy changelog start makes one"
            )
        return cls(folder)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def staged(self) -> Path:
        return self._own / "staged"

    # Locks, which end with their process

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One writer at a time; what another one left half done is finished or removed first."""
        with (self._own / "writer.lock").open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CannotFinish(
                    f"{self.folder} is written by process {_said(file)}: truecopy changelog stop ends it"
                ) from None
            _say(file, f"{os.getpid()}")
            self.forget("stop")
            self.publish()
            self._sweep()
            yield

    def is_written(self) -> bool:
        """Whether a writer is at work."""
        with (self._own / "writer.lock").open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    @contextmanager
    def files_held(self) -> Iterator[None]:
        """Nobody else renames files meanwhile."""
        with (self._own / "files.lock").open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # Words

    def word(self, name: str) -> str | None:
        row = self._one("SELECT value FROM word WHERE name = ?", name)
        return row[0] if row else None

    def say(self, name: str, value: str) -> None:
        with self.transaction():
            self._say(name, value)

    def forget(self, name: str) -> None:
        with self.transaction():
            self._run("DELETE FROM word WHERE name = ?", name)

    def _say(self, name: str, value: str) -> None:
        self._run("INSERT OR REPLACE INTO word VALUES (?, ?)", name, value)

    # How far the log has come

    def begin(self, source: str, start: Offset, eras: Sequence[Era], at: int) -> None:
        """A new log: nothing is read, from here on."""
        with self.transaction():
            self._say("id", uuid.uuid4().hex)
            self._say("source", source)
            self._say("reached", json.dumps({n: m.position for n, m in start.marks.items()}))
            self._run("INSERT INTO batch VALUES (0, ?, 0)", json.dumps(start.plain()))
            self._note_eras(eras)
            self._run("INSERT INTO base VALUES (1, 0, NULL, ?)", at)

    @property
    def last(self) -> int:
        """The number of the last batch."""
        row = self._one("SELECT MAX(number) FROM batch")
        return int(row[0]) if row and row[0] is not None else -1

    @property
    def oldest(self) -> int:
        """The number of the first batch that is still known."""
        row = self._one("SELECT MIN(number) FROM batch")
        return int(row[0]) if row and row[0] is not None else 0

    def end_of(self, batch: int) -> Offset:
        """Where the source's log stands after a batch."""
        row = self._one("SELECT ends FROM batch WHERE number = ?", batch)
        assert row is not None
        return Offset.parse(json.loads(row[0]))

    def reached(self) -> dict[str, str]:
        """The last position of every shard that was ever read."""
        found: dict[str, str] = json.loads(self.word("reached") or "{}")
        return found

    def commit(self, end: Offset, files: Sequence[EventFile], eras: Sequence[Era]) -> None:
        """The commit of a batch; one without events only moves the end of the last one."""
        reached = {**self.reached(), **{n: m.position for n, m in end.marks.items()}}
        with self.transaction():
            self._say("reached", json.dumps(reached))
            self._note_eras(eras)
            if not files and not eras:
                self._run(
                    "UPDATE batch SET ends = ? WHERE number = ?", json.dumps(end.plain()), self.last
                )
                return
            events = sum(file.rows for file in files)
            self._run(
                "INSERT INTO batch VALUES (?, ?, ?)", self.last + 1, json.dumps(end.plain()), events
            )
            self._note_files(files)
            for file in files:
                for (
                    schema_id
                ) in file.schema_ids:  # a batch has one of each table: it spans no change of it
                    self._say(f"definition {file.table}", schema_id)

    def latest(self, table: str) -> str | None:
        """The definition of the table's last event."""
        return self.word(f"definition {table}")

    def _note_files(self, files: Sequence[EventFile]) -> None:
        for one in files:
            self._run(
                "INSERT INTO file VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *(
                    one.name,
                    one.table,
                    one.day,
                    one.first,
                    one.last,
                    one.rows,
                    one.bytes,
                    int(one.left_out),
                ),
                *(one.truncates, json.dumps(one.schema_ids), one.staged),
            )

    def _note_eras(self, eras: Sequence[Era]) -> None:
        for era in eras:
            self._run(
                "INSERT INTO era VALUES (?, ?, ?, ?)",
                *(era.number, era.shard, era.first, json.dumps(sorted(era.ancestors))),
            )

    def eras(self) -> list[Era]:
        rows = self._all("SELECT number, shard, first, ancestors FROM era ORDER BY number")
        return [
            Era(number, shard, first, frozenset(json.loads(old)))
            for number, shard, first, old in rows
        ]

    # Files

    def files(self, table: str | None = None, after: int = -1) -> list[EventFile]:
        """Those with events of a table (of all), of batches after one."""
        rows = self._all(
            "SELECT * FROM file WHERE last > ? AND (? IS NULL OR table_name = ?) ORDER BY first, name",
            *(after, table, table),
        )
        return [_event_file(row) for row in rows]

    def tables(self) -> list[str]:
        """Every table that has events or base rows."""
        rows = self._all(
            "SELECT table_name FROM file UNION SELECT table_name FROM base_table ORDER BY 1"
        )
        return [name for (name,) in rows]

    def find_table(self, name: str) -> str:
        """The table that a user means: by its whole name, or without its schema where only one has it."""
        known = self.tables()
        if name in known:
            return name
        found = [table for table in known if bare_name(table) == name]
        if len(found) != 1:
            listed = f"; there are {', '.join(map(bare_name, known))}" if known else ""
            why = f"could be any of {', '.join(found)}" if found else f"is not in the log{listed}"
            raise UsageError(f"the table {name} {why}")
        return found[0]

    def path(self, file: EventFile) -> Path:
        return self.folder / CHANGES / file.name

    def publish(self) -> None:
        """Renames committed files to where readers look, and finishes swaps of folders."""
        with self.files_held():
            self.finish_swaps()
            waiting = self._all("SELECT name, staged FROM file WHERE staged <> ''")
            folders = set()
            for name, staged in waiting:
                final = self.folder / CHANGES / name
                if not final.parent.exists():
                    final.parent.mkdir(parents=True, exist_ok=True)
                    make_durable(final.parent.parent, self.folder / CHANGES)
                try:
                    (self.staged / staged).rename(final)
                except FileNotFoundError:
                    if not final.exists():
                        raise CannotFinish(
                            f"{staged} is gone from {self.staged}, and with it committed events: was it deleted?"
                        ) from None
                folders.add(final.parent)
            make_durable(*folders)
            if waiting:
                with self.transaction():
                    self._run("UPDATE file SET staged = '' WHERE staged <> ''")

    def finish_swaps(self) -> None:
        """See `truecopy.changelog.compact`; the lock of the files is held."""
        from truecopy.changelog.compact import finish_swap  # it builds on this module

        for folder, gone, fresh in self._all("SELECT folder, gone, fresh FROM swap"):
            finish_swap(self, folder, json.loads(gone), fresh)
            with self.transaction():
                self._run("DELETE FROM swap WHERE folder = ?", folder)

    def decide_swap(
        self, folder: str, gone: Sequence[str], fresh: str, files: Sequence[EventFile]
    ) -> None:
        """The commit of a compaction: some files of a folder give way to others."""
        with self.transaction():
            for name in gone:
                self._run("DELETE FROM file WHERE name = ?", name)
            self._note_files(files)
            self._run("INSERT INTO swap VALUES (?, ?, ?)", folder, json.dumps(list(gone)), fresh)

    def _sweep(self) -> None:
        """Removes what a writer left that was ended before its commit."""
        for one in self.staged.glob("*.parquet"):
            one.unlink(missing_ok=True)

    # Bases

    def bases(self) -> list[Base]:
        return [Base(*row) for row in self._all("SELECT * FROM base ORDER BY number")]

    def set_ready(self, base: int, batch: int, at: int) -> None:
        with self.transaction():
            self._run("UPDATE base SET ready = ?, ready_at = ? WHERE number = ?", batch, at, base)

    def base_tables(self, base: int) -> list[BaseTable]:
        rows = self._all(
            "SELECT era, table_name, schema_id, engine, position FROM base_table WHERE base = ?",
            base,
        )
        return [BaseTable(*row) for row in rows]

    def plan_table(self, base: int, table: BaseTable, bounds: Sequence[str]) -> None:
        """Notes how a table is cut, so that a copy that is resumed cuts it likewise."""
        with self.transaction():
            self._run(
                "INSERT INTO base_table VALUES (?, ?, ?, ?, ?, ?)",
                *(base, table.era, table.table, table.schema_id, table.engine, table.position),
            )
            folder = f"{base}/table={partition(table.table)}"
            for number, bound in enumerate(bounds):
                self._run(
                    "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, NULL, ?)",
                    *(
                        base,
                        table.era,
                        table.table,
                        number,
                        bound,
                        f"{folder}/{table.era:04d}-{number:06d}.parquet",
                    ),
                )

    def chunks(self, base: int, table: str | None = None) -> list[BaseChunk]:
        rows = self._all(
            "SELECT era, table_name, number, bounds, rows, name FROM chunk WHERE base = ?"
            " AND (? IS NULL OR table_name = ?) ORDER BY table_name, era, number",
            *(base, table, table),
        )
        return [BaseChunk(*row) for row in rows]

    def note_chunk(self, base: int, chunk: BaseChunk, rows: int, position: str | None) -> None:
        """The file of a chunk is in its place: its name says which one it is, so that it is there once."""
        with self.transaction():
            self._run(
                "UPDATE chunk SET rows = ? WHERE base = ? AND era = ? AND table_name = ? AND number = ?",
                *(rows, base, chunk.era, chunk.table, chunk.number),
            )
            if position is not None:
                self._run(
                    "UPDATE base_table SET position = ? WHERE base = ? AND era = ? AND table_name = ?",
                    *(position, base, chunk.era, chunk.table),
                )

    def base_files(self, base: int, table: str) -> list[Path]:
        return [
            self.folder / BASE / chunk.name
            for chunk in self.chunks(base, table)
            if chunk.rows is not None
        ]

    def move_base(
        self, old: int, new: Base, tables: Sequence[BaseTable], chunks: Sequence[BaseChunk]
    ) -> list[str]:
        """The commit of a base that takes the place of an older one, and of all events in it; gives their files."""
        gone = [row[0] for row in self._all("SELECT name FROM file WHERE last <= ?", new.batch)]
        with self.transaction():
            self._run(
                "INSERT INTO base VALUES (?, ?, ?, ?)",
                new.number,
                new.batch,
                new.ready,
                new.ready_at,
            )
            for table in tables:
                self._run(
                    "INSERT INTO base_table VALUES (?, ?, ?, ?, ?, ?)",
                    *(
                        new.number,
                        table.era,
                        table.table,
                        table.schema_id,
                        table.engine,
                        table.position,
                    ),
                )
            for chunk in chunks:
                self._run(
                    "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?)",
                    *(
                        new.number,
                        chunk.era,
                        chunk.table,
                        chunk.number,
                        chunk.bounds,
                        chunk.rows,
                        chunk.name,
                    ),
                )
            for name in ("base_table", "chunk"):
                self._run(f"DELETE FROM {name} WHERE base = ?", old)
            self._run("DELETE FROM base WHERE number = ?", old)
            self._run("DELETE FROM file WHERE last <= ?", new.batch)
            self._run("DELETE FROM batch WHERE number < ?", new.batch)
            self._run("DELETE FROM gap WHERE batch <= ?", new.batch)
        return gone

    # Definitions

    def keep(self, definition: Definition) -> None:
        """Beside the files, so that they can be read without the source."""
        final = self.folder / DEFINITIONS / f"{definition.schema_id}.json"
        if final.exists():
            return
        unfinished = final.with_suffix(f".{os.getpid()}.new")
        unfinished.write_text(definition.to_json(), encoding="utf-8")
        make_durable(unfinished)
        unfinished.replace(final)
        make_durable(final.parent)

    def definition(self, schema_id: str) -> Definition:
        path = self.folder / DEFINITIONS / f"{schema_id}.json"
        try:
            return Definition.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CannotFinish(f"{path} is gone: rows of that definition cannot be read") from None

    def note_gap(self, table: str, schema_id: str, columns: Sequence[str]) -> None:
        """From the next batch on, the log does not know these columns in rows that do not change."""
        with self.transaction():
            self._run(
                "INSERT OR IGNORE INTO gap VALUES (?, ?, ?, ?)",
                *(table, schema_id, self.last + 1, json.dumps(list(columns))),
            )

    def gaps(self, table: str) -> dict[str, list[str]]:
        """By `schema_id`: columns that came with a value of their own for the rows that were there."""
        rows = self._all("SELECT schema_id, columns FROM gap WHERE table_name = ?", table)
        return {schema_id: json.loads(columns) for schema_id, columns in rows}

    # Statements

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._run("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._run("ROLLBACK")
            raise
        self._run("COMMIT")

    def _one(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._run(sql, *values).fetchone()
        return found

    def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._run(sql, *values).fetchall()

    def _run(self, sql: str, *values: object) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except sqlite3.Error as error:
            raise CannotFinish(f"{self._own / 'log.db'}: {error}") from None


def bare_name(table: str) -> str:
    """A table's name without its schema."""
    return table.rpartition(".")[2]


def partition(value: str) -> str:
    """A value in the name of a folder, as Hive escapes it."""
    return quote(value, safe=" ._-+$@()") or NO_DAY


def event_name(table: str, day: date | None, stem: str) -> str:
    """Where a file of events is, below `changes/`."""
    when = day.isoformat() if day else NO_DAY
    return f"table={partition(table)}/day={when}/{stem}.parquet"


def files_by_folder(files: Sequence[EventFile]) -> Mapping[str, list[EventFile]]:
    """Files by the folder that they are in."""
    found: dict[str, list[EventFile]] = {}
    for file in files:
        found.setdefault(file.name.rpartition("/")[0], []).append(file)
    return found


def _event_file(row: Sequence[Any]) -> EventFile:
    left_out, truncates, schema_ids, staged = row[7:]
    name, table, day, first, last, rows, size = row[:7]
    ids = tuple(json.loads(schema_ids))
    return EventFile(
        name, table, day, first, last, rows, size, bool(left_out), truncates, ids, staged
    )


def _connect(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            path, _WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_CREATE)
    except sqlite3.Error as error:
        raise CannotFinish(f"{path}: {error}") from None
    return connection


def _said(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip() or "unknown"


def _say(file: IO[str], text: str) -> None:
    file.truncate(0)
    file.write(text)
    file.flush()
