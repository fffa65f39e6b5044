"""Rogue writes that were found, kept with the mark behind them until somebody was told of them.

The log is read once: what a process had found when it was killed would be known to nobody.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from truecopy.transfer.proof.store import ReverifyStore
from truecopy.transfer.proof.verifier import SHOWN, Mismatch

_FOUND = "target/found"


class Kept:
    """The findings of one task, in its store."""

    def __init__(self, store: ReverifyStore) -> None:
        self._store = store

    def add(self, found: Sequence[Mismatch], count: int) -> None:
        """Adds some, of which the first are named; to be called within a step of the store."""
        if count:
            named, before = self.read()
            plain = [asdict(one) for one in (*named, *found)][: 2 * SHOWN]
            self._store.write_note(_FOUND, json.dumps({"count": before + count, "named": plain}))

    def read(self) -> tuple[list[Mismatch], int]:
        """The first of them, and how many there are."""
        kept = json.loads(self._store.note(_FOUND) or '{"count": 0, "named": []}')
        return [_mismatch(**one) for one in kept["named"]], kept["count"]

    def forget(self, count: int) -> None:
        """The first so many were told of."""
        with self._store.together():
            named, kept = self.read()
            self._store.forget_notes(_FOUND)
            self.add(named[count:], max(kept - count, 0))


def _mismatch(
    key: Sequence[str | None], columns: Sequence[str], key_names: Sequence[str], **other: str
) -> Mismatch:
    return Mismatch(key=tuple(key), columns=tuple(columns), key_names=tuple(key_names), **other)
