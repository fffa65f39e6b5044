"""A dictionary that computes what it does not hold, and that cannot grow without end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LIMIT = 16_384


class Cache(dict[Any, bytes]):
    """Texts by the raw value: `cache[raw]` is much cheaper than a call, and values come again.

    Forgets everything when it is full: a column of ever new values costs no more than its memory.
    """

    __slots__ = ("_compute", "_limit")

    def __init__(self, compute: Callable[[Any], bytes], limit: int = LIMIT) -> None:
        super().__init__()
        self._compute = compute
        self._limit = limit

    def __missing__(self, raw: Any) -> bytes:
        text = self._compute(raw)
        if len(self) >= self._limit:
            self.clear()
        self[raw] = text
        return text
