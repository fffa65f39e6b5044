"""Taking back what streaming made on a source: slots, publications, triggers, log tables."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import cast

from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.stream.log import Wanted
from truecopy.stream.request import Request
from truecopy.stream.shards import wanted_of

GROUP = "truecopy.changes.removal"


def remove(request: Request) -> list[str]:
    """Removes it from every server of the request; a line for each says what was removed."""
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    said = []
    for shard in request.keyspace().shards:
        for server in map(parse_endpoint, shard.servers):
            if server.scheme not in known:
                said.append(f"{server}: streaming leaves nothing there")
                continue
            remover = cast(Callable[[Endpoint, Wanted], None], known[server.scheme].load())
            name = shard.name if request.is_keyspace else request.name
            remover(server, wanted_of(request, name))
            said.append(f"{server}: removed what streaming had made there")
    return said
