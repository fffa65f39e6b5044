"""What a source's log has, and what its tables show of it: under semi-synchronous replication that is less."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import cast

from truecopy.engines import pool
from truecopy.engines.protocols import Introspects, TellsVisible
from truecopy.model.endpoint import Endpoint
from truecopy.model.position import contains, parse_position

_PAUSE_SECONDS = 0.1


def log_end(endpoint: Endpoint) -> str | None:
    """Behind every row that was read before; None for a file without a log."""
    with pool.lease(endpoint) as session:
        if isinstance(session, TellsVisible):
            return session.log_end()
        return None if session.driver_local else cast(Introspects, session).position()


def are_visible(endpoint: Endpoint, positions: Collection[str], seconds: float) -> bool:
    """Waits until everything up to these positions of the source can be read there; False where it takes longer.

    A target may have rows of the log that the source does not show yet. They are right, and look wrong.
    """
    deadline = time.monotonic() + seconds
    with pool.lease(endpoint) as session:
        if not isinstance(session, TellsVisible):
            return True
        while True:
            seen = session.visible_position()
            if seen is None or all(has_passed(seen, position) for position in positions):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)


def has_passed(reached: str, position: str) -> bool:
    """Whether a position contains another one of the same log."""
    return contains(parse_position(reached), parse_position(position))
