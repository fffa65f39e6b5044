"""A database or a keyspace, as an application asks it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from threading import RLock
from typing import Self, TypeVar

from truecopy.client.answer import Answer, Of
from truecopy.client.server import AnsweringServer, open_server
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.keyspace import Shard, keyspace_id
from truecopy.model.position import Comparison, Position, union
from truecopy.model.token import EventToken, compare_tokens
from truecopy.stream.request import Request
from truecopy.stream.shards import Shards

REST_SECONDS = 5.0
"""How long a server that failed is passed over, as long as another one answers."""

_LOT = random.SystemRandom()
"""Not the application's own generator, whose numbers it may want to come again."""

T = TypeVar("T")


def connect(endpoint: str, *, shard: str = "") -> Client:
    """Opens a database's URL, or a keyspace file; servers are connected to when they are first asked.

    Args:
        endpoint: A URL, or the path of a keyspace file.
        shard: The name that tokens carry, for a URL; by default the database's name. A primary, its replicas and
            the streams of them must have the same one.
    """
    return Client(Request(endpoint, shard=shard))


class Client:
    """Used by any number of threads. Each server that is asked for tokens has its log watched until `close`."""

    def __init__(self, request: Request) -> None:
        if request.is_keyspace and request.shard:
            raise UsageError("a keyspace's shards have names of their own: leave shard out")
        self._lock = RLock()
        self._shards = Shards(request)
        self._servers: dict[tuple[str, str], AnsweringServer] = {}
        self._failed_at: dict[tuple[str, str], float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            servers = list(self._servers.values())
            self._servers.clear()
        for server in servers:
            server.close()

    def query(
        self,
        sql: str,
        values: Sequence[object] = (),
        *,
        of: Of | None = None,
        include_token: bool = False,
        compare_token: EventToken | None = None,
    ) -> Answer:
        """Runs a query that reads.

        Args:
            sql: In the database's own dialect.
            values: Its parameters, written as the database's driver has them (`%s`, for SQLite `?`).
            of: Of a keyspace, the table and the value of its sharding column that the rows belong to. Without it
                all shards are asked one after the other, and no token is known for what they say together.
            include_token: Say what the rows are at least as fresh as.
            compare_token: Say whether that is known to be as new as this, or newer.
        """
        shards = self._chosen(of)
        wants_token = include_token or compare_token is not None
        if len(shards) > 1:
            answers = [self._ask(shard, lambda s: s.query(sql, values)) for shard in shards]
            return Answer(answers[0].columns, [row for one in answers for row in one.rows])
        if not wants_token:
            return self._ask(shards[0], lambda server: server.query(sql, values))
        answer = self._ask(shards[0], lambda server: server.query_with_token(sql, values))
        if answer.token is None or compare_token is None:
            return answer
        found = compare_tokens(answer.token, compare_token)
        fresher = found in (Comparison.NEWER, Comparison.SAME)
        return Answer(answer.columns, answer.rows, answer.token, answer.bound, fresher)

    def problems(self) -> list[str]:
        """Why answers have no tokens: a line for each server that was asked for some and cannot give them."""
        with self._lock:
            servers = list(self._servers.values())
        return [line for server in servers if (line := server.problem())]

    def serves(self, shard: str) -> bool:
        """Whether a shard serves, as the keyspace file says now."""
        with self._lock:
            self._shards.reload()
            return shard in self._shards.serving()

    def end(self, shard: str) -> EventToken | None:
        """The furthest end of the logs of a shard's servers; None where one of them does not answer."""
        with self._lock:
            found = self._shards.serving().get(shard)
        if found is None:
            return None
        furthest: Position | None = None
        for url in found.servers:
            try:
                end = self._server(shard, url).end()
                furthest = end if furthest is None else union(furthest, end)
            except (CannotFinish, UsageError):
                return None
        return None if furthest is None else EventToken(0, shard, furthest)

    def _chosen(self, of: Of | None) -> list[Shard]:
        with self._lock:
            self._shards.reload()
            self._leave_gone()
            serving = list(self._shards.serving().values())
            if len(serving) == 1 or of is None:
                return serving
            table, value = of
            rule = self._shards.keyspace.sharding.get(table)
        if rule is None:
            raise UsageError(
                f"the keyspace file does not say how {table} is sharded: add it under sharding:"
            )
        where = keyspace_id(rule.function, str(value))
        return [shard for shard in serving if shard.key_range.contains(where)]

    def _ask(self, shard: Shard, question: Callable[[AnsweringServer], T]) -> T:
        """By a server that answers, chosen by lot: those that failed a moment ago come last."""
        name = self._shards.name(shard)
        urls = list(shard.servers)
        _LOT.shuffle(urls)
        now = time.monotonic()
        urls.sort(
            key=lambda url: now - self._failed_at.get((name, url), -REST_SECONDS) < REST_SECONDS
        )
        failure: CannotFinish | None = None
        for url in urls:
            try:
                return question(self._server(name, url))
            except CannotFinish as error:
                self._failed_at[name, url] = time.monotonic()
                failure = failure or error
        raise failure or CannotFinish(f"shard {name} has no servers")

    def _server(self, shard: str, url: str) -> AnsweringServer:
        with self._lock:
            known = self._servers.get((shard, url))
            if known is None:
                known = self._servers[shard, url] = open_server(parse_endpoint(url), shard)
            return known

    def _leave_gone(self) -> None:
        """A server is watched as long as its shard serves and names it."""
        wanted = {
            (name, url) for name, shard in self._shards.serving().items() for url in shard.servers
        }
        for one in self._servers.keys() - wanted:
            self._servers.pop(one).close()
