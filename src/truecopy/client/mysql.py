"""Answers of MariaDB and MySQL, with tokens.

MariaDB says where in its log a snapshot is, so the token of an answer is exact. MySQL says which transactions can
be seen before the query is run, so the answer may show more; how much more, the end of the log says afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import pymysql
from pymysql.converters import decoders

from truecopy.client.answer import Answer
from truecopy.client.binlog_watcher import BinlogWatcher, Order, Sight
from truecopy.client.connections import Connections
from truecopy.engines.mysql import explain_error, open_connection
from truecopy.model.endpoint import Endpoint
from truecopy.model.position import Position, parse_position
from truecopy.model.token import EventToken
from truecopy.stream.binlog.log import BinlogLog
from truecopy.stream.binlog.place import file_number
from truecopy.stream.binlog.server import Server
from truecopy.stream.log import Wanted

_WATCHER_SECONDS = 0.2
"""How long the watcher may take to get to where the server is."""
_START_SECONDS = 3.0

_SNAPSHOT = (
    "SHOW STATUS WHERE Variable_name IN ('binlog_snapshot_file', 'binlog_snapshot_position')"
)
_WAITING = "SHOW STATUS WHERE Variable_name = 'rpl_semi_sync_master_wait_sessions'"


class MySQLServer:
    """See `truecopy.client.server.AnsweringServer`."""

    def __init__(self, endpoint: Endpoint, shard: str) -> None:
        self._endpoint = endpoint
        self._shard = shard
        self._connections = Connections(self._connect)
        self._watcher: BinlogWatcher | None = None
        self._lock = Lock()
        self._end_lock = Lock()
        self._log = BinlogLog(endpoint, Wanted(shard))
        self._server = Server(endpoint)

    def close(self) -> None:
        self._connections.close()
        with self._lock:
            if self._watcher is not None:
                self._watcher.close()
                self._watcher = None
        with self._end_lock:
            self._log.close()
            self._server.close()

    def problem(self) -> str:
        return self._watcher.problem if self._watcher is not None else ""

    def query(self, sql: str, values: Sequence[object]) -> Answer:
        with self._connections.one() as connection:
            return self._run(connection, sql, values)

    def query_with_token(self, sql: str, values: Sequence[object]) -> Answer:
        watcher = self._watching()
        with self._connections.one() as connection:
            if "mariadb" in connection.server_version.lower():
                return self._at_snapshot(connection, watcher, sql, values)
            return self._after_executed(connection, watcher, sql, values)

    def end(self) -> Position:
        with self._end_lock:
            return parse_position(self._log.current().position)

    def _at_snapshot(
        self, connection: Any, watcher: BinlogWatcher, sql: str, values: Sequence[object]
    ) -> Answer:
        try:
            place = self._open_snapshot(connection)
            sight = watcher.at(place, _WATCHER_SECONDS) if place else Sight()
            if sight.settled is not None and not self._waits(connection):
                # Nobody waits, so a snapshot that is opened now shows it, if nothing else has come.
                self._run(connection, "ROLLBACK")
                if self._open_snapshot(connection) == place:
                    watcher.shows(sight.settled)
                    sight = Sight(sight.settled, is_exact=True)
                else:
                    sight = Sight(sight.token)
            answer = self._run(connection, sql, values)
        finally:
            self._run(connection, "ROLLBACK")
        return self._answer(answer, watcher, sight)

    def _answer(self, answer: Answer, watcher: BinlogWatcher, sight: Sight) -> Answer:
        if sight.token is None:
            return answer
        bound = sight.token if sight.is_exact else self._bound(watcher)
        return Answer(answer.columns, answer.rows, sight.token, bound)

    def _open_snapshot(self, connection: Any) -> Order | None:
        """Where it is in the log; None on a server that writes none."""
        self._run(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        place = {name.lower(): value for name, value in self._run(connection, _SNAPSHOT).rows}
        file = place.get("binlog_snapshot_file")
        return (file_number(file), int(place["binlog_snapshot_position"])) if file else None

    def _waits(self, connection: Any) -> bool:
        return any(int(count) for _, count in self._run(connection, _WAITING).rows)

    def _bound(self, watcher: BinlogWatcher) -> EventToken | None:
        """Contains everything that was logged until now, and so everything that was seen."""
        with self._end_lock:
            end = self._server.end().order
        return watcher.after(end, _WATCHER_SECONDS)

    def _after_executed(
        self, connection: Any, watcher: BinlogWatcher, sql: str, values: Sequence[object]
    ) -> Answer:
        ((executed,),) = self._run(connection, "SELECT @@global.gtid_executed").rows
        token = watcher.within(parse_position(str(executed)))
        answer = self._run(connection, sql, values)
        return self._answer(answer, watcher, Sight(token))

    def _watching(self) -> BinlogWatcher:
        with self._lock:
            if self._watcher is None:
                self._watcher = BinlogWatcher(self._endpoint, self._shard)
                self._watcher.wait_until_ready(_START_SECONDS)
            return self._watcher

    def _connect(self) -> Any:
        connection = open_connection(self._endpoint)
        connection.decoders = decoders  # an application wants values, not texts
        return connection

    def _run(self, connection: Any, sql: str, values: Sequence[object] = ()) -> Answer:
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, tuple(values) or None)
                names = tuple(field[0] for field in cursor.description or ())
                return Answer(names, [list(row) for row in cursor.fetchall()])
        except (pymysql.MySQLError, OSError) as error:
            raise explain_error(error, self._endpoint) from None
