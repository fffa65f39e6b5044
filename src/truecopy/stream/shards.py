"""The shards of a keyspace as its file has them now, and their logs."""

from __future__ import annotations

import time
from pathlib import Path

from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.keyspace import Keyspace, Shard, parse_key_range
from truecopy.stream.log import Wanted
from truecopy.stream.request import Request
from truecopy.stream.shard import ShardLog

UNREADABLE_SECONDS = 10.0
"""How long the file may be wrong, as while it is written, before that is an error."""


class Shards:
    """The shards that a request reaches; an endpoint is a keyspace of one."""

    def __init__(self, request: Request) -> None:
        self._request = request
        # Before the file is read: what is written meanwhile is then seen as a change.
        self._stamp = self._file_stamp()
        self.keyspace: Keyspace = request.keyspace()
        self._unreadable_since = 0.0
        self._logs: dict[str, ShardLog] = {}

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    def reload(self) -> None:
        """Reads the file again where it has changed."""
        stamp = self._file_stamp()
        if stamp == self._stamp:
            return
        try:
            self.keyspace = self._request.keyspace()
        except UsageError:
            # Somebody is writing it; a file that stays wrong is told.
            now = time.monotonic()
            self._unreadable_since = self._unreadable_since or now
            if now - self._unreadable_since > UNREADABLE_SECONDS:
                raise
            return
        self._unreadable_since = 0.0
        self._stamp = stamp

    def _file_stamp(self) -> tuple[int, ...]:
        if not self._request.is_keyspace:
            return ()
        try:
            stat = Path(self._request.endpoint).stat()
        except OSError:
            return ()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def name(self, shard: Shard) -> str:
        return shard.name if self._request.is_keyspace else self._request.name

    def serving(self) -> dict[str, Shard]:
        """The shards that serve what is wanted, by name."""
        wanted = self._request.key_range
        found = (s for s in self.keyspace.serving if wanted.overlaps(s.key_range))
        return {self.name(shard): shard for shard in found}

    def find(self, name: str) -> Shard:
        """A shard by its name; one that was taken out of the file is known by its key range alone."""
        for shard in self.keyspace.shards:
            if self.name(shard) == name:
                return shard
        unknown = UsageError(f"the token is of shard {name}, and there is none of that name here")
        if not self._request.is_keyspace:
            raise unknown
        try:
            return Shard(parse_key_range(name), (), serving=False)
        except UsageError:
            raise unknown from None

    def log(self, name: str) -> ShardLog:
        """The shard's log, on the servers that the file names now."""
        servers = tuple(parse_endpoint(url) for url in self.find(name).servers)
        known = self._logs.get(name)
        if known is None or known.servers != servers:
            if known is not None:
                known.close()
            wanted = wanted_of(self._request, name)
            known = self._logs[name] = ShardLog(servers, wanted, self._request.max_lag)
        return known

    def serving_logs(self) -> list[ShardLog]:
        return [self.log(name) for name in self.serving()]


def wanted_of(request: Request, shard: str) -> Wanted:
    """What the request wants of one shard."""
    return Wanted(
        shard,
        request.tables,
        request.keys_only,
        dict(request.settings),
        before=request.before,
    )
