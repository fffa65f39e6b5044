"""What a source lacks before its changes can be streamed, asked without leaving anything there.

Opening most logs makes nothing. Where it does, the package that opens the log has a function `needs` as
well, which only looks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

from truecopy.extras import needed_by
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.stream.log import GROUP, Level, Wanted, open_log
from truecopy.stream.request import Request
from truecopy.stream.shards import wanted_of


@dataclass(frozen=True)
class Needs:
    """What a stream needs, and what it will be.

    Attributes:
        level: What the log keeps of the source's order.
        missing: What keeps it from starting, a line each.
        warnings: What should be known, a line each.
        left_out: Tables whose changes will not be in it, and why, with the remedy behind the last colon.
    """

    level: Level
    missing: tuple[str, ...]
    warnings: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def stream_needs(request: Request) -> list[Needs]:
    """Of every server that the request may be read from."""
    return [
        log_needs(server, wanted_of(request, shard.name if request.is_keyspace else request.name))
        for shard in request.keyspace().serving
        for server in map(parse_endpoint, shard.servers)
    ]


def log_needs(endpoint: Endpoint, wanted: Wanted) -> Needs:
    """Of one server, by whoever reads its log."""
    look = _look(endpoint)
    if look is not None and not wanted.settings.get("cursor"):
        return look(endpoint, wanted)
    with open_log(endpoint, wanted) as log:
        return Needs(log.level, tuple(log.missing()), tuple(getattr(log, "warnings", ())))


def opening_leaves_something(endpoint: Endpoint) -> bool:
    """Whether a log of this kind cannot be opened without making something on its server, such as a slot."""
    return _look(endpoint) is not None


def _look(endpoint: Endpoint) -> Callable[[Endpoint, Wanted], Needs] | None:
    for entry in entry_points(group=GROUP):
        if entry.name == endpoint.scheme:
            with needed_by(f"{endpoint.scheme}://"):
                found = getattr(import_module(entry.module), "needs", None)
            return cast(Callable[[Endpoint, Wanted], Needs] | None, found)
    return None
