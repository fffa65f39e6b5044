"""Rows that differed while both sides were written to: which of them really differ.

A difference counts only when its source row stood still for the delay and the target still did not
equal it at any look meanwhile. Rows that become equal are equal. A row that never stood still until
the settle time is over is unsettled: neither equal nor different.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from truecopy.engines import pool
from truecopy.engines.protocols import DatabaseSession
from truecopy.model.relation import Key, Relation
from truecopy.verify.compare import by_meaning, only_keys
from truecopy.verify.differences import Difference, Row, judge, rows_of
from truecopy.verify.matching import Comparison
from truecopy.verify.options import Options

LOOKS_PER_DELAY = 5
KEYS_PER_LOOK = 5000


@dataclass
class _Watched:
    """A key under observation: the source rows last seen, and since when they are the same."""

    source: frozenset[Row]
    since: float


@dataclass(frozen=True)
class Settled:
    """What became of the suspected rows of one comparison."""

    different: tuple[Difference, ...]
    unsettled: int


Look = Callable[[Sequence[Key]], list[Difference]]
"""Reads both sides now and gives the differences among these keys."""


def settle(comparison: Comparison, suspects: Sequence[Difference], options: Options) -> Settled:
    """Watches the suspected rows until each is equal, different, or out of time."""
    with ThreadPoolExecutor(1, "target") as beside:

        def look(keys: Sequence[Key]) -> list[Difference]:
            later = beside.submit(_read, by_meaning(comparison.target), keys)
            here = _read(by_meaning(comparison.source), keys)
            relation = comparison.source
            return judge(
                rows_of(here),
                rows_of(later.result()),
                relation.types,
                relation.key_width,
                options.float_tolerance,
            )

        keys = sorted({difference.key for difference in suspects})
        return watch(keys, look, options.delay, options.settle_time, time.monotonic, time.sleep)


def watch(
    keys: Sequence[Key],
    look: Look,
    delay: float,
    settle_time: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Settled:
    """The algorithm alone; `look`, `clock` and `sleep` are given, so that a simulation can drive it."""
    watched: dict[Key, _Watched] = {}
    waiting = list(keys)
    different: list[Difference] = []
    end = clock() + settle_time + delay
    while waiting:
        start = clock()
        still_waiting: list[Key] = []
        for at in range(0, len(waiting), KEYS_PER_LOOK):
            for key, found in _by_key(look(waiting[at : at + KEYS_PER_LOOK])).items():
                rows = frozenset(d.source for d in found if d.source is not None)
                before = watched.get(key)
                if before is None or before.source != rows:
                    # First seen, or changed since: its clock starts when this look began.
                    watched[key] = _Watched(rows, start)
                    still_waiting.append(key)
                elif start - before.since >= delay:
                    different += found
                else:
                    still_waiting.append(key)
        waiting = still_waiting  # keys that the look did not give are equal now
        if waiting and clock() >= end:
            break
        if waiting:
            sleep(max(0.05, delay / LOOKS_PER_DELAY - (clock() - start)))
    return Settled(tuple(different), len(waiting))


def _by_key(differences: Sequence[Difference]) -> dict[Key, list[Difference]]:
    found: dict[Key, list[Difference]] = {}
    for difference in differences:
        found.setdefault(difference.key, []).append(difference)
    return found


def _read(relation: Relation, keys: Sequence[Key]) -> pa.Table:
    with pool.lease(relation.endpoint) as session:
        return only_keys(
            cast(DatabaseSession, session).rows_by_key(relation, keys), keys, relation.key_width
        )
