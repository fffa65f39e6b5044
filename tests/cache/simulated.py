"""A cache under random schedules: writers, replicas that lag, invalidators, readers, evictions, reshards, deaths.

The code of readers, invalidators and floors is the real one; the database and the schedule are simulated. Each
operation of a reader or an invalidator is a thread, of which only one runs at a time: it stops in front of every
question to the cache or the database, and the schedule decides who goes on.

What may go wrong between two steps:

- *A token is evicted*, and a replica that lags answers a reader who finds nothing.
- *The floor is evicted*, too, or alone, before or after a reader has looked at it.
- *An invalidation comes* between a reader's look at the entry, its look at the floor, its query and its put; or its
  two steps (the floor, the entry) lie on both sides of one of these.
- *Two invalidators* are at different places; the one behind stores old tokens after the new ones were evicted, and
  dies.
- *An invalidator dies* in the middle of a batch, and starts again from an older checkpoint.
- *An answer is newer than its token*: the log is ahead of the eye on it. What is evicted then must not be followed by
  what is between the two.
- *A reshard*: entries hold tokens of old shards, floors too; new shards' replicas lag behind the flip; a reader has
  asked an old shard just before it; shards come back.
- *Clocks* of shards differ by less than the bound, and commit times run backwards within a shard.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from truecopy.cache.entry import unpack
from truecopy.cache.invalidation import ENTRY, Changed, Invalidator
from truecopy.cache.readthrough import ReadThrough
from truecopy.cache.store import Held, InProcess, Write
from truecopy.client.answer import Answer, Of
from truecopy.model.keyspace import keyspace_id, parse_key_range
from truecopy.model.position import Comparison, SequencePosition
from truecopy.model.token import EventToken, Origin, compare_tokens

KEYS = ("k0", "k1", "k2")
TILINGS = (("-",), ("-80", "80-"), ("-40", "40-c0", "c0-"))
_SECOND = 1_000_000
_AT_ONCE = 3
"""How many readers are at work at a time."""


class Killed(BaseException):
    """The operation is given up where it stands."""


class Operation(threading.Thread):
    """Something that goes on step by step, when the schedule lets it."""

    def __init__(self, work: Callable[[Operation], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._is_killed = False
        self.is_over = False
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        self._go.acquire()
        try:
            self._work(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - told by whoever steps
            self.failure = error
        self.is_over = True
        self._stopped.release()

    def pause(self) -> None:
        if self._is_killed:
            raise Killed
        self._stopped.release()
        self._go.acquire()
        if self._is_killed:
            raise Killed

    def step(self) -> None:
        """Until it stops again."""
        self._go.release()
        self._stopped.acquire()
        if self.failure:
            raise self.failure

    def kill(self) -> None:
        self._is_killed = True
        self.step()


@dataclass(frozen=True)
class Commit:
    key: str
    version: int
    token: EventToken


@dataclass
class Shard:
    name: str
    skew: int
    log: list[Commit] = field(default_factory=list)
    replicas: list[int] = field(default_factory=lambda: [0, 0])
    """How far each has applied the log; the primary has all of it."""

    def holds(self, key: str) -> bool:
        return parse_key_range(self.name).contains(keyspace_id("hash", key))

    def version(self, key: str, applied: int) -> int:
        return max((one.version for one in self.log[:applied] if one.key == key), default=0)

    def token(self, applied: int) -> EventToken:
        if not applied:
            return EventToken(0, self.name, SequencePosition(0))
        return self.log[applied - 1].token

    def commit(self, key: str, version: int, at: int, origin: Origin | None = None) -> None:
        token = EventToken(at, self.name, SequencePosition(len(self.log) + 1), origin)
        self.log.append(Commit(key, version, token))


@dataclass
class Generation:
    """The shards that serve at the same time.

    Attributes:
        entries: Where a stream enters their logs that has read those before them to their ends.
        ends: Where their logs end, once they have given way.
    """

    entries: dict[str, int]
    ends: dict[str, int] = field(default_factory=dict)


class World:
    """The schedule and the verdict.

    Args:
        seed: Decides everything.
        reader: The client; tests give wrong ones.
        invalidator: Likewise.
    """

    def __init__(
        self,
        seed: int,
        reader: type[ReadThrough] = ReadThrough,
        invalidator: type[Invalidator] = Invalidator,
    ) -> None:
        self.chance = random.Random(seed)
        self.keys = KEYS[: self.chance.choice((1, 1, 3))]
        self.cache = InProcess()
        self._reader, self._invalidator = reader, invalidator
        self.clock = self._flipped_at = 1_000_000 * _SECOND
        self.shards = {"-": Shard("-", 0)}
        self.generations = [Generation({"-": 0})]
        self.versions = dict.fromkeys(KEYS, 0)
        self.invalidated = dict.fromkeys(KEYS, 0)
        self.newest_put = dict.fromkeys(KEYS, 0)
        self.operations: list[Operation] = []
        self.invalidators = [Stream(self), Stream(self)]
        self.flaws: list[str] = []
        self.hits = self.puts = 0

    def run(self, steps: int = 500) -> list[str]:
        """What was wrong; empty when all was well."""
        actions: list[tuple[Callable[[], None], int]] = [
            (self._write, 40),
            (self._replicate, 40),
            (self._begin_read, 100),
            (self._begin_invalidation, 40),
            (self._step, 1500),
            (self._evict, 20),
            (self._kill, 5),
            (self._reshard, 3),
        ]
        names, weights = zip(*actions, strict=True)
        for action in self.chance.choices(names, weights, k=steps):
            action()
        self._settle()
        return self.flaws

    # The database

    @property
    def serving(self) -> tuple[str, ...]:
        return tuple(self.generations[-1].entries)

    def shard_of(self, key: str) -> Shard:
        return next(s for n in self.serving if (s := self.shards[n]).holds(key))

    def _write(self) -> None:
        key = self.chance.choice(self.keys)
        self.clock += self.chance.randrange(_SECOND // 4)
        shard = self.shard_of(key)
        self.versions[key] += 1
        # A log dates a transaction by when it began, which was not before its shard was written to.
        begun = max(self.clock - self.chance.choice((0, 0, 0, 5 * _SECOND)), self._flipped_at)
        shard.commit(key, self.versions[key], begun + shard.skew)

    def _replicate(self) -> None:
        shard = self.shards[self.chance.choice(list(self.shards))]
        which = self.chance.randrange(len(shard.replicas))
        end = len(shard.log)
        shard.replicas[which] = min(end, shard.replicas[which] + self.chance.randrange(1, 4))

    def _reshard(self) -> None:
        """Copies and filtered replication have caught up when the new shards serve; their replicas have not."""
        target = self.chance.choice([tiling for tiling in TILINGS if tiling != self.serving])
        for name in target:
            skew = self.chance.randrange(-_SECOND // 3, _SECOND // 3)
            shard = self.shards.setdefault(name, Shard(name, skew))
            if name in self.serving:
                continue
            moved = [
                (number, source, commit)
                for source in map(self.shards.__getitem__, self.serving)
                for number, commit in enumerate(source.log)
                if shard.holds(commit.key)
                and commit.version > shard.version(commit.key, len(shard.log))
                and source.version(commit.key, number) < commit.version
            ]
            for number, source, commit in sorted(moved, key=lambda one: one[0]):
                origin = Origin(source.name, SequencePosition(number + 1))
                shard.commit(commit.key, commit.version, commit.token.committed_at, origin)
        for name in self.serving:
            self.generations[-1].ends[name] = len(self.shards[name].log)
        self._flipped_at = self.clock
        self.generations.append(Generation({name: len(self.shards[name].log) for name in target}))

    # What happens

    def start(self, work: Callable[[Operation], None]) -> None:
        self.operations.append(Operation(work))

    def _begin_read(self) -> None:
        if len(self.operations) >= _AT_ONCE:
            return
        key = self.chance.choice(self.keys)
        self.start(lambda operation: self._read(operation, key))

    def _read(self, operation: Operation, key: str) -> None:
        known = self.invalidated[key]
        pausing = Pausing(self, operation)
        reader = self._reader(
            pausing,
            pausing,
            make=lambda answer: answer.rows[0][0],
            encode=lambda v: b"%d" % v,
            decode=int,
        )
        got = reader.get(key, key)
        if got.hit:
            self.hits += 1
            if got.value < known:
                self.flaws.append(
                    f"{key}: a hit gave {got.value} after {known} had been invalidated"
                )

    def note_put(self, key: str, version: int) -> None:
        self.puts += 1
        if version < self.newest_put[key]:
            self.flaws.append(f"{key}: {version} was put after {self.newest_put[key]}")
        self.newest_put[key] = max(version, self.newest_put[key])

    def _begin_invalidation(self) -> None:
        stream = self.chance.choice(self.invalidators)
        if not stream.is_busy and len(self.operations) <= _AT_ONCE:
            stream.is_busy = True
            self.start(stream.advance)

    def new_invalidator(self, operation: Operation) -> Invalidator:
        return self._invalidator(Pausing(self, operation))

    def _step(self) -> None:
        if self.operations:
            operation = self.chance.choice(self.operations)
            operation.step()
            self._drop_finished()

    def _kill(self) -> None:
        if self.operations:
            self.chance.choice(self.operations).kill()
            self._drop_finished()

    def _drop_finished(self) -> None:
        self.operations = [one for one in self.operations if not one.is_over]

    def _evict(self) -> None:
        held = list(self.cache._held)
        if held:
            self.cache._held.pop(self.chance.choice(held))

    def _settle(self) -> None:
        """One invalidator is gone for good; everything else goes on until nothing is left to do."""
        while self.operations:
            self._step()
        (self.invalidators[self.chance.randrange(2)]).finish()
        for key in self.keys:
            (held,) = self.cache.get([ENTRY + key])
            value = unpack(held.content).value if held else None
            if value is not None and int(value) != self.versions[key]:
                self.flaws.append(f"{key}: {int(value)} is cached, and it is {self.versions[key]}")


@dataclass(frozen=True)
class Standing:
    """Where a stream stands: in which generation, and in the logs of its shards."""

    generation: int
    offsets: Mapping[str, int]


class Stream:
    """One invalidator: where it stands, and where its checkpoint does."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._at = self._checkpoint = Standing(0, {"-": 0})
        self.is_busy = False

    def advance(self, operation: Operation, most: int = 3) -> None:
        """A batch; a death in between leads back to the checkpoint."""
        world = self._world
        try:
            after, commits = self._next(most)
            changes: list[Changed] = [(commit.key, commit.token) for commit in commits]
            world.new_invalidator(operation).invalidate(changes)
            for commit in commits:
                world.invalidated[commit.key] = max(world.invalidated[commit.key], commit.version)
            self._at = after
            if world.chance.random() < 0.5:
                self._checkpoint = after
        except Killed:
            self._at = self._checkpoint
            raise
        finally:
            self.is_busy = False

    def _next(self, most: int) -> tuple[Standing, list[Commit]]:
        """Shards that gave way are read to their ends; then the stream steps over to those that took their place."""
        world, offsets = self._world, dict(self._at.offsets)
        generation = world.generations[self._at.generation]
        commits: list[Commit] = []
        for name, at in offsets.items():
            log = world.shards[name].log
            offsets[name] = min(at + most, generation.ends.get(name, len(log)))
            commits += log[at : offsets[name]]
        if offsets != generation.ends:
            return Standing(self._at.generation, offsets), commits
        entries = {
            name: offsets[name] if name in offsets else max(at - world.chance.choice((0, 0, 3)), 0)
            for name, at in world.generations[self._at.generation + 1].entries.items()
        }
        return Standing(self._at.generation + 1, entries), commits

    def finish(self) -> None:
        world = self._world
        ends = {name: len(world.shards[name].log) for name in world.serving}
        while self._at != Standing(len(world.generations) - 1, ends):
            operation = Operation(lambda one: self.advance(one, 100))
            while not operation.is_over:
                operation.step()


class Pausing:
    """The cache and the database as one operation sees them: it stops in front of every question."""

    def __init__(self, world: World, operation: Operation) -> None:
        self._world = world
        self._operation = operation

    # The cache

    def get(self, keys: Sequence[str]) -> list[Held | None]:
        self._operation.pause()
        return self._world.cache.get(keys)

    def put(self, writes: Sequence[Write]) -> list[bool]:
        done = []
        for write in writes:  # each on its own
            self._operation.pause()
            (is_done,) = self._world.cache.put([write])
            if is_done and write.key.startswith(ENTRY):
                value = unpack(write.content).value
                if value is not None:
                    self._world.note_put(write.key.removeprefix(ENTRY), int(value))
            done.append(is_done)
        return done

    def clear(self) -> None:
        self._operation.pause()
        self._world.cache.clear()

    def close(self) -> None:
        pass

    # The database

    def query(
        self,
        sql: str,
        values: Sequence[object] = (),  # noqa: ARG002 - the key says it all
        *,
        of: Of | None = None,  # noqa: ARG002
        include_token: bool = False,  # noqa: ARG002
        compare_token: EventToken | None = None,
    ) -> Answer:
        self._operation.pause()
        chance = self._world.chance
        shard = self._world.shard_of(sql)
        applied = chance.choice([len(shard.log), *shard.replicas])
        behind = chance.choice((0, 0, 1, 2))
        token, bound = shard.token(max(applied - behind, 0)), shard.token(applied)
        version = shard.version(sql, applied)
        self._operation.pause()
        fresher = compare_token is not None and compare_tokens(token, compare_token) in (
            Comparison.NEWER,
            Comparison.SAME,
        )
        return Answer(("version",), [[version]], token, bound, fresher)

    def end(self, shard: str) -> EventToken | None:
        self._operation.pause()
        if shard not in self._world.serving or self._world.chance.random() < 0.05:
            return None
        found = self._world.shards[shard].token(len(self._world.shards[shard].log))
        self._operation.pause()
        return EventToken(0, shard, found.position)

    def serves(self, shard: str) -> bool:
        self._operation.pause()
        return shard in self._world.serving
