"""memcached as a cache: comparing and storing is its `cas`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from truecopy.cache.store import Held, Write, number_option
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError

_PLAIN = re.compile(r"[!-~]{1,200}")
_MONTH = 30 * 86_400
"""What memcached takes for a time of day when it is more."""

P = ParamSpec("P")
T = TypeVar("T")


def _explained(method: Callable[P, T]) -> Callable[P, T]:
    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        from pymemcache.exceptions import MemcacheError

        try:
            return method(*args, **kwargs)
        except (MemcacheError, OSError) as error:
            raise CannotFinish(f"{args[0]} does not answer: {error}") from None

    return run


class MemcachedCache:
    """One memcached server; see `truecopy.cache.store.Cache`.

    `memcached://host:11211?prefix=shop:&expire=86400`. `clear` empties the whole server: give it one of its own.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            from pymemcache.client.base import PooledClient
        except ImportError:
            raise UsageError(
                "memcached needs its client: pip install 'truecopy[memcached]'"
            ) from None
        self._endpoint = endpoint
        self._prefix = endpoint.option("prefix", "truecopy:")
        self._expire = min(number_option(endpoint, "expire", 86_400), _MONTH)
        self._client: Any = PooledClient(
            (endpoint.host or "127.0.0.1", endpoint.port or 11211),
            connect_timeout=10,
            timeout=30,
            no_delay=True,
            max_pool_size=64,
        )

    def __str__(self) -> str:
        return str(self._endpoint)

    def _name(self, key: str) -> str:
        """Keys have at most 250 bytes, and no spaces."""
        name = self._prefix + key
        if _PLAIN.fullmatch(name):
            return name
        return f"{self._prefix}sha256:{hashlib.sha256(key.encode()).hexdigest()}"

    @_explained
    def get(self, keys: Sequence[str]) -> list[Held | None]:
        names = [self._name(key) for key in keys]
        found: dict[str, tuple[bytes, bytes]] = self._client.gets_many(names) if names else {}
        return [Held(*found[name]) if name in found else None for name in names]

    @_explained
    def put(self, writes: Sequence[Write]) -> list[bool]:
        return [bool(self._put(write)) for write in writes]

    def _put(self, write: Write) -> bool | None:
        name = self._name(write.key)
        if write.version is None:
            done: bool | None = self._client.add(name, write.content, self._expire, noreply=False)
        else:
            done = self._client.cas(name, write.content, write.version, self._expire, noreply=False)
        return done

    @_explained
    def clear(self) -> None:
        self._client.flush_all(noreply=False)

    def close(self) -> None:
        self._client.close()
