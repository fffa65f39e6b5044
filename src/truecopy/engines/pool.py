"""One idle connection per endpoint and process: a Spark worker runs many tasks on the same databases."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from truecopy.engines.protocols import Session
from truecopy.engines.registry import connect
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish

_idle: dict[Endpoint, list[Session]] = {}
_lock = threading.Lock()


@contextmanager
def lease(endpoint: Endpoint) -> Iterator[Session]:
    """A session that nobody else uses meanwhile; kept for the next task unless it failed or is a file."""
    with _lock:
        waiting = _idle.get(endpoint)
        session = waiting.pop() if waiting else None
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
        _idle.setdefault(endpoint, []).append(session)


def close_idle() -> None:
    """Closes what this process keeps open."""
    with _lock:
        sessions = [session for waiting in _idle.values() for session in waiting]
        _idle.clear()
    for session in sessions:
        try:
            session.close()
        except (CannotFinish, OSError):  # a connection that is gone already needs no closing
            continue
