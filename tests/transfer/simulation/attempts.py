"""Attempts: what executors do. Each stops between any two of its steps, for as long as the schedule likes.

Whoever started an attempt may have given it up by the time it goes on. So nothing here asks whether it is
still wanted; the ledger does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tests.transfer.simulation.lines import Lines
from tests.transfer.simulation.rules import Broken, Case
from tests.transfer.simulation.source import KEYS, Change, Source
from tests.transfer.simulation.target import EVENT, ITEM, MARK, Target
from truecopy.transfer.ledger import Overtaken, PlannedChunk

BOUNDS = 3, 6
"""Where the chunks of `item` begin, after the first."""

VALUE, SKIPPED, ELSEWHERE = "a wrong value", "not written", "under another key"
"""How a writer can be wrong."""


class Hands(Protocol):
    """What an attempt gets hold of."""

    rng: Random
    case: Case
    source: Source
    target: Target
    lines: Lines
    promised: list[Sequence[Change]]
    """At most once: what progress says was written, and was not yet, or never will be."""

    def take_fault(self) -> str | None: ...


class ChunkDiffers(Exception):
    """What the target holds is not what was sent."""


@dataclass(frozen=True)
class Step:
    """Where a part stands before a batch and after it. One that has no line yet gets it from the attempt, at `old`."""

    part: str
    old: str
    new: str
    is_open: bool


@dataclass(eq=False)
class Work:
    """A chunk or a step of a part; done when one of its attempts says so."""

    make: Callable[[], Iterator[None]]
    step: Step | None = None
    is_done: bool = False
    was_overtaken: bool = False
    failures: int = 0


@dataclass(eq=False)
class Attempt:
    """`is_late`: it was given up, and sleeps until the schedule wakes it."""

    work: Work
    steps: Iterator[None] = field(init=False)
    is_late: bool = False
    is_over: bool = False

    def __post_init__(self) -> None:
        self.steps = self.work.make()

    @property
    def is_at_work(self) -> bool:
        return not self.is_late and not self.is_over

    def go_on(self) -> None:
        self.is_over = True
        try:
            next(self.steps)
        except StopIteration:
            self.work.is_done = True
        except Overtaken:
            self.work.was_overtaken = True
        except (ChunkDiffers, sqlite3.IntegrityError):
            self.work.failures += 1
        else:
            self.is_over = False


def copy_items(hands: Hands, planned: PlannedChunk, epoch: int) -> Iterator[None]:
    """Mirrors `transfer.snapshot.copy_chunk`."""
    bounds = (0, *BOUNDS, KEYS)
    low, high = bounds[planned.number : planned.number + 2]
    rows = hands.source.rows(low, high)
    yield
    overwrites = hands.case.broken is Broken.STALE_ROW_OVERWRITES
    try:
        with hands.target.transaction():
            try:
                hands.lines.note_copied(ITEM, planned.number, len(rows), epoch)
            except Overtaken:
                if not overwrites:
                    raise
            fault = hands.take_fault() if hands.case.verify == "iterative" else None
            for key, value in rows.items():
                hands.target.insert(key, value if fault is None else -value, MARK, over=overwrites)
            is_compared = hands.case.verify in ("inline", "full")
            if is_compared and hands.target.rows(low, high) != rows:
                raise ChunkDiffers
    except Overtaken:
        return


def copy_events(hands: Hands, epoch: int) -> Iterator[None]:
    """The table without a key: one snapshot, whose position is known and kept with it."""
    rows, at = hands.source.events_at()
    yield
    try:
        if _is_apart(hands.case):
            with hands.target.transaction():
                _append(hands.target, rows)
            yield
            with hands.target.transaction():
                _note_events(hands, rows, at, epoch)
            return
        with hands.target.transaction():
            _note_events(hands, rows, at, epoch)
            _append(hands.target, rows)
            if hands.case.verify in ("inline", "full") and hands.target.events() != sorted(rows):
                raise ChunkDiffers
    except Overtaken:
        return


def _note_events(hands: Hands, rows: Sequence[int], at: dict[str, int], epoch: int) -> None:
    hands.lines.note_copied(EVENT, 0, len(rows), epoch)
    if hands.case.broken is not Broken.KEYLESS_FROM_START:
        hands.lines.note_snapshot(at, epoch)


def _append(target: Target, rows: Sequence[int]) -> None:
    for value in rows:
        target.append(value, MARK)


def apply_step(hands: Hands, step: Step, changes: Sequence[Change], epoch: int) -> Iterator[None]:
    """Mirrors `transfer.apply.Applying._apply`."""
    yield
    if not step.is_open:
        hands.lines.open_part(step.part, step.old, 0, epoch)
    if _is_apart(hands.case):
        with hands.target.transaction():
            write(hands, changes)
        yield
        with hands.target.transaction():
            hands.lines.advance(step.part, step.old, step.new, 0, epoch)
        return
    progress_first = hands.case.delivery == "at-most-once"
    with hands.target.transaction():
        is_new = hands.lines.advance(step.part, step.old, step.new, 0, epoch)
        if is_new and not progress_first:
            write(hands, changes)
    if is_new and progress_first:
        hands.promised.append(changes)
        yield
        with hands.target.transaction():
            hands.lines.require_at(step.part, step.new, epoch)
            write(hands, changes)
        hands.promised.remove(changes)


def _is_apart(case: Case) -> bool:
    return case.broken is Broken.PROGRESS_APART or not case.has_transactions


def write(hands: Hands, changes: Sequence[Change]) -> None:
    """The net effect: every key that was touched goes, then those come that are there; mirrors `_write_table`."""
    rows = {change.key: change.value for change in changes if change.key is not None}
    fault = hands.take_fault() if rows else None
    spoiled = hands.rng.choice(list(rows)) if fault else None
    for key in rows:
        if key != spoiled or fault == VALUE:
            hands.target.delete(key, MARK)
    for key, value in rows.items():
        if value is None or (key == spoiled and fault == SKIPPED):
            continue
        if key == spoiled and fault == ELSEWHERE:
            hands.target.insert((key + 1) % KEYS, value, MARK, over=True)
        else:
            hands.target.insert(key, -value if key == spoiled else value, MARK, over=bool(fault))
    _append(hands.target, [c.value for c in changes if c.key is None and c.value is not None])
