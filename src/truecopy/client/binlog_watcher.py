"""An eye on the log of one MySQL or MariaDB server: the token of every transaction that it has logged lately."""

from __future__ import annotations

import struct
import threading
import time
from bisect import bisect_right
from dataclasses import dataclass, field

from truecopy.engines.mysql import MySQL
from truecopy.engines.mysql_snapshot import executed_set, open_on_mariadb, visible_position
from truecopy.model.change import ORIGIN_TABLE, Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, TruecopyError
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
SETTLED_SECONDS = 1.0
"""After so long a commit that does not wait for a replica can be seen."""

_KEPT = 20_000

Order = tuple[int, int]
"""The number of a file of the log, and an offset in it."""


@dataclass(frozen=True)
class Logged:
    """A transaction of the log, by where it ends; `seen_at`: when the watcher saw it."""

    order: Order
    position: str
    committed_at: int
    origin: Origin | None = None
    seen_at: float = field(default_factory=time.monotonic)

    def token(self, shard: str) -> EventToken:
        position = parse_position(self.position)
        if self.origin is None:
            return EventToken(self.committed_at, shard, position)
        source = TokenOrigin(self.origin.shard, parse_position(self.origin.position))
        return EventToken(self.origin.committed_at, shard, position, source)


@dataclass(frozen=True)
class Sight:
    """What a snapshot shows, as far as the watcher can tell.

    Attributes:
        token: Of a transaction that it shows; None where none is known.
        is_exact: It shows nothing after that.
        settled: The last transaction before its place, which it shows if no commit waits for a replica.
    """

    token: EventToken | None = None
    is_exact: bool = False
    settled: EventToken | None = None


class BinlogWatcher:
    """Follows a log from now on, in a thread of its own, until it is closed; `problem` says why it cannot.

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
        self.problem = ""
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

    def at(self, place: Order, wait: float) -> Sight:
        """What a snapshot at this place shows.

        A place is a proof only where a transaction ends. MariaDB begins a file, and adds events to it, before the
        last transactions can be seen: a place behind such an event says nothing of them.
        """
        with self._news:
            is_reached = self._wait_for(place, wait)
            at = bisect_right(self._logged, place, key=lambda one: one.order) - 1
            shown = self._shown if self._shown and self._shown.order <= place else None
            if at < 0:
                return Sight(self._token(shown))
            found = self._logged[at]
            if found.order == place:
                if self._shown is None or self._shown.order < place:
                    self._shown = found
                return Sight(self._token(found), is_reached)
            is_old = time.monotonic() - found.seen_at > SETTLED_SECONDS
            return Sight(
                self._token(shown),
                settled=self._token(found) if is_old and is_reached else None,
            )

    def shows(self, token: EventToken) -> None:
        """Somebody has seen everything up to this token."""
        with self._news:
            for logged in reversed(self._logged):
                if self._token(logged) == token:
                    if self._shown is None or self._shown.order < logged.order:
                        self._shown = logged
                    return

    def _token(self, logged: Logged | None) -> EventToken | None:
        return logged.token(self._shard) if logged else None

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
            except (TruecopyError, ValueError, LookupError, struct.error) as error:
                # A server that cannot be watched gives no tokens, and goes on answering.
                self.problem = str(error)
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
                self._shown = start
                pieces.before_waiting = lambda: self._publish(walked, fresh)
                self._watch(walked, fresh)
        finally:
            self._pieces = None
            server.close()

    def _start(self, server: Server) -> tuple[Logged, Place | None]:
        """A visibility point."""
        with MySQL(self._endpoint) as session:
            if not session.is_mariadb:
                return Logged((0, 0), executed_set(session), 0), None
            found = open_on_mariadb(session)
            session.rollback()
            shown = visible_position(session)
        if not contains(parse_position(shown or ""), parse_position(found.position)):
            raise CannotFinish(f"commits on {self._endpoint} wait for a replica")
        place = Place(found.file, found.offset, server.name)
        return Logged(place.order, found.position, 0), place

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
            self.problem = ""
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
