"""Connections that are used again: one for each thread that asks at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """What has an end."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Connections(Generic[C]):
    """Opened when none is free; one on which something failed is not used again."""

    def __init__(self, connect: Callable[[], C]) -> None:
        self._connect = connect
        self._free: list[C] = []
        self._lock = Lock()
        self._closed = False

    @contextmanager
    def one(self) -> Iterator[C]:
        with self._lock:
            connection = self._free.pop() if self._free else None
        connection = connection or self._connect()
        try:
            yield connection
        except BaseException:
            _close(connection)
            raise
        with self._lock:
            if not self._closed:
                self._free.append(connection)
                return
        _close(connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for connection in free:
            _close(connection)


def _close(connection: Closable) -> None:
    with suppress(Exception):
        connection.close()
