"""A target: SQLite in memory, with the real ledger in it, two tables, and a log of what was written.

A transaction is one step. That is no simplification: each one changes its line of the ledger first, and so
waits for whoever holds that line.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from truecopy.engines.protocols import Statement
from truecopy.transfer.ledger import TABLES, Ledger

MARK = "ours"
ITEM, EVENT = "item", "event"


class Dialect:
    placeholder = "?"
    lines_as = ""


@dataclass(frozen=True)
class Logged:
    """A row that was written, or deleted where it has no value."""

    number: int
    key: int | None
    value: int | None
    mark: str | None


class Target:
    """What a session of an engine is to the ledger, and the rows beside it."""

    dialect = Dialect()

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.execute("CREATE TABLE item (k INTEGER PRIMARY KEY, v INTEGER NOT NULL)")
        self._connection.execute("CREATE TABLE event (v INTEGER NOT NULL)")
        self._connection.execute(
            "CREATE TABLE log (n INTEGER PRIMARY KEY, k INTEGER, v INTEGER, mark TEXT)"
        )
        Ledger(self, "").create()

    def clear(self) -> None:
        for table in (ITEM, EVENT, "log", *TABLES):
            self._connection.execute(f"DELETE FROM {table}")

    def close(self) -> None:
        self._connection.close()

    # The protocol that the ledger asks for

    def fetch(self, statement: Statement) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement.sql, statement.values).fetchall()

    def execute(self, statement: Statement) -> int:
        return self._connection.execute(statement.sql, statement.values).rowcount

    def begin(self) -> None:
        self._connection.execute("BEGIN")

    def commit(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")

    def rollback(self) -> None:
        self._connection.execute("ROLLBACK")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()

    # Rows; the log has each of them, and with the transaction

    def insert(self, key: int, value: int, mark: str | None, *, over: bool = False) -> None:
        how = "OR REPLACE " if over else ""
        self._connection.execute(f"INSERT {how}INTO item VALUES (?, ?)", (key, value))
        self._note(key, value, mark)

    def delete(self, key: int, mark: str | None) -> None:
        if self._connection.execute("DELETE FROM item WHERE k = ?", (key,)).rowcount:
            self._note(key, None, mark)

    def append(self, value: int, mark: str | None) -> None:
        self._connection.execute("INSERT INTO event VALUES (?)", (value,))
        self._note(None, value, mark)

    def _note(self, *written: object) -> None:
        self._connection.execute("INSERT INTO log (k, v, mark) VALUES (?, ?, ?)", written)

    def log(self, after: int = 0, most: int = -1) -> list[Logged]:
        found = self._connection.execute(
            "SELECT * FROM log WHERE n > ? ORDER BY n LIMIT ?", (after, most)
        )
        return [Logged(*row) for row in found]

    def row(self, key: int) -> int | None:
        found = self._connection.execute("SELECT v FROM item WHERE k = ?", (key,)).fetchone()
        return found[0] if found else None

    def rows(self, low: int, high: int) -> dict[int, int]:
        found = self._connection.execute(
            "SELECT k, v FROM item WHERE k >= ? AND k < ?", (low, high)
        )
        return dict(found.fetchall())

    def events(self) -> list[int]:
        return [v for (v,) in self._connection.execute("SELECT v FROM event ORDER BY v")]
