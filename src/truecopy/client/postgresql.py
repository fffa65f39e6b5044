"""Answers of PostgreSQL, with tokens: of the last transaction in its log that the query's snapshot admits.

A standby decodes nothing of its own: there the token is what it has replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import psycopg

from truecopy.client.answer import Answer
from truecopy.client.connections import Connections
from truecopy.client.wal_watcher import WalWatcher
from truecopy.engines.postgresql import connection_parameters, explain_refusal
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.model.position import Position, PostgreSQLPosition
from truecopy.model.token import EventToken
from truecopy.stream.postgresql.lsn import parse_lsn
from truecopy.stream.postgresql.visibility import Snapshot

_WATCHER_SECONDS = 0.2
_START_SECONDS = 5.0

# Before the snapshot is taken: what was logged by then can be seen, unless it is under way.
_BEFORE = """
SELECT pg_is_in_recovery(),
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text,
    (extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000000)::bigint
"""
_SNAPSHOT = "SELECT pg_current_snapshot()::text"
_END = """
SELECT CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
    ELSE pg_current_wal_insert_lsn() END::text
"""


class PostgreSQLServer:
    """See `truecopy.client.server.AnsweringServer`."""

    def __init__(self, endpoint: Endpoint, shard: str) -> None:
        self._endpoint = endpoint
        self._shard = shard
        self._connections = Connections(self._connect)
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
            return self._run(connection, sql, values)

    def query_with_token(self, sql: str, values: Sequence[object]) -> Answer:
        with self._connections.one() as connection:
            ((is_standby, lsn, at),) = self._run(connection, _BEFORE).rows
            self._run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                ((snapshot,),) = self._run(connection, _SNAPSHOT).rows
                if is_standby:
                    token = self._token(lsn, int(at or 0))
                else:
                    token = self._watching().visible(
                        Snapshot.parse(snapshot), parse_lsn(lsn), _WATCHER_SECONDS
                    )
                # A standby shows a commit a moment before it counts it as replayed: the end is what it has received.
                bound = self._token(self._run(connection, _END).rows[0][0], 0)
                answer = self._run(connection, sql, values)
            finally:
                self._run(connection, "ROLLBACK")
        return Answer(answer.columns, answer.rows, token, bound)

    def end(self) -> Position:
        with self._connections.one() as connection:
            return PostgreSQLPosition(parse_lsn(self._run(connection, _END).rows[0][0]))

    def _token(self, lsn: str | None, at: int) -> EventToken | None:
        return EventToken(at, self._shard, PostgreSQLPosition(parse_lsn(lsn))) if lsn else None

    def _watching(self) -> WalWatcher:
        with self._lock:
            if self._watcher is None:
                self._watcher = WalWatcher(self._endpoint, self._shard)
                self._watcher.wait_until_ready(_START_SECONDS)
            return self._watcher

    def _connect(self) -> Any:
        try:
            return psycopg.connect(**connection_parameters(self._endpoint), autocommit=True)
        except psycopg.Error as error:
            raise explain_refusal(error, self._endpoint) from None

    def _run(self, connection: Any, sql: str, values: Sequence[object] = ()) -> Answer:
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql.encode(), tuple(values) or None)
                if cursor.description is None:
                    return Answer((), [])
                names = tuple(field.name for field in cursor.description)
                return Answer(names, [list(row) for row in cursor.fetchall()])
        except psycopg.Error as error:
            raise self._explained(error) from None

    def _explained(self, error: psycopg.Error) -> TruecopyError:
        line = " ".join(str(error).split())
        kind = UsageError if isinstance(error, psycopg.ProgrammingError) else CannotFinish
        return kind(f"{self._endpoint}: {line}")
