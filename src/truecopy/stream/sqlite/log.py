"""SQLite's change log, as the driver sees it, and its parts.

Triggers know nothing of transactions, so the log does not either. What is known to be a boundary is
the end of the log in a read snapshot: everything before it was committed. Those ends are remembered as
they are seen, and a range is one or more of them; a backlog from before the stream was opened is one.
`cut=rows` lets a range end anywhere, for backlogs that are too large for that, and then the level is
that of rows.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from truecopy.engines.sqlite import explain, file_of, open_file
from truecopy.engines.sqlite_dialect import text_function
from truecopy.metastore.definitions import Definitions
from truecopy.model import change
from truecopy.model.change import Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.stream.log import Lag, Level, LogGone, Mark, Part, Wanted
from truecopy.stream.rows import ChangeRows
from truecopy.stream.sqlite.install import (
    DEFINITION,
    STATE,
    chosen,
    fits,
    install,
    is_installed,
    let_go,
    reader,
    virtual_tables,
)
from truecopy.stream.sqlite.triggers import (
    CANDIDATE,
    CAUGHT_UP,
    DELETED,
    GAP,
    INSERTED,
    LOG,
    PARTIAL,
    START,
    TRUNCATED,
    UPDATED,
)

_KINDS = {
    INSERTED: change.INSERT,
    UPDATED: change.UPDATE,
    CAUGHT_UP: change.UPDATE,
    DELETED: change.DELETE,
    TRUNCATED: change.TRUNCATE,
    GAP: change.DROP,
}
_HEAD = "sequence, at, total, definition, kind, annotation"
_HEAD_WIDTH = 6
_CHUNK_BYTES = 4 << 20
_POLL_SECONDS = 0.02
_RELEASE_ROWS = 500
_RELEASE_PATIENCE = 1.0
_ENDS_KEPT = 4096
_LONGEST_TRANSACTION = 60


@dataclass(frozen=True, order=True)
class _Place:
    """A row of the log, for the boundary after it."""

    sequence: int
    total: int
    at: int

    def mark(self) -> Mark:
        return Mark(str(self.sequence), str(self.sequence), self.at, self.total)


class SQLiteLog:
    """The log that triggers write; the first question that needs it installs it."""

    driver_local = True
    """The file is one of this machine: executors elsewhere cannot read parts of it."""

    def __init__(self, endpoint: Endpoint, wanted: Wanted) -> None:
        self.endpoint = endpoint
        self.level = Level.ROW if wanted.settings.get("cut") == "rows" else Level.TABLE
        self._wanted = wanted
        self._connection = open_file(endpoint, "ro")
        self._definitions: Definitions | None = None
        self._version = -1
        self._checked = 0
        self._ends: list[_Place] = []

    def missing(self) -> list[str]:
        path = file_of(self.endpoint)
        try:
            ready = is_installed(self._connection)
            virtual = virtual_tables(self._connection, self._wanted) if self._wanted.tables else []
        except sqlite3.Error as error:
            return [str(explain(error, self.endpoint))]
        found = [
            f"{name} is a virtual table, which can have no triggers: stream the tables behind it"
            for name in virtual
        ]
        if not ready and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            found.append(
                f"{path} and its folder must be writable: the change log is a table in the file,"
                " written by triggers"
            )
        return found

    @property
    def warnings(self) -> list[str]:
        """What the stream will not show."""
        names = virtual_tables(self._connection, self._wanted)
        return [f"{name} is a virtual table: its changes are not in the stream" for name in names]

    def oldest(self) -> Mark:
        self._refresh()
        return self._bounds()[0].mark()

    def current(self) -> Mark:
        return self._refresh().mark()

    def seek(self, position: str) -> Mark:
        self._refresh()
        sequence = _sequence(position)
        first, last = self._bounds()
        if not first.sequence <= sequence <= last.sequence:
            raise LogGone(
                f"the log of {self.endpoint} reaches from {first.sequence} to {last.sequence}, not to"
                f" {position}: it was released or made anew since; start again from a snapshot"
            )
        found = self._place("sequence <= ? ORDER BY sequence DESC", sequence) or first
        return replace(found.mark(), position=position, place=position)

    def seek_time(self, at: int) -> Mark:
        """A row's time is its statement's: transactions that stay open longer than a minute start earlier.

        `longest_transaction` (seconds) says so where there are such.
        """
        self._refresh()
        first, last = self._bounds()
        if at < first.at:
            raise LogGone(
                f"the log of {self.endpoint} does not reach back to that time; start from a snapshot"
            )
        longest = int(self._wanted.settings.get("longest_transaction", _LONGEST_TRANSACTION))
        after = self._place(
            "at >= ? AND sequence > ? ORDER BY sequence", at - longest * 1_000_000, first.sequence
        )
        if after is None:
            return last.mark()
        found = self._place("sequence < ? ORDER BY sequence DESC", after.sequence)
        return (found or first).mark()

    def advance(self, start: Mark, max_bytes: int, wait: float) -> Mark:
        deadline = time.monotonic() + wait
        sequence = _sequence(start.position)
        while self._refresh().sequence <= sequence:
            if not self._await_commit(deadline):
                return start
        first, last = self._bounds()
        if sequence < first.sequence:
            raise self._gone(start.position)
        stop = self._definition_change(sequence, last)
        if self.level is Level.ROW:
            limit = start.written + max_bytes
            beyond = self._place(
                "sequence > ? AND total > ? ORDER BY sequence", sequence, limit
            ) or _Place(stop.sequence + 1, 0, 0)
            within = self._place("sequence < ? ORDER BY sequence DESC", beyond.sequence)
            end = within if within and within.sequence > sequence else beyond
            return min(end, stop).mark()
        ends = [end for end in self._ends if sequence < end.sequence < stop.sequence] + [stop]
        fitting = [end for end in ends if end.total - start.written <= max_bytes]
        return (fitting[-1] if fitting else ends[0]).mark()

    def split(self, start: Mark, end: Mark, parts: int) -> Sequence[Part]:
        low, high = _sequence(start.position), _sequence(end.position)
        with self._explained():
            definitions = read_definitions(self._connection)
        self._definitions = self._definitions or Definitions()
        self._definitions.remember(definitions.values())
        count = max(1, min(parts, high - low))
        cuts = [low + (high - low) * i // count for i in range(count + 1)]
        return [SQLitePart(self.endpoint, self._wanted, a, b) for a, b in pairwise(cuts) if a < b]

    def lag(self, mark: Mark) -> Lag:
        end = self._refresh()
        waiting = self._place("sequence > ? ORDER BY sequence", _sequence(mark.position))
        if waiting is None:
            return Lag(0, 0.0)
        return Lag(max(0, end.total - mark.written), max(0.0, (_now() - waiting.at) / 1e6))

    def release(self, mark: Mark) -> None:
        """Deletes what nobody needs any more, a little at a time; what a busy file refuses waits."""
        name = reader(self._wanted)
        if name is None:
            return
        sequence = _sequence(mark.position)
        with closing(open_file(self.endpoint, "rw")) as connection:
            connection.execute(f"PRAGMA busy_timeout = {int(_RELEASE_PATIENCE * 1000)}")
            try:
                connection.execute("BEGIN IMMEDIATE")
                # Nothing else is under way now: candidates that are left belong to no statement.
                connection.execute(f"DELETE FROM {CANDIDATE}")
                if self._checked:
                    connection.execute(
                        f"UPDATE {STATE} SET value = MAX(value, ?) WHERE name = 'checked'",
                        (self._checked,),
                    )
                free = let_go(connection, name, sequence)
                connection.execute("COMMIT")
                # The row at the mark stays: it says where the log starts.
                rows = f"SELECT sequence FROM {LOG} WHERE sequence < ? ORDER BY sequence LIMIT {_RELEASE_ROWS}"
                while connection.execute(
                    f"DELETE FROM {LOG} WHERE sequence IN ({rows})"
                    f" AND EXISTS (SELECT 1 FROM {LOG} WHERE sequence >= ?)",
                    (free, free),
                ).rowcount:
                    pass
            except sqlite3.OperationalError as error:
                explained = explain(error, self.endpoint)
                if "busy" not in str(error) and "locked" not in str(error):
                    raise explained from None
        self._ends = [end for end in self._ends if end.sequence >= sequence]

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The end of the log

    def _refresh(self) -> _Place:
        """The end of the log, after seeing to it that its triggers fit the tables."""
        for _ in range(10):
            with self._explained():
                self._connection.execute("BEGIN")
                try:
                    ((version,),) = self._connection.execute("PRAGMA schema_version").fetchall()
                    if version == self._version or fits(self._connection, self._wanted):
                        self._version = version
                        end = self._bounds()[1]
                        self._checked = end.sequence
                        self._remember(end)
                        return end
                finally:
                    self._connection.execute("ROLLBACK")
            install(self.endpoint, self._wanted, self._checked)
        raise CannotFinish(
            f"the tables of {self.endpoint} change faster than triggers can be made: try again later"
        )

    def _remember(self, end: _Place) -> None:
        if not self._ends or end.sequence > self._ends[-1].sequence:
            self._ends.append(end)
        if len(self._ends) > _ENDS_KEPT:
            del self._ends[1:-1:2]

    def _await_commit(self, deadline: float) -> bool:
        """Waits for somebody to commit; False when the time is over."""
        with self._explained():
            ((seen,),) = self._connection.execute("PRAGMA data_version").fetchall()
            while (left := deadline - time.monotonic()) > 0:
                time.sleep(min(_POLL_SECONDS, left))
                ((now,),) = self._connection.execute("PRAGMA data_version").fetchall()
                if now != seen:
                    return True
        return False

    def _definition_change(self, sequence: int, last: _Place) -> _Place:
        """The first place after `sequence` where the definition of a table changes, or the end."""
        with self._explained():
            ((since,),) = self._connection.execute(
                f"SELECT MIN(since) FROM {DEFINITION} WHERE since > ? AND since < ?",
                (sequence, last.sequence),
            ).fetchall()
        if since is None:
            return last
        return self._place("sequence <= ? ORDER BY sequence DESC", since) or last

    def _bounds(self) -> tuple[_Place, _Place]:
        first = self._place("TRUE ORDER BY sequence")
        last = self._place("TRUE ORDER BY sequence DESC")
        if first is None or last is None:
            raise CannotFinish(
                f"the change log of {self.endpoint} was emptied: remove and install it again"
            )
        return first, last

    def _place(self, condition: str, *values: int) -> _Place | None:
        with self._explained():
            rows = self._connection.execute(
                f"SELECT sequence, total, at FROM {LOG} WHERE {condition} LIMIT 1", values
            ).fetchall()
        return _Place(*rows[0]) if rows else None

    def _gone(self, position: str) -> LogGone:
        return LogGone(
            f"the log of {self.endpoint} starts after {position}; start again from a snapshot"
        )

    def _explained(self) -> _Explained:
        return _Explained(self.endpoint)


@dataclass(frozen=True)
class SQLitePart:
    """The rows of the log after `low`, up to `high`."""

    endpoint: Endpoint
    wanted: Wanted
    low: int
    high: int

    def read(self) -> Iterator[pa.RecordBatch]:
        rows = ChangeRows(self.wanted.shard)
        with closing(open_file(self.endpoint, "ro")) as connection:
            with _Explained(self.endpoint):
                definitions = read_definitions(connection)
            decoders = {
                number: _Decoder(definition, self.wanted)
                for number, definition in definitions.items()
                if chosen(self.wanted, definition.table)
            }
            low = self.low
            while chunk := self._chunk(connection, low):
                for row in chunk:
                    if decoder := decoders.get(row[3]):
                        decoder.decode(row, rows)
                    if rows.full:
                        yield rows.take()
                low = chunk[-1][0]
        if rows.rows:
            yield rows.take()

    def _chunk(self, connection: sqlite3.Connection, low: int) -> list[tuple[Any, ...]]:
        """Some rows; read at once and let go, since a reader may keep writers from committing."""
        found: list[tuple[Any, ...]] = []
        with _Explained(self.endpoint):
            connection.execute("BEGIN")
            try:
                ((first,),) = connection.execute(f"SELECT MIN(sequence) FROM {LOG}").fetchall()
                if first is None or first > low:
                    raise LogGone(
                        f"the log of {self.endpoint} was released up to {first}, after {low};"
                        " start again from a snapshot"
                    )
                width = len(connection.execute(f"PRAGMA table_info({LOG})").fetchall())
                values = [f"v{i}" for i in range(width - _HEAD_WIDTH)]
                cursor = connection.execute(
                    f"SELECT {', '.join([_HEAD, *values])} FROM {LOG}"
                    " WHERE sequence > ? AND sequence <= ? ORDER BY sequence LIMIT 8192",
                    (low, self.high),
                )
                with closing(cursor):
                    for row in cursor:
                        found.append(row)
                        if row[2] - found[0][2] > _CHUNK_BYTES:
                            break
            finally:
                connection.execute("ROLLBACK")
        return found


class _Decoder:
    """From a row of the log to a change, by the definition in force when it was written."""

    def __init__(self, definition: Definition, wanted: Wanted) -> None:
        self._definition = definition
        self._keys_only = wanted.keys_only
        self._only_told = wanted.settings.get("alterations") == "told"
        self._texts_of = [text_function(c, c.type) for c in definition.columns]

    def decode(self, row: tuple[Any, ...], rows: ChangeRows) -> None:
        sequence, at, _, _, kind, annotation = row[:_HEAD_WIDTH]
        definition = self._definition
        if kind == START or (self._only_told and kind in (CAUGHT_UP, PARTIAL)):
            return
        if kind in (GAP, PARTIAL) and not self._only_told:
            raise CannotFinish(
                f"changes of {definition.table} before {sequence} are not in the log: the table was rebuilt"
                " or its unique keys changed while nobody watched. Copy it again, or set gaps=resync to"
                " have all its rows logged"
            )
        width = len(definition.columns)
        image = row[_HEAD_WIDTH : _HEAD_WIDTH + width]
        later = row[_HEAD_WIDTH + width : _HEAD_WIDTH + 2 * width] if kind == UPDATED else image
        old = self._texts(image) if kind in (UPDATED, DELETED) else None
        new = self._texts(later) if kind in (INSERTED, UPDATED, CAUGHT_UP) else None
        shown = new if new is not None else old
        key_width = -1
        if shown is not None:
            key = [shown[place] for place in definition.key_places]
            key_width = len(key)
            if None in key:
                raise CannotFinish(
                    f"a row of {definition.table} at {sequence} has NULL in its primary key"
                    f" ({', '.join(definition.key)}), which SQLite allows: declare it NOT NULL, or leave"
                    " the table out"
                )
            rows.keys += key
        if self._keys_only:
            old = new = None
        if old is not None:
            rows.before += old
        if new is not None:
            rows.after += new
        rows.add_run(
            _KINDS[kind],
            definition.table,
            definition.schema_id,
            1,
            0,
            key_width=key_width,
            before_width=-1 if old is None else width,
            after_width=-1 if new is None else width,
            annotation=annotation,
            size=100 + sum(len(text) for text in (*(old or ()), *(new or ())) if text),
        )
        rows.end_transaction(str(sequence), str(sequence), sequence, at)

    def _texts(self, values: Sequence[object]) -> list[str | None]:
        return [text_of(value) for text_of, value in zip(self._texts_of, values, strict=True)]


def read_definitions(connection: sqlite3.Connection) -> dict[int, Definition]:
    """The definitions that the log's rows refer to."""
    rows = connection.execute(f"SELECT id, document FROM {DEFINITION}")
    return {number: Definition.from_json(document) for number, document in rows}


class _Explained:
    """Turns the driver's errors into ours."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, sqlite3.Error):
            raise explain(error, self._endpoint) from None


def _sequence(position: str) -> int:
    if not position.isdecimal():
        raise UsageError(f"not a position of a SQLite log: {position!r}")
    return int(position)


def _now() -> int:
    return time.time_ns() // 1000
