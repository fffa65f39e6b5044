"""A source in memory: shards with logs, and commits that are in the log before anybody can see them.

Two tables: `item` has a key and is written in every way, `event` has none and is only appended to. Each value
is written once in the life of a source, so that a row that is stale, lost or double shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

KEYS = 8
WHOLE, HALVES = "-", ("-80", "80-")


@dataclass(frozen=True)
class Change:
    """A row of `item` under its key, None where it goes; or a row of `event`, which has no key.

    `name` is what the source calls the row, where several names are one row on the target.
    """

    key: int | None
    value: int | None
    name: int = 0


@dataclass
class Commit:
    """`origin` is its place in the log of the shard that it was replicated from."""

    changes: tuple[Change, ...]
    is_visible: bool
    origin: int | None = None


@dataclass
class Shard:
    name: str
    log: list[Commit] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    is_dead: bool = False

    def holds(self, change: Change) -> bool:
        number = change.value if change.key is None else change.key
        assert number is not None
        if self.name == WHOLE:
            return True
        return (number % KEYS < KEYS // 2) == (self.name == HALVES[0])

    def commit(
        self, changes: Iterable[Change], *, is_visible: bool, origin: int | None = None
    ) -> None:
        self.log.append(Commit(tuple(changes), False, origin))
        if is_visible:
            self.show(self.log[-1])

    def show(self, commit: Commit) -> None:
        commit.is_visible = True
        for change in commit.changes:
            if change.key is None:
                continue
            if change.value is None:
                self.rows.pop(change.key, None)
            else:
                self.rows[change.key] = change.value

    def hidden(self) -> list[Commit]:
        return [commit for commit in self.log if not commit.is_visible]

    def visible(self) -> int:
        """The visibility point: all before it can be read."""
        for number, commit in enumerate(self.log):
            if not commit.is_visible:
                return number
        return len(self.log)

    def events(self, until: int) -> list[int]:
        return [
            change.value
            for commit in self.log[:until]
            for change in commit.changes
            if change.key is None and change.value is not None and commit.is_visible
        ]

    def seek_origin(self, position: int) -> int:
        """Up to where this log has nothing but what another shard had up to a position."""
        for number, commit in enumerate(self.log):
            if commit.origin is None or commit.origin > position:
                return number
        return len(self.log)


class Source:
    """The shards, and who may write.

    Attributes:
        was_mixed: The new shards got replicated transactions after writes of their own: who comes from the old
            one gets some of them twice.
    """

    def __init__(self, rng: Random, *, has_names: bool = False) -> None:
        self._rng = rng
        self._values = 0
        self._has_names = has_names
        self._names: dict[int, int] = {}
        self.shards = {WHOLE: Shard(WHOLE)}
        self.serving: tuple[str, ...] = (WHOLE,)
        self.is_locked = False
        self.was_mixed = False
        for _ in range(rng.randint(0, 6)):
            self.write()
        self.show_all()

    # What applications and the operator do

    def write(self) -> None:
        """One transaction, which may be in the log for a while before it can be read."""
        if self.is_locked:
            return
        shard = self.shards[self._rng.choice(self.serving)]
        # A row that was written by a commit that nobody sees yet is locked.
        locked = {change.key for commit in shard.hidden() for change in commit.changes}
        changes: dict[object, Change] = {}
        for _ in range(self._rng.choice((1, 1, 2, 3))):
            for change in self._changes():
                if change.key not in locked and shard.holds(change):
                    called = change if change.key is None else (change.key, change.name)
                    changes.pop(called, None)  # it comes last now
                    changes[called] = change
                    if change.key is not None:
                        self._names[change.key] = change.name
        if changes:
            shard.commit(changes.values(), is_visible=self._rng.random() < 0.6)

    def _changes(self) -> Iterator[Change]:
        self._values += 1
        kind = self._rng.random()
        key = self._rng.randrange(KEYS)
        if kind < 0.3:
            yield Change(None, self._values)
        elif kind < 0.5:
            yield self._change(key, None)
        elif kind < 0.6:  # the key of a row is changed
            yield self._change(key, None)
            yield self._change((key + 1) % KEYS, self._values)
        elif kind < 0.7 and self._has_names:
            yield self._change(key, None)
            yield Change(key, self._values, 1 - self._names.get(key, 0))
        else:
            yield self._change(key, self._values)

    def _change(self, key: int, value: int | None) -> Change:
        return Change(key, value, self._names.get(key, 0))

    def show(self) -> None:
        hidden = [(s, c) for s in self.shards.values() for c in s.hidden()]
        if hidden:
            shard, commit = self._rng.choice(hidden)
            shard.show(commit)

    def show_all(self) -> None:
        for shard in self.shards.values():
            for commit in shard.hidden():
                shard.show(commit)

    def lock(self) -> None:
        """Writers are out, and what they had begun to commit is through."""
        self.is_locked = True
        self.show_all()

    def reshard(self) -> None:
        """One shard gives way to two, which filtered replication has brought everything."""
        if self.serving != (WHOLE,):
            return
        self.show_all()
        for name in HALVES:
            self.shards[name] = Shard(name)
        for number, commit in enumerate(self.shards[WHOLE].log, 1):
            self._replicate(number, commit)
        self.serving = HALVES

    def write_late(self) -> None:
        """A client that has not heard of the reshard; what it writes is replicated."""
        old = self.shards[WHOLE]
        if self.serving == (WHOLE,) or old.is_dead or self.is_locked:
            return
        key = self._rng.randrange(KEYS)
        new = next(s for s in self.shards.values() if s is not old and s.holds(Change(key, None)))
        locked = {change.key for commit in new.hidden() for change in commit.changes}
        if key not in locked and old.rows.get(key) == new.rows.get(key):
            self._values += 1
            self.was_mixed = True
            old.commit([self._change(key, self._values)], is_visible=True)
            self._replicate(len(old.log), old.log[-1])

    def _replicate(self, number: int, commit: Commit) -> None:
        for name in HALVES:
            shard = self.shards[name]
            if chosen := [change for change in commit.changes if shard.holds(change)]:
                shard.commit(chosen, is_visible=True, origin=number)

    def kill_old_shard(self) -> None:
        if self.serving != (WHOLE,):
            self.shards[WHOLE].is_dead = True

    # What a reader sees

    def row(self, key: int) -> int | None:
        for name in self.serving:
            if self.shards[name].holds(Change(key, None)):
                return self.shards[name].rows.get(key)
        raise AssertionError(key)

    def rows(self, low: int = 0, high: int = KEYS) -> dict[int, int]:
        found = {key: self.row(key) for key in range(low, high)}
        return {key: value for key, value in found.items() if value is not None}

    def events(self) -> list[int]:
        return sorted(
            e for n in self.serving for e in self.shards[n].events(len(self.shards[n].log))
        )

    def events_at(self) -> tuple[list[int], dict[str, int]]:
        """The rows without a key in a snapshot whose position is known exactly, and that position."""
        at = {name: self.shards[name].visible() for name in self.serving}
        return [e for name, until in at.items() for e in self.shards[name].events(until)], at
