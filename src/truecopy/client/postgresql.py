"""Answers of PostgreSQL, with tokens: of the last transaction in its log that the query's snapshot admits.

A standby decodes nothing of its own: there the token is what it has replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from truecopy.client.answer import Answer
from truecopy.client.connections import Connections
from truecopy.client.wal_watcher import WalWatcher
from truecopy.engines.postgresql_asking import PostgreSQLAsking
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.position import Position, PostgreSQLPosition
from truecopy.model.token import EventToken
from truecopy.stream.postgresql.lsn import parse_lsn
from truecopy.stream.postgresql.visibility import Snapshot

_WATCHER_SECONDS = 0.2
_START_SECONDS = 5.0


class PostgreSQLServer:
    """See `truecopy.client.server.AnsweringServer`."""

    def __init__(self, endpoint: Endpoint, shard: str) -> None:
        self._endpoint = endpoint
        self._shard = shard
        self._connections = Connections(lambda: PostgreSQLAsking(endpoint))
        self._watcher: WalWatcher | None = None
        self._lock = Lock()

    def close(self) -> None:
        self._connections.close()
        with self._lock:
            if self._watcher is not None:
                self._watcher.close()
                self._watcher = None

    def problem(self) -> str:
        return self._watcher.problem if self._watcher is not None else ""

    def query(self, sql: str, values: Sequence[object]) -> Answer:
        with self._connections.one() as connection:
            return Answer(*connection.query(sql, values))

    def query_with_token(self, sql: str, values: Sequence[object]) -> Answer:
        with self._connections.one() as connection:
            before = connection.standing()
            snapshot = connection.open_snapshot()
            try:
                if before.is_standby:
                    token = self._token(before.lsn, before.at)
                else:
                    logged = parse_lsn(before.lsn) if before.lsn else 0
                    seen = Snapshot.parse(snapshot)
                    token = self._watching().visible(seen, logged, _WATCHER_SECONDS)
                bound = self._token(connection.log_end(), 0)
                answer = Answer(*connection.query(sql, values))
            finally:
                connection.close_snapshot()
        return Answer(answer.columns, answer.rows, token, bound)

    def end(self) -> Position:
        with self._connections.one() as connection:
            end = self._token(connection.log_end(), 0)
        if end is None:
            raise CannotFinish(f"{self._endpoint} has received no log yet")
        return end.position

    def _token(self, lsn: str | None, at: int) -> EventToken | None:
        return EventToken(at, self._shard, PostgreSQLPosition(parse_lsn(lsn))) if lsn else None

    def _watching(self) -> WalWatcher:
        with self._lock:
            if self._watcher is None:
                self._watcher = WalWatcher(self._endpoint, self._shard)
                self._watcher.wait_until_ready(_START_SECONDS)
            return self._watcher
