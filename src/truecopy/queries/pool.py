"""Connections of one side: opened when wanted, used by one query at a time, and closed together."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

from truecopy.engines.queries.failure import QueryFailed
from truecopy.engines.queries.session import QuerySession, open_session
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import TruecopyError
from truecopy.queries.query import SideQuery


class Pool:
    """Connections to one endpoint. Those with a user or settings of their own are not shared."""

    def __init__(self, endpoint: Endpoint, scratch: str | None, *, read_only: bool) -> None:
        self.endpoint = endpoint
        self._scratch = scratch
        self._read_only = read_only
        self._idle: list[QuerySession] = []
        self._busy: set[QuerySession] = set()
        self._spared: set[QuerySession] = set()
        self.stopped = False
        self._lock = threading.Lock()

    def take(self, side: SideQuery) -> QuerySession:
        """A connection in the circumstances that a query asks for."""
        plain = _is_plain(side)
        with self._lock:
            session = self._idle.pop() if plain and self._idle else None
        if session is None:
            session = open_session(_endpoint(self.endpoint, side), self._scratch)
            try:
                session.use(side.catalog, side.schema)
                session.set(dict(side.session))
                if self._read_only:
                    session.read_only()
            except Exception as error:  # noqa: BLE001 - drivers share no class of errors
                session.close()
                raise session.explained(error) or error from None
        with self._lock:
            self._busy.add(session)
        return session

    def give_back(self, session: QuerySession, side: SideQuery, *, broken: bool = False) -> None:
        """A connection that is not wanted any more."""
        shared = _is_plain(side) and not broken
        with self._lock:
            self._busy.discard(session)
            self._spared.discard(session)
            if shared:
                self._idle.append(session)
        if not shared:
            _close(session)

    def spare(self, session: QuerySession) -> None:
        """Tear-down begins on a connection: `stop` leaves it alone from now on."""
        with self._lock:
            self._spared.add(session)

    def stop(self) -> None:
        """Stops what runs, on the server, except tear-down; what starts a statement afterwards is to ask `stopped`."""
        self.stopped = True
        with self._lock:
            running = self._busy - self._spared
        for session in running:
            with suppress(QueryFailed, TruecopyError, OSError):
                session.cancel()

    def close(self) -> None:
        """Closes all connections."""
        with self._lock:
            sessions, self._idle, self._busy = [*self._idle, *self._busy], [], set()
        for session in sessions:
            _close(session)


def _close(session: QuerySession) -> None:
    try:
        session.close()
    except Exception as error:
        if session.explained(error) is None:  # a lost connection cannot be closed any better
            raise


def _is_plain(side: SideQuery) -> bool:
    changes = any(
        not s.lstrip().lower().startswith(("create", "insert", "drop")) for s in side.setup
    )
    return not (
        side.catalog or side.schema or side.user or side.password or side.session or changes
    )


def _endpoint(endpoint: Endpoint, side: SideQuery) -> Endpoint:
    password = side.password.reveal() if side.password else endpoint.password
    return replace(endpoint, user=side.user or endpoint.user, password=password)
