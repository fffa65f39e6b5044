"""Idle connections of a process, by endpoint: a Spark worker runs many tasks on the same databases.

What was not used for a while is closed when another connection is asked for: a worker that goes from task to task would
hold more and more of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from truecopy.engines.protocols import Session
from truecopy.engines.registry import connect
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish

IDLE_SECONDS = 30.0

_idle: dict[Endpoint, list[tuple[float, Session]]] = {}
_lock = threading.Lock()


@contextmanager
def lease(endpoint: Endpoint) -> Iterator[Session]:
    """A session that nobody else uses meanwhile; kept for the next task unless it failed or is a file."""
    with _lock:
        waiting = _idle.get(endpoint)
        session = waiting.pop()[1] if waiting else None
        stale = _take_unused_since(time.monotonic() - IDLE_SECONDS)
    _close(stale)
    session = session or connect(endpoint)
    try:
        yield session
    except BaseException:
        session.close()
        raise
    if session.driver_local:
        session.close()  # an open file would keep others from writing to it
        return
    with _lock:
        _idle.setdefault(endpoint, []).append((time.monotonic(), session))


def close_idle() -> None:
    """Closes what this process keeps open."""
    with _lock:
        sessions = _take_unused_since(time.monotonic())
    _close(sessions)


def _take_unused_since(moment: float) -> list[Session]:
    found = []
    for endpoint, waiting in list(_idle.items()):
        found += [session for at, session in waiting if at <= moment]
        _idle[endpoint] = [(at, session) for at, session in waiting if at > moment]
        if not _idle[endpoint]:
            del _idle[endpoint]
    return found


def _close(sessions: list[Session]) -> None:
    for session in sessions:
        try:
            session.close()
        except (CannotFinish, OSError):  # a connection that is gone already needs no closing
            continue
