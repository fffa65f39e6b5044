"""Streams of a PostgreSQL database that are gone after the test, with their slots."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, Self

from tests.servers import Database
from truecopy.model.endpoint import parse_endpoint
from truecopy.stream.log import Wanted, open_log
from truecopy.stream.postgresql import PostgreSQLLog, drop


class OpenStream(Protocol):
    """Opens a log of these tables, with these settings beside `slot` and `work`."""

    def __call__(self, *tables: str, keys_only: bool = False, **given: str) -> PostgreSQLLog: ...


class Slots:
    """Opens logs; all are closed and dropped in the end."""

    def __init__(self, db: Database, folder: Path) -> None:
        self._db, self._folder = db, folder
        self._opened: list[tuple[PostgreSQLLog, Wanted]] = []

    def __call__(self, *tables: str, keys_only: bool = False, **given: str) -> PostgreSQLLog:
        wanted = self.wanted(*tables, keys_only=keys_only, **given)
        log = open_log(parse_endpoint(self._db.url), wanted)
        assert isinstance(log, PostgreSQLLog)
        self._opened.append((log, wanted))
        return log

    def wanted(self, *tables: str, keys_only: bool = False, **given: str) -> Wanted:
        given = {"work": str(self._folder / "work"), "slot": f"slot_{self._db.name}", **given}
        return Wanted("s1", tables, keys_only, given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for log, _ in self._opened:
            log.close()
        for _, wanted in self._opened:
            drop(parse_endpoint(self._db.url), wanted)
