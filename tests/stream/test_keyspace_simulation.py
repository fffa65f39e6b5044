"""The stream of a keyspace under random schedules of writes, replication, reshards, crashes and purges.

What may go wrong between any two steps, and what must come of it:

- *The stream crashes* after a batch was handed out and before its offset was kept, or at any step of a
  reshard, and starts again from its offset, its token or its `restart_at`: nothing is lost; what comes twice is
  known by its token.
- *A flip is seen late*, when the destinations were written to for long: those writes have no origin, and
  the stream must enter the destinations before them.
- *Writes reach a destination before the replication has caught up* (a flip without a write stop): they lie
  between replicated transactions, of which the later ones were given from the source. Still none is passed over.
- *A source still gets a late write* after its end was noted: it comes through the destination.
- *A destination has no traffic from one of its sources*: nothing recorded there is no reason to lose or to hang.
- *Several flips come in a row* before the stream took part in the first: the way leads over the shards in
  between, since only they have the changes between the two.
- *A flip is taken back*: the old shards go on, and what they had given before does not come again.
- *A source dies* while it is converged on: the rest comes from the destinations.
- *A log was purged*: the stream says so and ends, and does not go on behind a hole.
- *Times step back* in a log (a transaction that waited) and in a merge: never within a key.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.stream.simulated import KEYS, Consumer, SimulatedShard, World
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.model.keyspace import Keyspace, parse_keyspace
from truecopy.stream import request, resharding, shard
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.log import LogGone
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request

TILINGS = (
    ("-",),
    ("-80", "80-"),
    ("-40", "40-80", "80-"),
    ("-40", "40-80", "80-c0", "c0-"),
    ("-40", "40-c0", "c0-"),
    ("-60", "60-a0", "a0-"),
)
_SECOND = 1_000_000


class Reshards(RuleBasedStateMachine):
    """A keyspace, whoever operates it, and one consumer of its stream."""

    @initialize(tiling=st.sampled_from(TILINGS[:4]), backlog=st.integers(0, 3))
    def begin(self, tiling: tuple[str, ...], backlog: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.folder = Path(tempfile.mkdtemp(prefix="truecopy-simulation-"))
        self.world = World(self.folder / "keyspace.yaml", tiling)
        self.patch.setattr(shard, "open_log", self.world.open_log)
        # The file is JSON, which is read in a tenth of the time.
        self.patch.setattr(request, "load_keyspace", load_json)
        self.patch.setattr(resharding, "SOURCE_SECONDS", 0.0)
        self.patch.setattr(resharding, "PATIENCE_SECONDS", -1.0)
        self.patch.setattr(shard, "PATIENCE_SECONDS", -1.0)
        self.target: tuple[str, ...] = ()
        self.consumer = Consumer()
        self.expected: set[tuple[str, int]] = set()
        self.has_purged = False
        # A token and a time do not say what was left, so a shard that serves again may be read again.
        self.is_exact = True
        self.has_slept = False
        for key in KEYS[:backlog]:
            self.world.write(self.world.serving_shard(key), [key], 0)
        self.stream = self.open()
        self.offset = self.stream.start("current")
        self.restart_at: int | None = None
        self.is_over = False

    def open(self) -> KeyspaceStream:
        return KeyspaceStream(Request(str(self.world.file), wait=0.0, skew=1.0))

    def teardown(self) -> None:
        if not hasattr(self, "patch"):
            return
        try:
            self.end()
        finally:
            self.stream.close()
            self.patch.undo()
            shutil.rmtree(self.folder)

    # What the application and the operator do

    @rule(
        key=st.sampled_from(KEYS),
        more=st.lists(st.sampled_from(KEYS), max_size=2),
        tick=st.sampled_from((0, 1000, 300_000, 3 * _SECOND)),
        backdate=st.sampled_from((0, 0, 0, 2 * _SECOND)),
    )
    def write(self, key: str, more: list[str], tick: int, backdate: int) -> None:
        self.world.tick(tick)
        self.write_to(self.world.serving_shard(key), [key, *more], backdate)

    @rule(key=st.sampled_from(KEYS), name=st.sampled_from(sorted({n for t in TILINGS for n in t})))
    def write_late(self, key: str, name: str) -> None:
        """A client that has not heard of the flip; the shard it writes to must still be replicated from."""
        old = self.world.shards.get(name)
        new = self.world.serving_shard(key)
        if old is None or old is new or not old.holds(key) or not self.world.link(old, new):
            return
        # Writes on both ends of a replication that runs both ways have no order that anybody could keep.
        if old.rows.get(key) == new.rows.get(key) and not self.world.link(new, old):
            self.write_to(old, [key], 0)
            self.world.served_since = self.world.now

    def write_to(self, shard: SimulatedShard, keys: list[str], backdate: int) -> None:
        keys = [k for k in keys if shard.holds(k) and self.world.is_writable(shard, k)]
        if keys and not shard.is_dead:
            self.expected.update(self.world.write(shard, keys, backdate))

    @rule(which=st.integers(0, 20), most=st.integers(1, 5), record_all=st.booleans())
    def replicate(self, which: int, most: int, record_all: bool) -> None:
        if self.world.links:
            link = self.world.links[which % len(self.world.links)]
            link.replicate(self.world.now, most, record_all)

    @rule(tiling=st.sampled_from(TILINGS))
    def prepare(self, tiling: tuple[str, ...]) -> None:
        if set(tiling) != set(self.world.serving):
            # Whoever copies takes care that what it copies from is complete.
            self.world.drain()
            self.world.prepare(tiling)
            self.target = tiling

    @precondition(lambda self: self.target)
    @rule(has_write_stop=st.booleans(), reverse=st.booleans())
    def flip(self, has_write_stop: bool, reverse: bool) -> None:
        if not self.world.is_ready(self.target):
            return
        if has_write_stop:
            self.world.drain()
        if set(self.offset.marks) != set(self.world.serving):
            # It sleeps through one reshard after another: nothing is lost, but the logs that tell what came
            # first are not the ones that the consumer has tokens of.
            self.is_exact, self.has_slept = False, True
        self.world.flip(self.target, reverse)
        self.target = ()

    @rule(which=st.integers(0, 20), purge=st.booleans(), really=st.integers(0, 3))
    def lose_a_shard(self, which: int, purge: bool, really: int) -> None:
        """An old shard is taken away, or any log is cut, once all that is in it was replicated."""
        shards = list(self.world.shards.values())
        shard = shards[which % len(shards)]
        outbound = [link for link in self.world.links if link.source is shard]
        if any(link.pending_keys() for link in outbound) or really:
            return
        if purge:
            shard.first = len(shard.log) // 2
            self.has_purged = self.has_purged or shard.first > 0
        elif shard.name not in (*self.world.serving, *self.target) and outbound:
            shard.is_dead = True

    # What the stream does

    @precondition(lambda self: not self.is_over)
    @rule(most=st.sampled_from((1, 2, 4, 100)), parts=st.integers(1, 2), crashes=st.booleans())
    def step(self, most: int, parts: int, crashes: bool) -> None:
        after = self.advance(most)
        if after is None:
            return
        changes = self.read(self.offset, after, parts)
        if crashes:
            changes = changes[: len(changes) // 2]
        for change in changes:
            flaw = self.consumer.take(change)
            assert not (flaw and self.is_exact), flaw
            at = change["restart_at"]
            self.restart_at = int(at.timestamp() * _SECOND) if at else None
        if crashes:
            self.restart()
        else:
            self.offset = after

    def restart(self) -> None:
        self.stream.close()
        self.stream = self.open()
        self.offset = Offset.parse(json.loads(json.dumps(self.offset.plain())))

    @precondition(lambda self: not self.is_over)
    @rule(by_time=st.booleans())
    def restart_anew(self, by_time: bool) -> None:
        point: Any = self.offset.token()
        if by_time:
            if self.restart_at is None:
                return
            point = self.restart_at
        self.stream.close()
        self.stream = self.open()
        try:
            self.offset = self.stream.start(point)
        except LogGone:
            assert self.has_purged or by_time
            return
        self.is_exact = False

    def advance(self, most: int) -> Offset | None:
        """None where the stream had to give up, for a good reason."""
        failure: TruecopyError | None = None
        try:
            return self.stream.advance(self.offset, most, 0.0)
        except TruecopyError as error:
            failure = error
        is_dead = any(shard.is_dead for shard in self.world.shards.values())
        is_purged = self.has_purged and isinstance(failure, LogGone)
        is_lost = self.has_slept and isinstance(failure, UsageError)
        assert is_dead or is_purged or is_lost, failure
        self.is_over = True
        return None

    def read(self, start: Offset, end: Offset, parts: int) -> list[dict[str, Any]]:
        found = []
        for part in self.stream.parts(start, end, parts):
            for batch in part.read():
                found += batch.to_pylist()
        return found

    def end(self) -> None:
        """Replication ends, the stream catches up, and everything must be there."""
        self.world.drain()
        for _ in range(2000):
            before = self.offset
            if not self.is_over:
                self.step(100, 1, crashes=False)
            if self.is_over:
                return
            if self.offset == before and set(before.marks) == set(self.world.serving):
                break
        else:
            raise AssertionError(f"the stream hangs at {self.offset}")
        if any(shard.has_hole for shard in self.world.shards.values()):
            return  # the one thing that cannot be told
        assert self.expected <= self.consumer.given, self.expected - self.consumer.given
        truth = self.world.truth()
        wrong = {k: (v, truth[k]) for k, v in self.consumer.rows.items() if v != truth[k]}
        assert not wrong, wrong


def load_json(path: str) -> Keyspace:
    return parse_keyspace(json.loads(Path(path).read_bytes()))


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Reshards,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_schedules() -> None:
    run(examples=150, steps=40)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_random_schedules() -> None:
    run(examples=5000, steps=80)
