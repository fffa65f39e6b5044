"""Letting go of the source's log: only of what is stored, since all that is held is read again after a crash."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

from truecopy.model.errors import TruecopyError
from truecopy.model.position import contains, parse_position
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request
from truecopy.transfer.continuous.applied import Place

_SECONDS = 30.0
"""The source is asked no more often."""


class Releasing:
    """Releases the ends of batches once the stored position has come to them.

    Args:
        request: The stream, whose source releases nothing by itself.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._next: Offset | None = None
        self._last: Offset | None = None
        self._at = time.monotonic()

    def look(self, end: Offset, stored: Mapping[str, Place]) -> None:
        """Releases what can be; what does not work now is released another time.

        Args:
            end: Where the last batch ended.
            stored: Where whoever goes on begins.
        """
        self._next = self._next or (end if end != self._last else None)
        if self._next is None or not _covers(stored, self._next):
            return
        if time.monotonic() - self._at < _SECONDS:
            return
        self._at = time.monotonic()
        with suppress(TruecopyError), KeyspaceStream(self._request) as stream:
            stream.release(self._next)
            self._last, self._next = self._next, None


def _covers(stored: Mapping[str, Place], offset: Offset) -> bool:
    return all(
        shard in stored
        and contains(parse_position(stored[shard][0]), parse_position(mark.position))
        for shard, mark in offset.marks.items()
    )
