"""Redis as a cache: comparing and storing are one script."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from truecopy.cache.store import Held, Write, number_option
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError

DEFAULT_EXPIRY = 86_400
"""Seconds after which an entry goes. Redis without a policy of eviction would fill up with tokens else."""

_STAMP = 8
_CHUNK = 256

# A content begins with a stamp that no other one has. GETRANGE of a key that is not there is empty.
_SWAP = f"""
local done = {{}}
for i, key in ipairs(KEYS) do
    if redis.call('GETRANGE', key, 0, {_STAMP - 1}) == ARGV[2 * i] then
        redis.call('SET', key, ARGV[2 * i + 1], 'EX', ARGV[1])
        done[i] = 1
    else
        done[i] = 0
    end
end
return done
"""

P = ParamSpec("P")
T = TypeVar("T")


def _explained(method: Callable[P, T]) -> Callable[P, T]:
    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        from redis.exceptions import RedisError

        try:
            return method(*args, **kwargs)
        except RedisError as error:
            raise CannotFinish(f"{args[0]} does not answer: {error}") from None

    return run


class RedisCache:
    """One Redis server; see `truecopy.cache.store.Cache`.

    `redis://user:${PW}@host:6379/0?prefix=shop:&expire=86400`. Keys of other applications are left alone by their
    prefix.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            import redis
        except ImportError:
            raise UsageError("Redis needs its client: pip install 'truecopy[redis]'") from None
        self._endpoint = endpoint
        self._prefix = endpoint.option("prefix", "truecopy:")
        self._expire = number_option(endpoint, "expire", DEFAULT_EXPIRY)
        self._redis: Any = redis.Redis(
            host=endpoint.host or "127.0.0.1",
            port=endpoint.port or 6379,
            db=int(endpoint.database or 0),
            username=endpoint.user or None,
            password=endpoint.password or None,
            ssl=endpoint.scheme == "rediss",
            socket_connect_timeout=10,
            socket_timeout=30,
        )
        self._swap: Any = self._redis.register_script(_SWAP)

    def __str__(self) -> str:
        return str(self._endpoint)

    @_explained
    def get(self, keys: Sequence[str]) -> list[Held | None]:
        if not keys:
            return []
        found: list[bytes | None] = self._redis.mget([self._prefix + key for key in keys])
        return [None if raw is None else Held(raw[_STAMP:], raw[:_STAMP]) for raw in found]

    @_explained
    def put(self, writes: Sequence[Write]) -> list[bool]:
        done: list[bool] = []
        for first in range(0, len(writes), _CHUNK):
            some = writes[first : first + _CHUNK]
            stamps = secrets.token_bytes(_STAMP * len(some))
            arguments: list[Any] = [self._expire]
            for number, write in enumerate(some):
                stamp = stamps[number * _STAMP : (number + 1) * _STAMP]
                arguments += (write.version or b"", stamp + write.content)
            keys = [self._prefix + write.key for write in some]
            done += map(bool, self._swap(keys, arguments))
        return done

    @_explained
    def clear(self) -> None:
        pattern = "".join(f"\\{c}" if c in r"*?[]\^-" else c for c in self._prefix) + "*"
        some: list[bytes] = []
        for key in self._redis.scan_iter(match=pattern, count=10_000):
            some.append(key)
            if len(some) == 1000:
                self._redis.unlink(*some)
                some.clear()
        if some:
            self._redis.unlink(*some)

    def close(self) -> None:
        self._redis.close()
