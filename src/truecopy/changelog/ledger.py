"""The ledger of a log: what is committed, and how far the source's log is read by it.

Its lines are the same wherever they are: in SQLite beside the files of a folder, or in the database that a log is
a table of.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from truecopy.changelog.eras import Era
from truecopy.changelog.facts import Base, BaseChunk, BaseTable, EventFile, Trait, bare_name
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.stream.offset import Offset

UNSHOWN = "unshown"
"""The word for the first batch with something in it that the views of readers do not know yet."""
_LOG = "log VARCHAR(64) NOT NULL"
_TABLE = "table_name VARCHAR(190) NOT NULL"
CREATE_LEDGER = (
    f"""CREATE TABLE IF NOT EXISTS truecopy_log_word (
        {_LOG}, name VARCHAR(250) NOT NULL, value TEXT NOT NULL, PRIMARY KEY (log, name))""",
    f"""CREATE TABLE IF NOT EXISTS truecopy_log_batch (
        {_LOG}, number BIGINT NOT NULL, ends TEXT NOT NULL, events BIGINT NOT NULL, PRIMARY KEY (log, number))""",
    f"""CREATE TABLE IF NOT EXISTS truecopy_log_file (
        {_LOG}, name VARCHAR(250) NOT NULL, {_TABLE}, day VARCHAR(40) NOT NULL, first_batch BIGINT NOT NULL,
        last_batch BIGINT NOT NULL, held BIGINT NOT NULL, size BIGINT NOT NULL, left_out INTEGER NOT NULL,
        truncates BIGINT NOT NULL, schema_ids TEXT NOT NULL, staged VARCHAR(80) NOT NULL, PRIMARY KEY (log, name))""",
    f"""CREATE TABLE IF NOT EXISTS truecopy_log_era (
        {_LOG}, number INTEGER NOT NULL, shard VARCHAR(190) NOT NULL, first_batch BIGINT NOT NULL,
        ancestors TEXT NOT NULL, PRIMARY KEY (log, number))""",
    f"""CREATE TABLE IF NOT EXISTS truecopy_log_base (
        {_LOG}, number INTEGER NOT NULL, batch BIGINT NOT NULL, ready BIGINT, ready_at BIGINT NOT NULL,
        PRIMARY KEY (log, number))""",
    f"""CREATE TABLE IF NOT EXISTS truecopy_log_base_table (
        {_LOG}, base INTEGER NOT NULL, era INTEGER NOT NULL, {_TABLE}, schema_id VARCHAR(64) NOT NULL,
        engine VARCHAR(40) NOT NULL, copied_at TEXT, PRIMARY KEY (log, base, era, table_name))""",
    f"""CREATE TABLE IF NOT EXISTS truecopy_log_chunk (
        {_LOG}, base INTEGER NOT NULL, era INTEGER NOT NULL, {_TABLE}, number INTEGER NOT NULL, bounds TEXT NOT NULL,
        held BIGINT, name TEXT NOT NULL, PRIMARY KEY (log, base, era, table_name, number))""",
    f"""CREATE TABLE IF NOT EXISTS truecopy_log_gap (
        {_LOG}, {_TABLE}, schema_id VARCHAR(64) NOT NULL, batch BIGINT NOT NULL, names TEXT NOT NULL,
        PRIMARY KEY (log, table_name, schema_id))""",
)


class Statements(Protocol):
    """Runs statements with `?` for values (`truecopy.engines.lines.Lines` does)."""

    def transaction(self) -> AbstractContextManager[None]: ...
    def execute(self, sql: str, *values: object) -> int: ...
    def fetch(self, sql: str, *values: object) -> list[tuple[Any, ...]]: ...


class Ledger:
    """The lines of one log; used by one thread at a time."""

    def __init__(self, statements: Statements, log: str, *, is_open: bool = False) -> None:
        self._statements = statements
        self._log = log
        self._is_open = is_open

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One for all that is noted in the block, and in blocks inside it."""
        if self._is_open:
            yield
            return
        with self._statements.transaction():
            self._is_open = True
            try:
                yield
            finally:
                self._is_open = False

    # Words

    def word(self, name: str) -> str | None:
        rows = self._all(
            "SELECT value FROM truecopy_log_word WHERE log = ? AND name = ?", self._log, name
        )
        return str(rows[0][0]) if rows else None

    def say(self, name: str, value: str) -> None:
        with self.transaction():
            if self.word(name) is None:
                self._run("INSERT INTO truecopy_log_word VALUES (?, ?, ?)", self._log, name, value)
                return
            self._run(
                "UPDATE truecopy_log_word SET value = ? WHERE log = ? AND name = ?",
                *(value, self._log, name),
            )

    def words(self, prefix: str) -> dict[str, str]:
        """Those whose names begin alike, by the rest of the name."""
        rows = self._all(
            "SELECT name, value FROM truecopy_log_word WHERE log = ? AND name LIKE ?",
            *(self._log, f"{prefix}%"),
        )
        return {str(name).removeprefix(prefix): str(value) for name, value in rows}

    def forget(self, name: str) -> None:
        with self.transaction():
            self._run("DELETE FROM truecopy_log_word WHERE log = ? AND name = ?", self._log, name)

    # How far the log has come

    def begin(
        self, source: str, start: Offset, eras: Sequence[Era], at: int, *, has_base: bool = True
    ) -> None:
        """A new log: nothing is read, from here on."""
        with self.transaction():
            self.say("id", uuid.uuid4().hex)
            self.say("source", source)
            self.say("reached", json.dumps({n: m.position for n, m in start.marks.items()}))
            self._add_batch(0, start, 0)
            self._add_eras(eras)
            if has_base:
                self._add_base(Base(1, 0, None, at))

    @property
    def last(self) -> int:
        """The number of the last batch; -1 of a log that was not begun."""
        rows = self._all("SELECT MAX(number) FROM truecopy_log_batch WHERE log = ?", self._log)
        return int(rows[0][0]) if rows[0][0] is not None else -1

    @property
    def oldest(self) -> int:
        """The number of the first batch that is still known."""
        rows = self._all("SELECT MIN(number) FROM truecopy_log_batch WHERE log = ?", self._log)
        return int(rows[0][0]) if rows[0][0] is not None else 0

    def end_of(self, batch: int) -> Offset:
        """Where the source's log stands after a batch."""
        rows = self._all(
            "SELECT ends FROM truecopy_log_batch WHERE log = ? AND number = ?", self._log, batch
        )
        return Offset.parse(json.loads(rows[0][0]))

    def reached(self) -> dict[str, str]:
        """The last position of every shard that was ever read."""
        found: dict[str, str] = json.loads(self.word("reached") or "{}")
        return found

    def commit(
        self,
        end: Offset,
        files: Sequence[EventFile],
        eras: Sequence[Era],
        *,
        is_news: bool = False,
    ) -> None:
        """The commit of a batch; one without events only moves the end of the last one.

        `is_news` says that the views of readers have to be made anew for it.
        """
        with self.transaction():
            reached = {**self.reached(), **{n: m.position for n, m in end.marks.items()}}
            self.say("reached", json.dumps(reached))
            self._add_eras(eras)
            last = self.last
            if not files and not eras:
                self._run(
                    "UPDATE truecopy_log_batch SET ends = ? WHERE log = ? AND number = ?",
                    *(json.dumps(end.plain()), self._log, last),
                )
                return
            self._add_batch(last + 1, end, sum(file.rows for file in files))
            self.add_files(files)
            if is_news and self.word(UNSHOWN) is None:
                self.say(UNSHOWN, str(last + 1))
            # A batch has one definition of each table: it spans no change of it.
            for table, schema_id in {f.table: one for f in files for one in f.schema_ids}.items():
                self.say(f"definition {table}", schema_id)

    def note_shown(self, batch: int) -> None:
        """The views of readers know everything up to a batch."""
        with self.transaction():
            first = self.word(UNSHOWN)
            if first is not None and int(first) <= batch:
                self.forget(UNSHOWN)

    def latest(self, table: str) -> str | None:
        """The definition of the table's last event."""
        return self.word(f"definition {table}")

    def _add_batch(self, number: int, end: Offset, events: int) -> None:
        self._run(
            "INSERT INTO truecopy_log_batch VALUES (?, ?, ?, ?)",
            *(self._log, number, json.dumps(end.plain()), events),
        )

    def _add_eras(self, eras: Sequence[Era]) -> None:
        for era in eras:
            self._run(
                "INSERT INTO truecopy_log_era VALUES (?, ?, ?, ?, ?)",
                *(self._log, era.number, era.shard, era.first, json.dumps(sorted(era.ancestors))),
            )

    def eras(self) -> list[Era]:
        rows = self._all(
            "SELECT number, shard, first_batch, ancestors FROM truecopy_log_era WHERE log = ? ORDER BY number",
            self._log,
        )
        return [
            Era(int(number), shard, int(first), frozenset(json.loads(old)))
            for number, shard, first, old in rows
        ]

    # Files

    def files(self, table: str | None = None, after: int = -1) -> list[EventFile]:
        """Those with events of a table (of all), of batches after one."""
        of_table, values = (" AND table_name = ?", (table,)) if table is not None else ("", ())
        rows = self._all(
            "SELECT name, table_name, day, first_batch, last_batch, held, size, left_out, truncates, schema_ids, staged"
            f" FROM truecopy_log_file WHERE log = ? AND last_batch > ?{of_table} ORDER BY first_batch, name",
            *(self._log, after, *values),
        )
        return [_event_file(row) for row in rows]

    def traits(self) -> set[Trait]:
        """Those of all events."""
        rows = self._all(
            "SELECT DISTINCT table_name, schema_ids, left_out, CASE WHEN truncates > 0 THEN 1 ELSE 0 END"
            " FROM truecopy_log_file WHERE log = ?",
            self._log,
        )
        return {
            Trait(table, tuple(json.loads(ids)), bool(int(left_out)), bool(int(emptied)))
            for table, ids, left_out, emptied in rows
        }

    def add_files(self, files: Sequence[EventFile]) -> None:
        """Inside a transaction."""
        for one in files:
            self._run(
                "INSERT INTO truecopy_log_file VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *(
                    self._log,
                    one.name,
                    one.table,
                    one.day,
                    one.first,
                    one.last,
                    one.rows,
                    one.bytes,
                ),
                *(int(one.left_out), one.truncates, json.dumps(one.schema_ids), one.staged),
            )

    def tables(self) -> list[str]:
        """Every table that has events or base rows."""
        rows = self._all(
            "SELECT table_name FROM truecopy_log_file WHERE log = ? UNION"
            " SELECT table_name FROM truecopy_log_base_table WHERE log = ? ORDER BY 1",
            *(self._log, self._log),
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

    # Bases

    def bases(self) -> list[Base]:
        rows = self._all(
            "SELECT number, batch, ready, ready_at FROM truecopy_log_base WHERE log = ? ORDER BY number",
            self._log,
        )
        return [
            Base(int(number), int(batch), None if ready is None else int(ready), int(at))
            for number, batch, ready, at in rows
        ]

    def set_ready(self, base: int, batch: int, at: int) -> None:
        with self.transaction():
            self._run(
                "UPDATE truecopy_log_base SET ready = ?, ready_at = ? WHERE log = ? AND number = ?",
                *(batch, at, self._log, base),
            )

    def base_tables(self, base: int) -> list[BaseTable]:
        rows = self._all(
            "SELECT era, table_name, schema_id, engine, copied_at FROM truecopy_log_base_table"
            " WHERE log = ? AND base = ? ORDER BY era, table_name",
            *(self._log, base),
        )
        return [BaseTable(int(era), *rest) for era, *rest in rows]

    def plan_table(self, base: int, table: BaseTable, chunks: Sequence[BaseChunk]) -> None:
        """Notes how a table is cut, so that a copy that is resumed cuts it likewise."""
        with self.transaction():
            self._add_base_tables(base, [table])
            self._add_chunks(base, chunks)

    def chunks(self, base: int, table: str | None = None) -> list[BaseChunk]:
        of_table, values = (" AND table_name = ?", (table,)) if table is not None else ("", ())
        rows = self._all(
            "SELECT era, table_name, number, bounds, held, name FROM truecopy_log_chunk"
            f" WHERE log = ? AND base = ?{of_table} ORDER BY table_name, era, number",
            *(self._log, base, *values),
        )
        return [
            BaseChunk(int(era), name, int(at), bounds, None if held is None else int(held), path)
            for era, name, at, bounds, held, path in rows
        ]

    def note_chunk(self, base: int, chunk: BaseChunk, rows: int, position: str | None) -> bool:
        """A chunk is in; False where it was before."""
        with self.transaction():
            place = self._log, base, chunk.era, chunk.table
            is_news = self._run(
                "UPDATE truecopy_log_chunk SET held = ? WHERE log = ? AND base = ? AND era = ? AND table_name = ?"
                " AND number = ? AND held IS NULL",
                *(rows, *place, chunk.number),
            )
            if is_news and position is not None:
                self._run(
                    "UPDATE truecopy_log_base_table SET copied_at = ? WHERE log = ? AND base = ? AND era = ?"
                    " AND table_name = ?",
                    *(position, *place),
                )
        return bool(is_news)

    def move_base(
        self, old: int, new: Base, tables: Sequence[BaseTable], chunks: Sequence[BaseChunk]
    ) -> list[str]:
        """The commit of a base that takes the place of an older one, and of all events in it; gives their files."""
        with self.transaction():
            rows = self._all(
                "SELECT name FROM truecopy_log_file WHERE log = ? AND last_batch <= ?",
                *(self._log, new.batch),
            )
            self._add_base(new)
            self._add_base_tables(new.number, tables)
            self._add_chunks(new.number, chunks)
            if not self._run(
                "DELETE FROM truecopy_log_base WHERE log = ? AND number = ?", self._log, old
            ):
                raise CannotFinish("another process has moved the base of the log forward")
            for name, column, bound in (
                ("base_table", "base =", old),
                ("chunk", "base =", old),
                ("file", "last_batch <=", new.batch),
                ("batch", "number <", new.batch),
                ("gap", "batch <=", new.batch),
            ):
                self._run(
                    f"DELETE FROM truecopy_log_{name} WHERE log = ? AND {column} ?",
                    self._log,
                    bound,
                )
        return [name for (name,) in rows]

    def _add_base(self, base: Base) -> None:
        self._run(
            "INSERT INTO truecopy_log_base VALUES (?, ?, ?, ?, ?)",
            *(self._log, base.number, base.batch, base.ready, base.ready_at),
        )

    def _add_base_tables(self, base: int, tables: Sequence[BaseTable]) -> None:
        for one in tables:
            self._run(
                "INSERT INTO truecopy_log_base_table VALUES (?, ?, ?, ?, ?, ?, ?)",
                *(self._log, base, one.era, one.table, one.schema_id, one.engine, one.position),
            )

    def _add_chunks(self, base: int, chunks: Sequence[BaseChunk]) -> None:
        for one in chunks:
            self._run(
                "INSERT INTO truecopy_log_chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                *(self._log, base, one.era, one.table, one.number, one.bounds, one.rows, one.name),
            )

    # Gaps

    def note_gap(self, table: str, schema_id: str, columns: Sequence[str]) -> None:
        """From the next batch on, the log does not know these columns in rows that do not change."""
        with self.transaction():
            if schema_id not in self.gaps(table):
                self._run(
                    "INSERT INTO truecopy_log_gap VALUES (?, ?, ?, ?, ?)",
                    *(self._log, table, schema_id, self.last + 1, json.dumps(list(columns))),
                )

    def gaps(self, table: str) -> dict[str, list[str]]:
        """By `schema_id`: columns that came with a value of their own for the rows that were there."""
        rows = self._all(
            "SELECT schema_id, names FROM truecopy_log_gap WHERE log = ? AND table_name = ?",
            *(self._log, table),
        )
        return {schema_id: json.loads(names) for schema_id, names in rows}

    # Statements

    def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._statements.fetch(sql, *values)

    def _run(self, sql: str, *values: object) -> int:
        return self._statements.execute(sql, *values)


def _event_file(row: Sequence[Any]) -> EventFile:
    name, table, day, first, last, rows, size, left_out, truncates, schema_ids, staged = row
    return EventFile(
        *(name, table, day),
        *(int(first), int(last), int(rows), int(size)),
        bool(int(left_out)),
        int(truncates),
        tuple(json.loads(schema_ids)),
        staged,
    )
