"""Going through a source's changes, batch after batch, on the driver; Spark's tasks read and write them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from truecopy.model.endpoint import parse_endpoint
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request

NEVER, CURRENT = "never", "current"


@dataclass(frozen=True)
class Steps:
    """A way through a stream.

    Attributes:
        interval: Seconds between the beginnings of two batches, at least: what comes meanwhile is one batch.
        apply: Does what is to be done with the changes between two offsets, and remembers the second.
        is_stopping: Asked before each batch.
        idle: Told, with the time in microseconds, when the stream was asked then and had no news.
    """

    stream: KeyspaceStream
    request: Request
    interval: float
    apply: Callable[[Offset, Offset], None]
    is_stopping: Callable[[], bool]
    idle: Callable[[int], None] = lambda _: None

    def go(self, offset: Offset, limit: Offset | None) -> bool:
        """From an offset to the limit; False where it was stopped before."""
        while limit is None or not self.stream.has_reached(offset, limit):
            if self.is_stopping():
                return False
            begun, asked_at = time.monotonic(), now()
            after = self.stream.advance(offset, self.request.max_bytes, self.request.wait, limit)
            if after == offset:
                self.idle(asked_at)
                continue
            self.apply(offset, after)
            offset = after
            # Only what is remembered is let go of.
            self.stream.release(after)
            if limit is None:
                time.sleep(max(0.0, self.interval - (time.monotonic() - begun)))
        return True


def identity(request: Request) -> str:
    """What names the source in every run; no secrets."""
    name = (
        f"keyspace {request.keyspace().name}"
        if request.is_keyspace
        else parse_endpoint(request.endpoint).identity
    )
    return f"{name} ({', '.join(request.tables)})" if request.tables else name


def databases(request: Request) -> dict[str, str]:
    """The database of each shard, which may be called otherwise on every server."""
    return {
        shard.name if request.is_keyspace else request.name: parse_endpoint(
            shard.servers[0]
        ).database
        for shard in request.keyspace().shards
        if shard.servers
    }


def own_name(table: str, database: str) -> str:
    """A table's name in the log: without its database, where that is the source's own."""
    return table.removeprefix(f"{database}.") if database else table


def now() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000
