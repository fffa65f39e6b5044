"""Answers of MariaDB and MySQL, with tokens.

MariaDB says where in its log a snapshot is, so the token of an answer is exact. MySQL says which transactions can
be seen before the query is run, so the answer may show more; how much more, the end of the log says afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from truecopy.client.answer import Answer
from truecopy.client.binlog_watcher import BinlogWatcher, Order, Sight
from truecopy.client.connections import Connections
from truecopy.engines.mysql_asking import MySQLAsking
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


class MySQLServer:
    """See `truecopy.client.server.AnsweringServer`."""

    def __init__(self, endpoint: Endpoint, shard: str) -> None:
        self._endpoint = endpoint
        self._shard = shard
        self._connections = Connections(lambda: MySQLAsking(endpoint))
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
            return Answer(*connection.query(sql, values))

    def query_with_token(self, sql: str, values: Sequence[object]) -> Answer:
        watcher = self._watching()
        with self._connections.one() as connection:
            if connection.is_mariadb:
                return self._at_snapshot(connection, watcher, sql, values)
            return self._after_executed(connection, watcher, sql, values)

    def end(self) -> Position:
        with self._end_lock:
            return parse_position(self._log.current().position)

    def _at_snapshot(
        self, connection: MySQLAsking, watcher: BinlogWatcher, sql: str, values: Sequence[object]
    ) -> Answer:
        try:
            place = _place(connection.open_snapshot())
            sight = watcher.at(place, _WATCHER_SECONDS) if place else Sight()
            if sight.settled is not None and not connection.has_waiting_commits():
                # Nobody waits, so a snapshot that is opened now shows it, if nothing else has come.
                connection.close_snapshot()
                if _place(connection.open_snapshot()) == place:
                    watcher.shows(sight.settled)
                    sight = Sight(sight.settled, is_exact=True)
                else:
                    sight = Sight(sight.token)
            answer = Answer(*connection.query(sql, values))
        finally:
            connection.close_snapshot()
        return self._answer(answer, watcher, sight)

    def _answer(self, answer: Answer, watcher: BinlogWatcher, sight: Sight) -> Answer:
        if sight.token is None:
            return answer
        bound = sight.token if sight.is_exact else self._bound(watcher)
        return Answer(answer.columns, answer.rows, sight.token, bound)

    def _bound(self, watcher: BinlogWatcher) -> EventToken | None:
        """Contains everything that was logged until now, and so everything that was seen."""
        with self._end_lock:
            end = self._server.end().order
        return watcher.after(end, _WATCHER_SECONDS)

    def _after_executed(
        self, connection: MySQLAsking, watcher: BinlogWatcher, sql: str, values: Sequence[object]
    ) -> Answer:
        token = watcher.within(parse_position(connection.executed()))
        answer = Answer(*connection.query(sql, values))
        return self._answer(answer, watcher, Sight(token))

    def _watching(self) -> BinlogWatcher:
        with self._lock:
            if self._watcher is None:
                self._watcher = BinlogWatcher(self._endpoint, self._shard)
                self._watcher.wait_until_ready(_START_SECONDS)
            return self._watcher


def _place(found: tuple[str, int] | None) -> Order | None:
    return (file_number(found[0]), found[1]) if found else None
