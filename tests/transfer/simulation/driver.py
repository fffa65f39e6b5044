"""The driver: what it knows is gone when it dies, and old by the time it wakes up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Protocol

from tests.transfer.simulation.attempts import (
    BOUNDS,
    Attempt,
    Hands,
    Step,
    Work,
    apply_step,
    copy_events,
    copy_items,
)
from tests.transfer.simulation.rules import Broken
from tests.transfer.simulation.source import WHOLE, Change
from tests.transfer.simulation.store import Store
from tests.transfer.simulation.target import EVENT, ITEM
from truecopy.model.position import contains, parse_position
from truecopy.model.relation import Chunk
from truecopy.transfer.ledger import Overtaken

SNAPSHOT, REPLAY, REPLICATE, CUTOVER, DONE = "snapshot", "replay", "replicate", "cutover", "done"
SLICES = 3
RETRIES = 3


class World(Hands, Protocol):
    """What a driver gets hold of beyond that."""

    store: Store
    attempts: list[Attempt]

    def fail(self, reason: str) -> None: ...
    def entered(self, phase: str) -> None: ...


class Driver:
    """One run of the task.

    Attributes:
        is_late: It was replaced, and does not know; nor does it hear of reshards.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_late = False
        lines, case = world.lines, world.case
        self.serving = world.source.serving
        first = lines.find() is None
        line = lines.claim(self._start() if first else {})
        self.epoch, self.phase = line.epoch, line.phase
        self.marks: dict[str, int] = line.origin
        self.works: list[Work] = []
        self.ends: dict[str, int] = {}
        if case.has_transactions and not lines.chunks(ITEM):
            lines.plan(ITEM, [Chunk((str(low),)) for low in (0, *BOUNDS)], line.epoch)
        if not lines.chunks(EVENT):
            lines.plan(EVENT, [Chunk()], line.epoch)
        self.begin_stream()

    def _start(self) -> dict[str, int]:
        """Where the stream begins: a visibility point, taken before anything is read."""
        shards = self._world.source.shards
        if self._world.case.broken is Broken.LOG_POSITION:
            return {name: len(shards[name].log) for name in self.serving}
        return {name: shards[name].visible() for name in self.serving}

    def begin_stream(self) -> None:
        """Mirrors `Replication.__init__` and `Replication.positions`."""
        lines = self._world.lines
        if self._world.case.broken is not Broken.NO_LINE_OF_SHARD:
            # It stands for the parts that have no line yet: who goes on must not begin behind their first change.
            for shard, mark in self.marks.items():
                lines.open_part(f"{shard}/shard", str(mark), 0, self.epoch)
        self.progress, self.snapshots = lines.read()
        self.offset = dict(self.marks)
        for shard in self.marks:
            stands = [int(at) for part, at in self.progress.items() if _shard_of(part) == shard]
            self.offset[shard] = min(stands, default=self.offset[shard])
        rewound = self._world.case.broken is Broken.STREAM_REWOUND and hasattr(self, "reached")
        if not rewound:
            self.reached = dict(self.offset)

    # One step

    def go_on(self) -> None:
        """Does what is next; raises Overtaken when somebody newer is at work."""
        if self.works and not self._are_done():
            return
        if self.phase == SNAPSHOT:
            self._copy()
        elif self.works:
            self._complete()
        else:
            self._look()
            self._read()

    def _are_done(self) -> bool:
        attempts = self._world.attempts
        for work in self.works:
            if work.is_done or any(a.work is work and a.is_at_work for a in attempts):
                continue
            if work.was_overtaken:
                raise Overtaken("somebody newer is at work")
            if work.failures >= RETRIES:
                self._world.fail("a chunk is not on the target as it was sent")
            attempts.append(Attempt(work))
        return all(work.is_done for work in self.works)

    def _copy(self) -> None:
        """Mirrors `Copying.copy`: two chunks at a time, until all are noted."""
        world = self._world
        self.works = []
        items, events = world.lines.chunks(ITEM), world.lines.chunks(EVENT)
        if world.case.broken is Broken.POSITION_AFTER_FIRST_CHUNK and self._only_one_is_in():
            with world.target.transaction():
                self.marks = self._start()
                world.lines.set_origin(self.marks, self.epoch)
            self.begin_stream()
        makes: list[Callable[[], Iterator[None]]] = [
            partial(copy_items, world, chunk, self.epoch) for chunk in items if chunk.copied is None
        ]
        if events[0].copied is None:
            makes.append(partial(copy_events, world, self.epoch))
        if not makes:
            self._enter(REPLAY)
            self.begin_stream()
            return
        world.rng.shuffle(makes)
        self._launch([Work(make) for make in makes[:2]])

    def _only_one_is_in(self) -> bool:
        chunks = [*self._world.lines.chunks(ITEM), *self._world.lines.chunks(EVENT)]
        return 1 <= sum(chunk.copied is not None for chunk in chunks) <= 2

    def _launch(self, works: list[Work]) -> None:
        self.works = works
        self._world.attempts += [Attempt(work) for work in works]

    def _enter(self, phase: str) -> None:
        self._world.lines.enter(phase, self.epoch)
        self.phase = phase
        self._world.entered(phase)

    def enter(self, phase: str) -> None:
        self._enter(phase)

    # The stream

    def _look(self) -> None:
        """Hears of a reshard sooner or later; goes over when the old shard is read, or cannot be read any more."""
        source = self._world.source
        if not self.is_late and self._world.rng.random() < 0.3:
            self.serving = source.serving
        if WHOLE in self.serving or WHOLE not in self.offset:
            return
        old, at = source.shards[WHOLE], self.offset[WHOLE]
        if old.is_dead or at == len(old.log):
            marks = {name: source.shards[name].seek_origin(at) for name in self.serving}
            self._world.lines.hop(WHOLE, marks, self.epoch)
            self.marks = marks
            self.begin_stream()
            self.reached = dict(self.offset)

    def log_ends(self) -> dict[str, int]:
        """Where the logs of the source end by now."""
        source = self._world.source
        return {name: len(source.shards[name].log) for name in source.serving}

    def has_reached(self, ends: Mapping[str, int]) -> bool:
        return not self.works and all(
            shard in self.offset and self.offset[shard] >= end for shard, end in ends.items()
        )

    def is_drained(self) -> bool:
        return self.has_reached(self.log_ends()) and self.offset.keys() == self.log_ends().keys()

    def _read(self) -> None:
        """Mirrors `Replication._apply`, up to where executors take over."""
        world = self._world
        found: dict[str, list[tuple[int, Change]]] = {}
        shards: dict[str, str] = {}
        self.ends = dict(self.offset)
        for shard, start in self.offset.items():
            log = world.source.shards[shard]
            end = start if log.is_dead else min(start + world.rng.randint(1, 4), len(log.log))
            self.ends[shard] = end
            for position in range(start + 1, end + 1):
                for change in log.log[position - 1].changes:
                    if self._is_carried(shard, position, change):
                        part = self._part(shard, change)
                        found.setdefault(part, []).append((position, change))
                        shards[part] = shard
        if self.ends == self.offset:
            if self.phase == REPLAY and self.is_drained():
                self._enter(REPLICATE)
            return
        works = []
        for part, changes in found.items():
            step = self._step(part, shards[part])
            is_ahead = not _contains(str(self.reached[shards[part]]), step.old)
            placed = [c for c in changes if not is_ahead or not _contains(step.old, str(c[0]))]
            goes_back = self._world.case.broken is Broken.LINE_GOES_BACK
            if goes_back or not _contains(step.old, step.new):
                self._remember(shards[part], placed)
                news = [change for _, change in placed]
                works.append(Work(partial(apply_step, world, step, news, self.epoch), step))
        if works:
            self._launch(works)
        else:
            self._complete()

    def _is_carried(self, shard: str, position: int, change: Change) -> bool:
        if change.key is not None:
            return self._world.case.has_transactions
        snapshot = self.snapshots.get(shard)
        return snapshot is None or not _contains(str(snapshot), str(position))

    def _part(self, shard: str, change: Change) -> str:
        """Mirrors `Replication._part`."""
        case = self._world.case
        if case.consistency == "transaction":
            return shard
        if change.key is None:
            return f"{shard}/t/{EVENT}"
        if case.consistency == "row" and not case.has_names:
            return f"{shard}/s/{change.key % SLICES}"
        if case.broken is Broken.SLICED_BY_SPELLING:
            return f"{shard}/s/{(change.key + change.name) % SLICES}"
        if case.broken is Broken.MERGED_APART:
            return f"{shard}/t/{ITEM}{change.name}"
        return f"{shard}/t/{ITEM}"

    def _step(self, part: str, shard: str) -> Step:
        """A part without a line had no change so far, and gets one where the batch begins."""
        is_open = part in self.progress
        old = self.progress[part] if is_open else str(self.reached[shard])
        return Step(part, old, str(self.ends[shard]), is_open)

    def _remember(self, shard: str, changes: list[tuple[int, Change]]) -> None:
        """Before they are written, since a driver that dies afterwards has no other way to know."""
        if self._world.case.verify in ("iterative", "inline", "full"):
            for position, change in changes:
                if change.key is not None:
                    self._world.store.add(change.key, (shard, position))

    def _complete(self) -> None:
        for work in self.works:
            assert work.step is not None
            self.progress[work.step.part] = work.step.new
        self.works = []
        self.offset = dict(self.ends)
        self.reached = dict(self.ends)
        if self._world.rng.random() < 0.3:
            self._settle()

    def _settle(self) -> None:
        """Mirrors `Replication.settle`: parts that had no change come to where the others are."""
        with self._world.target.transaction():
            for part, old in self.progress.items():
                reached = self.reached.get(_shard_of(part))
                if reached is not None and int(old) < reached:
                    self._world.lines.advance(part, old, str(reached), 0, self.epoch)
                    self.progress[part] = str(reached)

    def has_applied(self, shard: str, position: int) -> bool:
        """Whether a change is in the target, so that comparing it makes sense."""
        if shard not in self.offset:
            return shard == WHOLE  # everything of a shard that was left is in, or comes again
        return self.offset[shard] >= position


def _shard_of(part: str) -> str:
    return part.split("/", maxsplit=1)[0]


def _contains(a: str, b: str) -> bool:
    return contains(parse_position(a), parse_position(b))
