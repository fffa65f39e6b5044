"""An eye on the log of one MySQL or MariaDB server: the token of every transaction that it has logged lately."""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from dataclasses import dataclass

from truecopy.engines.mysql import MySQL
from truecopy.engines.mysql_snapshot import executed_set, open_on_mariadb
from truecopy.model.change import ORIGIN_TABLE, Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import TruecopyError
from truecopy.model.position import Position, contains, parse_position
from truecopy.model.table import TableName
from truecopy.model.token import EventToken
from truecopy.model.token import Origin as TokenOrigin
from truecopy.stream.binlog import walk
from truecopy.stream.binlog.logged_table import LoggedTable, Origin
from truecopy.stream.binlog.place import Place, file_number
from truecopy.stream.binlog.server import Server
from truecopy.stream.binlog.table_map import parse_names, parse_table_map
from truecopy.stream.binlog.walk import Walk
from truecopy.stream.binlog.wire import DEFAULT_SERVER_IDS, ConnectionLost, Pieces, dump

RECONNECT_SECONDS = 0.5
_KEPT = 20_000

Order = tuple[int, int]
"""The number of a file of the log, and an offset in it."""


@dataclass(frozen=True)
class Logged:
    """A transaction of the log, by where it ends; `is_shown`: a visibility point, whatever the place says."""

    order: Order
    position: str
    committed_at: int
    origin: Origin | None = None
    is_shown: bool = False

    def token(self, shard: str) -> EventToken:
        position = parse_position(self.position)
        if self.origin is None:
            return EventToken(self.committed_at, shard, position)
        source = TokenOrigin(self.origin.shard, parse_position(self.origin.position))
        return EventToken(self.origin.committed_at, shard, position, source)


class BinlogWatcher:
    """Follows a log from now on, in a thread of its own, until it is closed.

    What it knows before the first transaction comes is a visibility point: its position, without a time. After
    the connection was lost it starts anew from such a point, since a server that crashed may have lost the end of
    its log.
    """

    def __init__(self, endpoint: Endpoint, shard: str) -> None:
        self._endpoint = endpoint
        self._shard = shard
        self._news = threading.Condition()
        self._logged: list[Logged] = []
        self._reached: Order = (0, 0)
        self._shown: Logged | None = None
        self._closed = False
        self._pieces: Pieces | None = None
        self._thread = threading.Thread(target=self._run, name="binlog-watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()
        if self._pieces is not None:
            self._pieces.stop()
        self._thread.join(5)

    def at(self, place: Order, wait: float) -> tuple[EventToken | None, bool]:
        """The last transaction that a snapshot at this place shows, and whether that is known to be the last.

        A file's head is no proof of what was logged before it: the transaction that fills a file is seen only after
        the next one was begun.
        """
        with self._news:
            is_reached = self._wait_for(place, wait)
            if not self._logged:
                return None, False
            at = bisect_right(self._logged, place, key=lambda one: one.order) - 1
            found = self._logged[at] if at >= 0 else None
            if found is None or not (found.is_shown or found.order[0] == place[0]):
                return (self._shown and self._shown.token(self._shard)) or None, False
            if self._shown is None or self._shown.order < found.order:
                self._shown = found
            return found.token(self._shard), is_reached

    def within(self, position: Position) -> EventToken | None:
        """The last transaction that a position contains, where the server says by it what can be seen."""
        with self._news:
            for logged in reversed(self._logged):
                if contains(position, parse_position(logged.position)):
                    return logged.token(self._shard)
        return None

    def after(self, place: Order, wait: float) -> EventToken | None:
        """A token that contains everything up to this place; None where the watcher does not get there in time."""
        with self._news:
            if not self._wait_for(place, wait) or not self._logged:
                return None
            return self._logged[-1].token(self._shard)

    def wait_until_ready(self, wait: float) -> None:
        """Until it knows where it stands, once."""
        with self._news:
            self._news.wait_for(lambda: self._logged or self._closed, wait)

    def _wait_for(self, place: Order, wait: float) -> bool:
        return self._news.wait_for(lambda: self._reached >= place or self._closed, wait)

    def _run(self) -> None:
        while not self._closed:
            try:
                self._follow()
            except (TruecopyError, ValueError, LookupError, struct.error):
                pass  # a server that cannot be watched gives no tokens, and goes on answering
            finally:
                with self._news:
                    self._logged, self._reached, self._shown = [], (0, 0), None
                    self._news.wait_for(lambda: self._closed, RECONNECT_SECONDS)

    def _follow(self) -> None:
        server = Server(self._endpoint)
        try:
            start, place = self._start(server)
            with dump(
                self._endpoint,
                DEFAULT_SERVER_IDS,
                place=place,
                position=parse_position(start.position),
                blocking=True,
            ) as pieces:
                self._pieces = pieces
                walked = Walk(pieces, self._endpoint, start.position, server.name, verify=False)
                fresh = [start]
                pieces.before_waiting = lambda: self._publish(walked, fresh)
                self._watch(walked, fresh)
        finally:
            self._pieces = None
            server.close()

    def _start(self, server: Server) -> tuple[Logged, Place | None]:
        """A visibility point."""
        with MySQL(self._endpoint) as session:
            if not session.is_mariadb:
                return Logged((0, 0), executed_set(session), 0, is_shown=True), None
            found = open_on_mariadb(session)
            session.rollback()
        place = Place(found.file, found.offset, server.name)
        return Logged(place.order, found.position, 0, is_shown=True), place

    def _publish(self, walked: Walk, fresh: list[Logged]) -> None:
        """Everything that has arrived was looked at."""
        if self._closed:
            raise ConnectionLost("closed")
        with self._news:
            self._logged += fresh
            fresh.clear()
            del self._logged[:-_KEPT]
            if walked.file:
                self._reached = file_number(walked.file), walked.offset
            self._reached = max(self._reached, self._logged[-1].order)
            self._news.notify_all()

    def _watch(self, walked: Walk, fresh: list[Logged]) -> None:
        """Notes each transaction, with the origin that filtered replication recorded in it."""
        table: LoggedTable | None = None
        number, origin = b"", None
        for what, detail, buf, start, end in walked.steps():
            if what == walk.TABLE:
                raw = buf[start:end]
                if ORIGIN_TABLE.encode() in raw and parse_names(raw) == (
                    self._endpoint.database,
                    ORIGIN_TABLE,
                ):
                    number = raw[:6]
                    table = table or LoggedTable(
                        parse_table_map(raw), self._origin_table(), keys_only=False
                    )
            elif what == walk.ROWS:
                if table is not None and number and buf[start : start + 6] == number:
                    origin = table.origin(*table.open_rows(detail, buf, start, end))
            elif what == walk.END:
                order = file_number(walked.file), walked.offset
                fresh.append(Logged(order, walked.position, walked.committed_at, origin))
                number, origin = b"", None

    def _origin_table(self) -> Definition:
        name = TableName(self._endpoint.database, ORIGIN_TABLE)
        with MySQL(self._endpoint) as session:
            table = session.describe(name)
        return Definition(str(name), table.columns, table.keys[0] if table.keys else ())
