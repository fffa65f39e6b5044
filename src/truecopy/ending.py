"""Why this process ends: a signal asked for it, and what was raised for that may be swallowed on its way.

Spark's client, and extensions that import modules when they are first needed, catch what a signal handler raises while
they are at work. So whoever loops or waits for long asks here, and whoever explains a failure looks here first.
"""

from __future__ import annotations

from truecopy.model.errors import CannotFinish

_asked: list[str] = []


def ask(why: str) -> None:
    """From now on this process is to end."""
    _asked.append(why)


def reason() -> str:
    """Why it is to end; empty where it may go on."""
    return _asked[0] if _asked else ""


def require_none() -> None:
    """Goes no further where it is to end."""
    if _asked:
        raise CannotFinish(_asked[0])
