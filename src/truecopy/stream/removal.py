"""Taking back what streaming made on a source: slots, publications, triggers, log tables."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import cast

from truecopy.extras import needed_by
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.stream.log import Wanted
from truecopy.stream.request import Request
from truecopy.stream.shards import wanted_of

GROUP = "truecopy.changes.removal"


def remove(request: Request) -> list[str]:
    """Removes it from every server of the request; a line for each says what was removed."""
    said = []
    for shard in request.keyspace().shards:
        name = shard.name if request.is_keyspace else request.name
        for server in map(parse_endpoint, shard.servers):
            if remove_from(server, wanted_of(request, name)):
                said.append(f"{server}: removed what streaming had made there")
            else:
                said.append(f"{server}: streaming leaves nothing there")
    return said


def remove_from(server: Endpoint, wanted: Wanted) -> bool:
    """Removes what one stream made on one server; False where streaming leaves nothing."""
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if server.scheme not in known:
        return False
    with needed_by(f"{server.scheme}://"):
        remover = cast(Callable[[Endpoint, Wanted], None], known[server.scheme].load())
    remover(server, wanted)
    return True
