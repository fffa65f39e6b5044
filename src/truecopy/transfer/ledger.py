"""What a task keeps in its target: where it started, which chunks are in, how far each part has come.

This is the only truth about progress. Each write transaction changes its own line here, and only where
the line still says what the writer believes: an attempt that was overtaken, or a driver that was
replaced, changes no line, and rolls its rows back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truecopy.engines.lines import Keeps, Lines
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.relation import Chunk

TASKS, CHUNKS, PROGRESS = "truecopy_task", "truecopy_chunk", "truecopy_progress"
SOURCES = "truecopy_source"
TABLES = (TASKS, CHUNKS, PROGRESS, SOURCES)
SNAPSHOT, REPLAY, REPLICATE = "snapshot", "replay", "replicate"
"""The phases of a task."""

_CREATE = (
    f"""CREATE TABLE IF NOT EXISTS {TASKS} (
        task VARCHAR(190) NOT NULL PRIMARY KEY, phase VARCHAR(20) NOT NULL, origin TEXT NOT NULL,
        epoch BIGINT NOT NULL)""",
    f"""CREATE TABLE IF NOT EXISTS {CHUNKS} (
        task VARCHAR(190) NOT NULL, source_table VARCHAR(190) NOT NULL, number INTEGER NOT NULL,
        bounds TEXT NOT NULL, copied BIGINT, position TEXT, PRIMARY KEY (task, source_table, number))""",
    f"""CREATE TABLE IF NOT EXISTS {PROGRESS} (
        task VARCHAR(190) NOT NULL, part VARCHAR(190) NOT NULL, position TEXT NOT NULL,
        committed_at BIGINT NOT NULL, epoch BIGINT NOT NULL, PRIMARY KEY (task, part))""",
    f"""CREATE TABLE IF NOT EXISTS {SOURCES} (
        task VARCHAR(190) NOT NULL, source_table VARCHAR(190) NOT NULL, identity TEXT NOT NULL,
        schema_id VARCHAR(16) NOT NULL, terms TEXT NOT NULL, PRIMARY KEY (task, source_table))""",
)


class Overtaken(CannotFinish):
    """Somebody newer is at work: what this attempt wrote is rolled back."""


def taken_over(what: str) -> Overtaken:
    """Of a task, or a part of one."""
    return Overtaken(f"another run, or a cutover, has taken over {what}: this one steps aside")


def _begun_by_another(task: str) -> CannotFinish:
    return CannotFinish(
        f"another process has begun {task} at the same moment, and runs it: see truecopy status"
    )


@dataclass(frozen=True)
class TaskLine:
    """What the ledger says of a task: its phase, where its snapshot began, and whose turn it is."""

    phase: str
    origin: dict[str, Any]
    epoch: int


@dataclass(frozen=True)
class SourceLine:
    """What the ledger says of a source table.

    Attributes:
        identity: By which the source knows it, whatever it is called; or the position at which a table has got its
            name, where that is the same to the task: it was carried by another name, or somebody says so.
        schema_id: The definition that changes were last applied under, as the metastore knows it.
        terms: What the task said of it last; empty where that is not known any more.
    """

    identity: str
    schema_id: str
    terms: str = ""


@dataclass(frozen=True)
class PlannedChunk:
    """A chunk of a table; `copied` is the number of its rows, or None while it is not in."""

    number: int
    chunk: Chunk
    copied: int | None


@dataclass(frozen=True)
class CopiedSoFar:
    """Chunks of a table, those of them that are in, and their rows."""

    chunks: int
    chunks_copied: int
    rows: int


class Ledger:
    """The lines of one task, through one session."""

    def __init__(self, session: Keeps, task: str) -> None:
        self._lines = Lines(session)
        self._task = task

    def create(self) -> None:
        self._lines.create(_CREATE)

    def claim(
        self,
        origin: Mapping[str, Any],
        sources: Mapping[str, SourceLine] | None = None,
        left: Iterable[str] = (),
        terms: Mapping[str, str] | None = None,
    ) -> TaskLine:
        """Takes the task over from whoever had it: with a new epoch, the writes of others find no line.

        Args:
            origin: Where changes begin of a task that has no line yet; empty for one that has.
            sources: What the source's tables are. Of a task that begins, those whose changes are held from there on.
            left: Tables that the task goes on without. What happens to them is passed over: they cannot come back.
            terms: What the task says of tables from now on: nor can columns that it goes on without.
        """
        if self.find() is None:
            return self._begin(origin, sources or {})
        if origin:
            raise _begun_by_another(self._task)
        with self._lines.transaction():
            self._lines.execute(f"UPDATE {TASKS} SET epoch = epoch + 1 WHERE task = ?", self._task)
            self._lines.execute(
                f"UPDATE {PROGRESS} SET epoch = (SELECT epoch FROM {TASKS} WHERE {TASKS}.task = ?) WHERE task = ?",
                *(self._task, self._task),
            )
            for table, source in (sources or {}).items():
                self._say_source_anew(table, source)
            for table, said in (terms or {}).items():
                self._say_terms(table, said)
            for table in left:
                self._leave_source(table)
            line = self._line()
        assert line is not None
        return line

    def _begin(self, origin: Mapping[str, Any], sources: Mapping[str, SourceLine]) -> TaskLine:
        epoch = _first_epoch()
        try:
            with self._lines.transaction():
                self._lines.execute(
                    f"INSERT INTO {TASKS} (task, phase, origin, epoch) VALUES (?, ?, ?, ?)",
                    *(self._task, SNAPSHOT, json.dumps(origin), epoch),
                )
                self._lines.execute(f"DELETE FROM {SOURCES} WHERE task = ?", self._task)
                for table, line in sources.items():
                    self._say_source(table, line)
        except TruecopyError:
            if self.find() is None:
                raise
            raise _begun_by_another(self._task) from None
        return TaskLine(SNAPSHOT, dict(origin), epoch)

    def find(self) -> TaskLine | None:
        with self._lines.transaction():
            return self._line()

    def _line(self) -> TaskLine | None:
        rows = self._lines.fetch(
            f"SELECT phase, origin, epoch FROM {TASKS} WHERE task = ?", self._task
        )
        return TaskLine(rows[0][0], json.loads(rows[0][1]), int(rows[0][2])) if rows else None

    def _hold(self, epoch: int) -> None:
        """Locks the task's line: nobody takes the task over until the transaction ends."""
        if not self._lines.execute(
            f"UPDATE {TASKS} SET phase = phase WHERE task = ? AND epoch = ?", self._task, epoch
        ):
            raise taken_over(self._task)

    def enter(self, phase: str, epoch: int) -> None:
        """Says that the task has come to a phase."""
        with self._lines.transaction():
            if not self._lines.execute(
                f"UPDATE {TASKS} SET phase = ? WHERE task = ? AND epoch = ?",
                phase,
                self._task,
                epoch,
            ):
                raise taken_over(self._task)

    def restart(self, phase: str, origin: Mapping[str, Any], tables: Sequence[str]) -> None:
        """Begins anew at a position where source and target are equal: nothing is left to be copied."""
        with self._lines.transaction():
            changed = self._lines.execute(
                f"UPDATE {TASKS} SET phase = ?, origin = ?, epoch = epoch + 1 WHERE task = ?",
                *(phase, json.dumps(origin), self._task),
            )
            if not changed:
                self._lines.execute(
                    f"INSERT INTO {TASKS} (task, phase, origin, epoch) VALUES (?, ?, ?, ?)",
                    *(self._task, phase, json.dumps(origin), _first_epoch()),
                )
            self._lines.execute(f"DELETE FROM {PROGRESS} WHERE task = ?", self._task)
            self._lines.execute(f"DELETE FROM {CHUNKS} WHERE task = ?", self._task)
            self._lines.execute(f"DELETE FROM {SOURCES} WHERE task = ?", self._task)
            for table in tables:
                self._lines.execute(
                    f"INSERT INTO {CHUNKS} (task, source_table, number, bounds, copied) VALUES (?, ?, 0, ?, 0)",
                    *(self._task, table, json.dumps([None, None])),
                )

    # Chunks

    def plan(self, table: str, chunks: Sequence[Chunk], epoch: int) -> None:
        """Remembers how a table was cut, so that a resumed copy cuts it likewise."""
        with self._lines.transaction():
            self._hold(epoch)
            for number, chunk in enumerate(chunks):
                self._lines.execute(
                    f"INSERT INTO {CHUNKS} (task, source_table, number, bounds) VALUES (?, ?, ?, ?)",
                    *(self._task, table, number, json.dumps([chunk.low, chunk.high])),
                )

    def chunks(self, table: str) -> list[PlannedChunk]:
        rows = self._lines.look(
            f"SELECT number, bounds, copied FROM {CHUNKS} WHERE task = ? AND source_table = ? ORDER BY number",
            *(self._task, table),
        )
        return [
            PlannedChunk(int(number), _chunk(bounds), None if copied is None else int(copied))
            for number, bounds, copied in rows
        ]

    def split(
        self, table: str, number: int, chunks: Sequence[Chunk], epoch: int
    ) -> list[PlannedChunk]:
        """Plans several chunks in the place of one that is not in; none where another attempt has copied it.

        The old line goes in the same step, so an attempt of it that wakes up finds nothing to note.
        """
        with self._lines.transaction():
            gone = self._lines.execute(
                f"DELETE FROM {CHUNKS} WHERE task = ? AND source_table = ? AND number = ? AND copied IS NULL"
                f" AND ? = (SELECT epoch FROM {TASKS} WHERE {TASKS}.task = ?)",
                *(self._task, table, number, epoch, self._task),
            )
            if gone != 1:
                return []
            ((last,),) = self._lines.fetch(
                f"SELECT COALESCE(MAX(number), 0) FROM {CHUNKS} WHERE task = ? AND source_table = ?",
                *(self._task, table),
            )
            # Never the old number again: a late attempt knows its chunk by that.
            planned = [
                PlannedChunk(new, chunk, None)
                for new, chunk in enumerate(chunks, max(int(last), number) + 1)
            ]
            for one in planned:
                self._lines.execute(
                    f"INSERT INTO {CHUNKS} (task, source_table, number, bounds) VALUES (?, ?, ?, ?)",
                    *(self._task, table, one.number, json.dumps([one.chunk.low, one.chunk.high])),
                )
        return planned

    def copied(self) -> dict[str, CopiedSoFar]:
        """How far the copy of each table is."""
        rows = self._lines.look(
            "SELECT source_table, COUNT(*), COUNT(copied), COALESCE(SUM(copied), 0)"
            f" FROM {CHUNKS} WHERE task = ? GROUP BY source_table",
            self._task,
        )
        return {table: CopiedSoFar(*map(int, numbers)) for table, *numbers in rows}

    def tables(self) -> set[str]:
        """The source tables whose copy was planned."""
        rows = self._lines.look(
            f"SELECT DISTINCT source_table FROM {CHUNKS} WHERE task = ?", self._task
        )
        return {table for (table,) in rows}

    def note_copied(
        self, table: str, number: int, rows: int, epoch: int, position: str | None = None
    ) -> None:
        """Inside the chunk's own transaction: the chunk is in. Whoever is late finds it done already.

        Where rows are of a known position, with that: changes up to there are in.
        """
        changed = self._lines.execute(
            f"UPDATE {CHUNKS} SET copied = ?, position = ? WHERE task = ? AND source_table = ? AND number = ?"
            f" AND copied IS NULL AND ? = (SELECT epoch FROM {TASKS} WHERE {TASKS}.task = ?)",
            *(rows, position, self._task, table, number, epoch, self._task),
        )
        if changed != 1:
            raise Overtaken(f"chunk {number} of {table} was copied by another attempt")

    def forget(self, tables: Sequence[str], epoch: int) -> None:
        """Inside a transaction that takes their rows out: the chunks of some tables are not in, after all."""
        self._hold(epoch)
        for table in tables:
            self._lines.execute(
                f"UPDATE {CHUNKS} SET copied = NULL, position = NULL WHERE task = ? AND source_table = ?",
                *(self._task, table),
            )

    def copied_at(self) -> dict[str, str]:
        """The position of each copy that is of one: those of tables without a key, or tied to others."""
        rows = self._lines.look(
            f"SELECT source_table, position FROM {CHUNKS} WHERE task = ? AND position IS NOT NULL",
            self._task,
        )
        return dict(rows)

    # Source tables

    def sources(self) -> dict[str, SourceLine]:
        rows = self._lines.look(
            f"SELECT source_table, identity, schema_id, terms FROM {SOURCES} WHERE task = ?",
            self._task,
        )
        return {table: SourceLine(*line) for table, *line in rows}

    def note_source(self, table: str, line: SourceLine, epoch: int) -> None:
        """Says anew what a source table is."""
        with self._lines.transaction():
            self._hold(epoch)
            self._say_source_anew(table, line)

    def _say_source_anew(self, table: str, line: SourceLine) -> None:
        self._lines.execute(
            f"DELETE FROM {SOURCES} WHERE task = ? AND source_table = ?", self._task, table
        )
        self._say_source(table, line)

    def _say_source(self, table: str, line: SourceLine) -> None:
        self._lines.execute(
            f"INSERT INTO {SOURCES} (task, source_table, identity, schema_id, terms) VALUES (?, ?, ?, ?, ?)",
            *(self._task, table, line.identity, line.schema_id, line.terms),
        )

    def _say_terms(self, table: str, terms: str) -> None:
        self._lines.execute(
            f"UPDATE {SOURCES} SET terms = ? WHERE task = ? AND source_table = ?",
            *(terms, self._task, table),
        )

    def rename_source(self, old: str, new: str, identity: str | None, epoch: int) -> None:
        """A source table has another name; what was copied of it stays copied.

        From now on it is known by `identity`; None where that stays as it was.
        """
        with self._lines.transaction():
            self._hold(epoch)
            if identity is not None:
                self._lines.execute(
                    f"UPDATE {SOURCES} SET identity = ? WHERE task = ? AND source_table = ?",
                    *(identity, self._task, old),
                )
            self._say_terms(old, "")  # its rows go elsewhere, rightly
            for lines in (CHUNKS, SOURCES):
                self._lines.execute(
                    f"UPDATE {lines} SET source_table = ? WHERE task = ? AND source_table = ?",
                    *(new, self._task, old),
                )

    def leave_source(self, table: str, epoch: int) -> None:
        """A source table is gone, and so is what it brought."""
        with self._lines.transaction():
            self._hold(epoch)
            self._leave_source(table)

    def _leave_source(self, table: str) -> None:
        for lines in (CHUNKS, SOURCES):
            self._lines.execute(
                f"DELETE FROM {lines} WHERE task = ? AND source_table = ?", self._task, table
            )

    # Progress

    def progress(self) -> dict[str, tuple[str, int]]:
        """Position and commit time of each part."""
        rows = self._lines.look(
            f"SELECT part, position, committed_at FROM {PROGRESS} WHERE task = ?", self._task
        )
        return {part: (position, int(at)) for part, position, at in rows}

    def open_part(self, part: str, position: str, committed_at: int, epoch: int) -> None:
        """Makes the line of a part that has none, at the position where its changes begin."""
        with self._lines.transaction():
            self._hold(epoch)
            if not self._lines.fetch(
                f"SELECT 1 FROM {PROGRESS} WHERE task = ? AND part = ?", self._task, part
            ):
                self._lines.execute(
                    f"INSERT INTO {PROGRESS} (task, part, position, committed_at, epoch) VALUES (?, ?, ?, ?, ?)",
                    *(self._task, part, position, committed_at, epoch),
                )

    def advance(self, part: str, old: str, new: str, committed_at: int, epoch: int) -> bool:
        """Inside the part's own transaction, and first in it: the line is locked until the rows are in.

        False where an earlier attempt of the same step has done it: its rows are in.
        """
        changed = self._lines.execute(
            f"UPDATE {PROGRESS} SET position = ?, committed_at = ? WHERE task = ? AND part = ?"
            " AND position = ? AND epoch = ?",
            *(new, committed_at, self._task, part, old, epoch),
        )
        if changed == 1:
            return True
        now = self._lines.fetch(
            f"SELECT position, epoch FROM {PROGRESS} WHERE task = ? AND part = ?", self._task, part
        )
        if now and (now[0][0], int(now[0][1])) == (new, epoch):
            return False
        raise taken_over(f"{part} of {self._task}")

    def require_at(self, part: str, position: str, epoch: int) -> None:
        """Inside a transaction: locks the line of a part, which must stand where the writer has put it."""
        if not self._lines.execute(
            f"UPDATE {PROGRESS} SET position = position WHERE task = ? AND part = ? AND position = ? AND epoch = ?",
            *(self._task, part, position, epoch),
        ):
            raise taken_over(f"{part} of {self._task}")

    def settle(
        self, parts: Sequence[tuple[str, str]], position: str, committed_at: int, epoch: int
    ) -> list[str]:
        """Moves the lines of parts that had nothing to do, each from where it is known to stand; gives those moved.

        A part may have been brought further by a task that nobody waited for, since its query was stopped: it is left.
        """
        moved = []
        with self._lines.transaction():
            for part, old in parts:
                if self._lines.execute(
                    f"UPDATE {PROGRESS} SET position = ?, committed_at = ? WHERE task = ? AND part = ?"
                    " AND position = ? AND epoch = ?",
                    *(position, committed_at, self._task, part, old, epoch),
                ):
                    moved.append(part)
                elif not self._lines.execute(
                    f"UPDATE {PROGRESS} SET position = position WHERE task = ? AND part = ? AND epoch = ?",
                    *(self._task, part, epoch),
                ):
                    raise taken_over(self._task)
        return moved


def _first_epoch() -> int:
    """A number that no run had: a task of the same name may have been deleted, and attempts of it be under way yet."""
    return time.time_ns() // 1000


def _chunk(bounds: str) -> Chunk:
    low, high = json.loads(bounds)
    return Chunk(tuple(low) if low is not None else None, tuple(high) if high is not None else None)
