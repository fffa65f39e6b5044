"""One server that answers queries, and what it must be able to say of its answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Protocol, cast

from truecopy.client.answer import Answer
from truecopy.extras import needed_by
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.model.position import Position

GROUP = "truecopy.client"


class AnsweringServer(Protocol):
    """A server, with connections to it and, once tokens are asked for, an eye on its log; for several threads."""

    def query(self, sql: str, values: Sequence[object]) -> Answer:
        """The rows of a query; parameters are written as the database's driver has them."""
        ...

    def query_with_token(self, sql: str, values: Sequence[object]) -> Answer:
        """The same, with the token of a transaction that was read from this server's log before the query.

        The query sees everything up to that transaction: the end of a log alone is no proof of that.
        """
        ...

    def problem(self) -> str:
        """Why its answers have no tokens, though they were asked for; empty when all is well."""
        ...

    def end(self) -> Position:
        """The end of its log now: contains everything that this server ever showed or gave to a stream."""
        ...

    def close(self) -> None: ...


def open_server(endpoint: Endpoint, shard: str) -> AnsweringServer:
    """A server through entry points, by the scheme of its URL; tokens carry the shard's name."""
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if endpoint.scheme not in known:
        raise UsageError(
            f"{endpoint.scheme}:// gives no tokens with its answers; known are {', '.join(sorted(known))}"
        )
    with needed_by(f"{endpoint.scheme}://"):
        opener = cast(Callable[[Endpoint, str], AnsweringServer], known[endpoint.scheme].load())
    return opener(endpoint, shard)
