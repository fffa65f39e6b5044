"""What a cache must offer, and the one that lives in the process itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from itertools import count
from threading import Lock
from typing import Protocol, cast, runtime_checkable

from truecopy.model.endpoint import Endpoint, mask_url, parse_endpoint
from truecopy.model.errors import UsageError

GROUP = "truecopy.caches"


@dataclass(frozen=True)
class Held:
    """What a cache holds under a key.

    Attributes:
        version: Tells this content from every other that the key had or will have, equal ones included.
    """

    content: bytes
    version: object


@dataclass(frozen=True)
class Write:
    """A content for a key, to be stored only while the key holds this version; None: while it holds nothing."""

    key: str
    content: bytes
    version: object = None


@runtime_checkable
class Cache(Protocol):
    """A cache. It may forget anything at any time, and must never hold again what it held before.

    Used by several threads at a time. What it cannot do it says by a `CannotFinish`.
    """

    def get(self, keys: Sequence[str]) -> list[Held | None]:
        """What is held under each key."""
        ...

    def put(self, writes: Sequence[Write]) -> list[bool]:
        """Compares and stores, each write on its own and in one indivisible step; whether it did."""
        ...

    def clear(self) -> None:
        """Forgets everything that was there when this was called."""
        ...

    def close(self) -> None: ...


class InProcess:
    """A cache in this process: the default, for one application server with its own invalidation.

    Args:
        most: Of how many keys it keeps the contents; the one that was used longest ago goes first.
    """

    def __init__(self, most: int = 1_000_000) -> None:
        self._most = most
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._lock = Lock()
        self._versions = count()

    def get(self, keys: Sequence[str]) -> list[Held | None]:
        with self._lock:
            found = [self._held.get(key) for key in keys]
            for key, held in zip(keys, found, strict=True):
                if held is not None:
                    self._held.move_to_end(key)
            return found

    def put(self, writes: Sequence[Write]) -> list[bool]:
        with self._lock:
            return [self._put(write) for write in writes]

    def _put(self, write: Write) -> bool:
        held = self._held.get(write.key)
        if (held.version if held else None) != write.version:
            return False
        self._held[write.key] = Held(write.content, next(self._versions))
        self._held.move_to_end(write.key)
        if len(self._held) > self._most:
            self._held.popitem(last=False)
        return True

    def clear(self) -> None:
        with self._lock:
            self._held.clear()

    def close(self) -> None:
        self.clear()


def open_cache(url: str) -> Cache:
    """The cache that a URL names, through entry points: `redis://…`, `memcached://…`, `memory://`."""
    endpoint = parse_endpoint(url)
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if endpoint.scheme not in known:
        raise UsageError(
            f"{mask_url(url)} names no cache; known are {', '.join(f'{name}://' for name in sorted(known))}"
        )
    opener = cast(Callable[[Endpoint], Cache], known[endpoint.scheme].load())
    return opener(endpoint)


def open_in_process(endpoint: Endpoint) -> InProcess:
    """`memory://?most=N`."""
    return InProcess(number_option(endpoint, "most", 1_000_000))


def number_option(endpoint: Endpoint, name: str, default: int) -> int:
    """A whole number among the options of a cache's URL."""
    given = endpoint.option(name, str(default))
    if not given.isdecimal():
        raise UsageError(f"{endpoint}: {name} is a whole number, not {given!r}")
    return int(given)
