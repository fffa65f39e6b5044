"""The memory of a lake: the lines of tasks, the steps that are decided, and who writes to which table.

A lake has no transactions over several files, so this file (SQLite, beside the tables) decides. A
transaction that writes rows goes through these states, and a process may end between any two of them:

1. *Lines*. Its statements about lines of the task run, and are rolled back: they only show that the
   transaction would be right. Ended here: nothing happened.
2. *Staged*. Its rows are files that no reader looks at. Many processes do that at once. Ended here: the
   files are left over, and removed after a day.
3. *Decided*. Under the locks of its tables, the statements run again and must change what they changed
   before: an attempt that was overtaken, or a driver that was replaced, changes another number of lines and
   is refused. Lines and steps, one for each table, are committed here together. This is the commit.
   Ended before it: nothing happened. Ended after it: the steps are found by whoever writes next.
4. *Published*. Each step becomes visible in its table, at once and once: it has a number, and a table tells
   whether it has that number. Then the step is forgotten. Ended in between: it is published again, which
   changes nothing.

Locks are those of the operating system: they end with their process. A process that was stopped while it
holds one is waited for, and then reported. On a cluster, the folder must be of a file system whose locks
hold between machines.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from truecopy.engines.lake_tables import OWN_FOLDER
from truecopy.engines.protocols import Statement
from truecopy.model.errors import CannotFinish

APPEND, CHANGE = "append", "change"
"""Rows that are new, and rows that take the places of others."""

_WAIT_SECONDS = 60.0
_PAUSE_SECONDS = 0.02
_LEFT_OVER_SECONDS = 86_400
_OWN = ("truecopy_lake", "truecopy_step")
_CREATE = (
    "CREATE TABLE IF NOT EXISTS truecopy_lake (id TEXT NOT NULL, number INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS truecopy_step (
        number INTEGER NOT NULL, lake_table TEXT NOT NULL, step TEXT NOT NULL, PRIMARY KEY (number, lake_table))""",
)

Note = Sequence[Mapping[str, Any]]
"""The lines that changed together with rows: what a table keeps of its progress."""


@dataclass(frozen=True)
class Step:
    """What a transaction does to one table.

    Attributes:
        staged: The file with its rows; empty where there are none.
        kind: `append`, or `change`.
        emptied: Whether all rows that were there before go.
        note: The lines that changed with it.
        number: Of the decision; larger than those of all steps before it. 0 while it is not decided.
        lake: Who has decided it: numbers of another ledger say nothing.
    """

    table: str
    staged: str
    kind: str
    emptied: bool = False
    note: tuple[Mapping[str, Any], ...] = ()
    number: int = 0
    lake: str = ""


Publish = Callable[[Step], None]


class LakeLedger:
    """The ledger of one folder, through one connection; used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / OWN_FOLDER
        self._file = self._home / "ledger.db"
        self._connection: sqlite3.Connection | None = None
        self._is_made = False
        self._told: set[str] = set()

    @property
    def staged(self) -> Path:
        """Where files are that are not published yet."""
        folder = self._home / "staged"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._is_made, self._told = False, set()

    # Lines

    def tables(self) -> set[str]:
        """Its tables; none where no task was ever run."""
        if not self._file.exists():
            return set()
        rows = self._run("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {name for (name,) in rows if name.startswith("truecopy_")} - set(_OWN)

    def begin(self) -> None:
        """Nobody else writes lines until the end; a look makes no file where there is none."""
        if self._file.exists():
            self._begin()

    def execute(self, statement: Statement) -> int:
        if not self._is_open():
            self._begin()
        return max(self._run(statement.sql, statement.values).rowcount, 0)

    def fetch(self, statement: Statement) -> list[tuple[Any, ...]]:
        if not self._file.exists():
            raise CannotFinish(f"{self._file} is not there: no task has written to this lake")
        return self._run(statement.sql, statement.values).fetchall()

    def commit(self) -> None:
        if self._is_open():
            self._run("COMMIT")

    def rollback(self) -> None:
        if self._is_open():
            self._run("ROLLBACK")

    def note(self) -> tuple[Mapping[str, Any], ...]:
        """The lines that the open transaction has changed."""
        if not self._is_open():
            return ()
        rows = self._run("SELECT line, columns FROM temp.said ORDER BY rowid").fetchall()
        return tuple({"line": line, **json.loads(columns)} for line, columns in rows)

    def next_number(self) -> int:
        """A number larger than all before it, outside of any transaction."""
        self._begin()
        number = self._count()
        self._run("COMMIT")
        return number

    # Steps

    @contextmanager
    def locked(self, tables: Sequence[str]) -> Iterator[None]:
        """Nobody else writes to these tables in the block; taken in one order, so that nobody waits in a circle."""
        self._make()
        with ExitStack() as stack:
            for table in sorted(tables):
                if not stack.enter_context(self._lock(table, _WAIT_SECONDS)):
                    raise CannotFinish(
                        f"another process has been writing to {table} in {self._home.parent} for {_WAIT_SECONDS:.0f} s:"
                        " let it go on, or end it, and run the task again"
                    )
            yield

    def decide(self, said: Sequence[tuple[Statement, int]], steps: Sequence[Step]) -> list[Step]:
        """Lines and steps together, if the lines are still as they were; else nothing at all."""
        self._begin()
        try:
            for statement, changed in said:
                if self.execute(statement) != changed:
                    raise CannotFinish(
                        "another attempt has moved on meanwhile: nothing of this one was written"
                    )
            ((lake,),) = self._run("SELECT id FROM truecopy_lake").fetchall()
            number = self._count()
            decided = [Step(**{**asdict(one), "number": number, "lake": lake}) for one in steps]
            for one in decided:
                self._run(
                    "INSERT INTO truecopy_step (number, lake_table, step) VALUES (?, ?, ?)",
                    (number, one.table, json.dumps(asdict(one))),
                )
        except BaseException:
            self.rollback()
            raise
        self._run("COMMIT")
        return decided

    def undone(self, tables: Sequence[str]) -> list[Step]:
        """Steps that were decided and, as far as is known, not published: under the locks of these tables."""
        rows = self._run("SELECT lake_table, step FROM truecopy_step ORDER BY number").fetchall()
        return [Step(**json.loads(step)) for table, step in rows if table in tables]

    def forget(self, step: Step) -> None:
        """It is published."""
        self._run(
            "DELETE FROM truecopy_step WHERE number = ? AND lake_table = ?",
            (step.number, step.table),
        )

    def finish_others(self, publish: Publish) -> None:
        """Inside a transaction: publishes what processes that have ended had decided.

        Tables that somebody writes to just now are left to them.
        """
        rows = self._run("SELECT DISTINCT lake_table FROM truecopy_step").fetchall()
        for (table,) in rows:
            with self._lock(table, 0.0) as mine:
                for step in self.undone([table]) if mine else ():
                    publish(step)
                    self.forget(step)
        self._clean()

    def _clean(self) -> None:
        """Removes files that were staged by processes which have ended long ago."""
        rows = self._run("SELECT step FROM truecopy_step").fetchall()
        needed = {json.loads(step)["staged"] for (step,) in rows}
        for file in self.staged.iterdir():
            try:
                is_old = time.time() - file.stat().st_mtime > _LEFT_OVER_SECONDS
            except FileNotFoundError:  # published meanwhile
                continue
            if is_old and str(file) not in needed:
                file.unlink(missing_ok=True)

    @contextmanager
    def _lock(self, table: str, patience: float) -> Iterator[bool]:
        folder = self._home / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + patience
        with (folder / sha256(table.encode()).hexdigest()[:16]).open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    if time.monotonic() >= until:
                        yield False
                        return
                    time.sleep(_PAUSE_SECONDS)
                else:
                    yield True
                    return

    # The file

    def _begin(self) -> None:
        """Opens a transaction that nobody else writes beside."""
        self._make()
        self._listen()
        self._run("BEGIN IMMEDIATE")
        self._run("DELETE FROM temp.said")

    def _make(self) -> None:
        """The file, where it is missing."""
        if self._is_made:
            return
        self._home.mkdir(parents=True, exist_ok=True)
        self._run("BEGIN IMMEDIATE")
        for statement in _CREATE:
            self._run(statement)
        if not self._run("SELECT 1 FROM truecopy_lake").fetchall():
            self._run("INSERT INTO truecopy_lake VALUES (?, 0)", (uuid.uuid4().hex,))
        self._run("COMMIT")
        self._is_made = True

    def _count(self) -> int:
        self._run("UPDATE truecopy_lake SET number = number + 1")
        ((number,),) = self._run("SELECT number FROM truecopy_lake").fetchall()
        return int(number)

    def _listen(self) -> None:
        """Has SQLite remember which lines a transaction changes; tables that it makes itself are too young."""
        new = self.tables() - self._told
        for table in sorted(new):
            columns = [row[1] for row in self._run(f"PRAGMA table_info({table})").fetchall()]
            pairs = ", ".join(f"'{column}', NEW.{column}" for column in columns)
            for event in ("INSERT", "UPDATE"):
                self._run(
                    f"CREATE TEMP TRIGGER said_{event}_{table} AFTER {event} ON main.{table} BEGIN"
                    f" INSERT INTO said VALUES ('{table}', json_object({pairs})); END"
                )
        self._told |= new

    def _is_open(self) -> bool:
        return self._connection is not None and self._connection.in_transaction

    def _run(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(
                    self._file, _WAIT_SECONDS, isolation_level=None, check_same_thread=False
                )
                self._connection.execute("CREATE TEMP TABLE said (line TEXT, columns TEXT)")
            return self._connection.execute(sql, values)
        except sqlite3.Error as error:
            raise CannotFinish(f"{self._file}: {error}") from None
