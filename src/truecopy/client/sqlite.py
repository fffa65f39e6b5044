"""Answers of SQLite, with tokens: its log is a table of the same file, so one snapshot shows both."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from truecopy.client.answer import Answer
from truecopy.client.connections import Connections
from truecopy.engines.sqlite import explain, open_file
from truecopy.engines.sqlite_snapshot import CHANGE_LOG
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.position import Position, SequencePosition
from truecopy.model.token import EventToken

_LAST = f"SELECT sequence, at FROM {CHANGE_LOG} ORDER BY sequence DESC LIMIT 1"


class SQLiteServer:
    """See `truecopy.client.server.AnsweringServer`. Tokens need the log, which the first stream installs."""

    def __init__(self, endpoint: Endpoint, shard: str) -> None:
        self._endpoint = endpoint
        self._shard = shard
        self._connections = Connections(lambda: open_file(endpoint, "ro"))

    def close(self) -> None:
        self._connections.close()

    def problem(self) -> str:
        with self._connections.one() as connection:
            there = self._last(connection) is not None
        return "" if there else f"{self._endpoint} has no change log: start a stream of it first"

    def query(self, sql: str, values: Sequence[object]) -> Answer:
        with self._connections.one() as connection:
            return self._run(connection, sql, values)

    def query_with_token(self, sql: str, values: Sequence[object]) -> Answer:
        with self._connections.one() as connection:
            self._run(connection, "BEGIN")
            try:
                token = self._last(connection)
                answer = self._run(connection, sql, values)
            finally:
                self._run(connection, "ROLLBACK")
        return Answer(answer.columns, answer.rows, token, token)

    def end(self) -> Position:
        with self._connections.one() as connection:
            found = self._last(connection)
        if found is None:
            raise CannotFinish(self.problem())
        return found.position

    def _last(self, connection: sqlite3.Connection) -> EventToken | None:
        there = "SELECT 1 FROM sqlite_schema WHERE name = ?"
        if not self._run(connection, there, (CHANGE_LOG,)).rows:
            return None
        rows = self._run(connection, _LAST).rows
        return EventToken(rows[0][1], self._shard, SequencePosition(rows[0][0])) if rows else None

    def _run(
        self, connection: sqlite3.Connection, sql: str, values: Sequence[object] = ()
    ) -> Answer:
        try:
            cursor = connection.execute(sql, tuple(values))
            names = tuple(field[0] for field in cursor.description or ())
            return Answer(names, [list(row) for row in cursor.fetchall()])
        except sqlite3.Error as error:
            raise explain(error, self._endpoint) from None
