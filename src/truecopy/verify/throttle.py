"""Ceilings on the load: how many rows a statement may take, and when to wait for a replica."""

from __future__ import annotations

import time

from truecopy.engines import pool
from truecopy.engines.protocols import Replicates
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError

_POLL_SECONDS = 0.5
SMALLEST = 1000
_speed: dict[str, float] = {}
"""Rows per second of each database as this process saw it lately; a hint, never shared."""


def note_speed(endpoint: Endpoint, rows: int, seconds: float) -> None:
    """Remembers how fast a statement was; slow ones count at once, fast ones bit by bit."""
    after = speed_after(_speed.get(endpoint.identity), rows, seconds)
    if after is not None:
        _speed[endpoint.identity] = after


def speed_after(before: float | None, rows: int, seconds: float) -> float | None:
    """Rows per second, as known after a statement; a small one tells nothing new."""
    if rows < SMALLEST or seconds <= 0:
        return before
    seen = rows / seconds
    return min(seen, (before or seen) * 0.7 + seen * 0.3)


def rows_within(endpoint: Endpoint, seconds: float) -> int | None:
    """Rows that a statement can take in that time; None before anything was measured."""
    speed = _speed.get(endpoint.identity)
    return None if speed is None else max(SMALLEST, int(speed * seconds))


def lag_of(replica: Endpoint) -> float | None:
    """Seconds that a replica is behind; None where it does not replicate."""
    with pool.lease(replica) as session:
        if not isinstance(session, Replicates):
            raise UsageError(
                f"{replica} cannot tell its lag: name a replica of MySQL, MariaDB or PostgreSQL"
            )
        return session.lag_seconds()


def wait_for_replica(replica: Endpoint, most: float) -> None:
    """Waits while a replica lags more than allowed, or does not replicate."""
    while True:
        lag = lag_of(replica)
        if lag is not None and lag <= most:
            return
        time.sleep(_POLL_SECONDS)
