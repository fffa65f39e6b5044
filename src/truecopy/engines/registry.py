"""From a URL's scheme to an engine, through entry points: a new engine needs no change here."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import cast

from truecopy.engines.protocols import Session
from truecopy.extras import needed_by
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError

GROUP = "truecopy.engines"


def connect(endpoint: Endpoint) -> Session:
    """Opens a session; errors are one line without secrets."""
    with needed_by(f"{endpoint.scheme}://"):
        return _engine(endpoint.scheme)(endpoint)


def schemes() -> list[str]:
    """The schemes for which an engine is installed."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def _engine(scheme: str) -> Callable[[Endpoint], Session]:
    for entry in entry_points(group=GROUP):
        if entry.name == scheme:
            return cast(Callable[[Endpoint], Session], entry.load())
    near = difflib.get_close_matches(scheme, schemes(), 1)
    hint = f"; did you mean {near[0]}://?" if near else ""
    raise UsageError(f"unknown scheme {scheme}://{hint} Known are {', '.join(schemes())}")
