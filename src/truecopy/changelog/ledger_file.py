"""The ledger of a folder: a file of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from truecopy.changelog.ledger import CREATE_LEDGER
from truecopy.model.errors import CannotFinish

_WAIT_SECONDS = 60.0
_CREATE_SWAP = """CREATE TABLE IF NOT EXISTS truecopy_log_swap (
    folder TEXT PRIMARY KEY, gone TEXT NOT NULL, fresh TEXT NOT NULL)"""


class LedgerFile:
    """Statements on it (`truecopy.changelog.ledger.Statements`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._connection = sqlite3.connect(
                path, _WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA synchronous = FULL")
            for statement in (*CREATE_LEDGER, _CREATE_SWAP):
                self._connection.execute(statement)
        except sqlite3.Error as error:
            raise CannotFinish(f"{path}: {error}") from None

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    def execute(self, sql: str, *values: object) -> int:
        return self._run(sql, values).rowcount

    def fetch(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._run(sql, values).fetchall()

    def _run(self, sql: str, values: tuple[object, ...]) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except sqlite3.Error as error:
            raise CannotFinish(f"{self._path}: {error}") from None
