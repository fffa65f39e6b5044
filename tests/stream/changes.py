"""A binary log followed step by step: what was read so far, and the tables that it makes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Self

from tests.servers import Database
from tests.stream.replay import Change, Rows, Tables, differences, read_changes, replay, selected
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.position import contains, parse_position
from truecopy.stream.binlog.log import BinlogLog
from truecopy.stream.log import Mark, Wanted

SHARD = "s"
BATCH = 1 << 20


class Follower:
    """Reads a log to its end again and again, replaying strictly what it reads."""

    def __init__(
        self, database: Database, start: Mark | None = None, *, url: str = "", **wanted: Any
    ) -> None:
        self.database = database
        self.endpoint = parse_endpoint(url or database.url)
        self.log = BinlogLog(self.endpoint, Wanted(SHARD, **wanted))
        self.mark = start or self.log.current()
        self.marks = [self.mark]
        self.changes: list[Change] = []
        self.tables: Tables = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()

    def read(self, parts: int = 1, max_bytes: int = BATCH) -> list[Change]:
        """The changes up to the end of the log as it is now."""
        found: list[Change] = []
        for start, end in self.ranges(max_bytes):
            found += read_changes(self.log, start, end, parts)
        self.changes += found
        return found

    def ranges(self, max_bytes: int = BATCH, seconds: float = 30) -> Iterator[tuple[Mark, Mark]]:
        """The batches up to the end of the log as it is now."""
        end = parse_position(self.log.current().position)
        deadline = time.monotonic() + seconds
        while not contains(parse_position(self.mark.position), end):
            assert time.monotonic() < deadline, f"stays at {self.mark}, and should reach {end}"
            after = self.log.advance(self.mark, max_bytes, 1)
            if after != self.mark:
                yield self.mark, after
                self.mark = after
                self.marks.append(after)

    def replay(self, parts: int = 1, max_bytes: int = BATCH) -> None:
        replay(self.read(parts, max_bytes), self.tables)

    def check(self, *tables: str) -> None:
        """What was replayed is what a SELECT finds."""
        for table in tables:
            mine = self.tables.get(f"{self.database.name}.{table}", {})
            assert differences(mine, selected(self.endpoint_url, table)) == []

    @property
    def endpoint_url(self) -> str:
        return self.database.url

    def rows(self, table: str) -> Rows:
        return self.tables.get(f"{self.database.name}.{table}", {})


@contextmanager
def session(database: Database, *settings: str) -> Iterator[Any]:
    """A function that runs statements on one connection, which tolerates zero dates and the like."""
    with closing(database.connect()) as connection, closing(connection.cursor()) as cursor:

        def run(*statements: str) -> Sequence[Any]:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

        run("SET sql_mode = ''", *settings)
        yield run


def plain(changes: Sequence[Change], *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of changes, `after` and `before` as tuples."""
    return [
        tuple(tuple(v) if isinstance(v := change[name], list) else v for name in columns)
        for change in changes
    ]


def endpoint_of(database: Database) -> Endpoint:
    return parse_endpoint(database.url)
