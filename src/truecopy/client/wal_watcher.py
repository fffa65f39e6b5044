"""An eye on the log of one PostgreSQL server: its transactions as a slot of its own decodes them.

The slot is a temporary one: it goes with the connection, and holds back no log after that.
"""

from __future__ import annotations

import os
import secrets
import threading
from dataclasses import dataclass

import psycopg

from truecopy.engines.postgresql import PostgreSQL
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import TruecopyError
from truecopy.model.position import PostgreSQLPosition
from truecopy.model.token import EventToken
from truecopy.stream.postgresql import pgoutput
from truecopy.stream.postgresql.names import Names
from truecopy.stream.postgresql.replication import (
    HEADER,
    WAL_DATA,
    Refused,
    Replication,
    parse_keepalive,
)
from truecopy.stream.postgresql.server import plan_publication, sync_publication
from truecopy.stream.postgresql.visibility import Snapshot

PUBLICATION = "truecopy_watch"
RECONNECT_SECONDS = 0.5
_ASK_SECONDS = 0.02
_KEPT = 20_000


@dataclass(frozen=True)
class Decoded:
    """A transaction of the log."""

    xid: int
    end: int
    at: int


class _TemporaryStream(Replication):
    """A stream from a slot that is made on the same connection."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._slot = f"truecopy_watch_{secrets.token_hex(8)}"
        super().__init__(endpoint, self._slot, PUBLICATION, 0)

    def _start(self, command: str) -> None:
        with psycopg.ClientCursor(self._connection) as cursor:
            cursor.execute(
                f'CREATE_REPLICATION_SLOT "{self._slot}" TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT'.encode()
            )
        super()._start(command)


class WalWatcher:
    """Follows a log from now on, in a thread of its own, until it is closed; `problem` says why it cannot."""

    def __init__(self, endpoint: Endpoint, shard: str) -> None:
        self._endpoint = endpoint
        self._shard = shard
        self._news = threading.Condition()
        self._decoded: list[Decoded] = []
        self._passed = 0
        self.problem = ""
        self._closed = False
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="wal-watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()
        os.write(self._wake[1], b"x")
        self._thread.join(5)
        for handle in self._wake:
            os.close(handle)

    def visible(self, snapshot: Snapshot, lsn: int, wait: float) -> EventToken | None:
        """What a snapshot shows, which was taken after the log had ended at `lsn`; None where nothing is known yet.

        What is not over may be in the log already, and waits for a standby. Where nothing is under way, everything is
        shown that was logged, also by transactions that this eye does not see.
        """
        with self._news:
            self._news.wait_for(lambda: self._passed >= lsn or self._closed, wait)
            last: Decoded | None = None
            for transaction in self._decoded:
                if not snapshot.admits(transaction.xid):
                    break
                last = transaction
            else:
                if not snapshot.running and self._passed:
                    end = max(min(self._passed, lsn), last.end if last else 0)
                    return EventToken(last.at if last else 0, self._shard, PostgreSQLPosition(end))
            if last is None:
                return None
            return EventToken(last.at, self._shard, PostgreSQLPosition(last.end))

    def wait_until_ready(self, wait: float) -> None:
        """Until it knows where it stands, once."""
        with self._news:
            self._news.wait_for(lambda: self._passed or self._closed, wait)

    def _run(self) -> None:
        while not self._closed:
            try:
                self._follow()
            except (TruecopyError, Refused, psycopg.Error) as error:
                # A server that cannot be watched gives no tokens, and goes on answering.
                self.problem = " ".join(str(error).split())
            finally:
                with self._news:
                    self._decoded, self._passed = [], 0
                    self._news.wait_for(lambda: self._closed, RECONNECT_SECONDS)

    def _follow(self) -> None:
        names = Names("", PUBLICATION, "")
        with PostgreSQL(self._endpoint) as session:
            sync_publication(session, names, plan_publication(session, names, ()))
        stream = _TemporaryStream(self._endpoint)
        try:
            stream.confirm(0, ask=True)
            self._receive(stream)
        finally:
            stream.close()

    def _receive(self, stream: Replication) -> None:
        fresh: list[Decoded] = []
        begun = (0, 0)
        passed = 0
        while not self._closed:
            size, data = stream.receive(1)
            if size < 0:
                raise stream.ending()
            if size == 0:
                self._publish(fresh, passed)
                stream.wait(_ASK_SECONDS, self._wake[0])
                stream.confirm(passed, ask=True)
            elif data[0] != WAL_DATA:
                passed = max(passed, parse_keepalive(data)[0])
            elif data[HEADER] == pgoutput.BEGIN:
                xid, _, at = pgoutput.parse_begin(bytes(data[HEADER:]))
                begun = xid, at
            elif data[HEADER] == pgoutput.COMMIT:
                end = pgoutput.parse_commit(bytes(data[HEADER:]))
                fresh.append(Decoded(begun[0], end, begun[1]))
                passed = max(passed, end)

    def _publish(self, fresh: list[Decoded], passed: int) -> None:
        with self._news:
            self._decoded += fresh
            fresh.clear()
            del self._decoded[:-_KEPT]
            self._passed = passed
            self.problem = ""
            self._news.notify_all()
