"""A source, a replication, a target and a validator, as a few lines of Python each: every schedule can happen.

The log is a list; a position is its length so far. The validator is the real one (`judge.Round`), with its
state kept as bytes between rounds, as the metastore does it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from truecopy.model.endpoint import parse_endpoint
from truecopy.model.relation import Relation
from truecopy.model.table import Column, TableName
from truecopy.model.types import Text
from truecopy.transfer.continuous.compare import Check, Comparer
from truecopy.transfer.continuous.entries import CHANGE, ENTRIES, from_bytes, name_of, to_bytes
from truecopy.transfer.continuous.judge import Event, Round, Rules, Seen
from truecopy.transfer.continuous.newest import Emptied

SECOND = 1_000_000
SHARD, TABLE, SCHEMA = "s", "t", "one"
INTERVAL, DELAY = 10 * SECOND, 60 * SECOND


def comparer() -> Comparer:
    columns = (Column("id", Text(), "text"), Column("v", Text(), "text"))
    relation = Relation(
        parse_endpoint("sqlite:///x"), (TableName(None, TABLE),), columns, (Text(), Text()), 1
    )
    check = Check(TABLE, relation, ("id", "v"), (0, 1), (0,), (Text(), Text()))
    return Comparer({SCHEMA: check})


@dataclass
class World:
    """What there is, and what the validator believes.

    Attributes:
        exact: The target tells its position; else it is only known to be somewhere up to the end of the log.
        looks: By key: when the validator looked, whether the target was right then, and its position.
    """

    exact: bool = True
    now: int = 1000 * SECOND
    log: list[tuple[str, str | None]] = field(default_factory=list)
    applied: int = 0
    target: dict[str, str] = field(default_factory=dict)
    pinned: dict[str, str | None] = field(default_factory=dict)
    read: int = 0
    kept: bytes = field(default_factory=lambda: to_bytes(ENTRIES.empty_table()))
    errors: dict[str, Event] = field(default_factory=dict)
    told: list[Event] = field(default_factory=list)
    looks: dict[str, list[tuple[int, bool, int]]] = field(default_factory=dict)

    # The world

    def write(self, key: str, value: str | None) -> None:
        self.log.append((key, value))

    def replicate(self, changes: int) -> None:
        for _ in range(min(changes, len(self.log) - self.applied)):
            key, value = self.log[self.applied]
            self.applied += 1
            self._put(key, self.pinned.get(key, value))

    def corrupt(self, key: str, value: str | None, *, pin: bool = False) -> None:
        if pin:
            self.pinned[key] = value
        self._put(key, value)

    def repair(self, key: str) -> None:
        self.pinned.pop(key, None)
        self._put(key, self.image(key, self.applied))

    def _put(self, key: str, value: str | None) -> None:
        if value is None:
            self.target.pop(key, None)
        else:
            self.target[key] = value

    def image(self, key: str, position: int) -> str | None:
        for changed, value in reversed(self.log[:position]):
            if changed == key:
                return value
        return None

    def is_right(self, key: str) -> bool:
        return self.target.get(key) == self.image(key, self.applied)

    def is_touched(self, key: str) -> bool:
        return any(changed == key for changed, _ in self.log[: self.read])

    # The validator

    @property
    def entries(self) -> pa.Table:
        return from_bytes(self.kept)

    def round(
        self,
        until: int,
        *,
        crash: bool = False,
        recheck: bool = False,
        released: Mapping[str, int] | None = None,
        emptied: bool = False,
        marks: bool = True,
    ) -> None:
        """Checks the changes up to a position, which must be applied; a crash comes before anything is stored.

        Args:
            until: The position.
            crash: Nothing is stored.
            recheck: All errors are looked at.
            released: Keys that are let go of, and the position at which that was said.
            emptied: The table was emptied before all of these changes.
            marks: Errors may be told by now.
        """
        assert until <= self.applied
        changes = self._changes(self.read, until)
        asked = frozenset(name_of(SHARD, TABLE, [key]) for key in self.errors if recheck)
        rules = Rules(
            self.now,
            INTERVAL,
            DELAY,
            3600 * SECOND,
            {SHARD: str(until)},
            marks,
            asked=asked,
            released={
                name_of(SHARD, TABLE, [key]): {SHARD: str(at)}
                for key, at in (released or {}).items()
            },
            emptied={(SHARD, TABLE): Emptied(-1, 0, str(until))} if emptied else {},
        )
        done = Round(self.entries, changes, rules, comparer())
        if len(done.wanted):
            done.settle(self._look(done.asked_for))
        if crash:
            return
        self.kept, self.read = to_bytes(done.left()), until
        for event in done.events:
            key = event.image["key"][0]
            self.told.append(event)
            if event.resolved:
                self.errors.pop(key, None)
            else:
                self.errors[key] = event

    def _look(self, images: pa.Table) -> Seen:
        keys = [key[0] for key in images.column("key").to_pylist()]
        for key in keys:
            self.looks.setdefault(key, []).append((self.now, self.is_right(key), self.applied))
        there = np.array([key in self.target for key in keys])
        held = [[key, self.target[key]] if key in self.target else None for key in keys]
        rows = pa.array(held, pa.list_(pa.string()))
        position = str(self.applied if self.exact else len(self.log))
        right = comparer().equal(images, there, rows)
        at = pa.array([position] * len(keys), pa.string())
        return Seen(np.ones(len(keys), bool), right, rows, at, self.exact)

    def _changes(self, start: int, end: int) -> pa.Table:
        rows = [
            {
                "shard": SHARD,
                "table": TABLE,
                "slice": 0,
                "schema_id": SCHEMA,
                "kind": "delete" if value is None else "update",
                "key": [key],
                "row": None if value is None else [key, value],
                "unchanged": None,
                "position": str(start + at + 1),
                "commit_order": at,
                "seq": 0,
                "step": 0,
            }
            for at, (key, value) in enumerate(self.log[start:end])
        ]
        return pa.Table.from_pylist(rows, schema=CHANGE)


def schedule(seed: int, *, exact: bool, steps: int = 80) -> World:
    """A random history: writes, lag, corruption, repair, checks, crashes; at its end everything has come to rest."""
    chance, world = random.Random(seed), World(exact)
    keys = [f"k{n}" for n in range(chance.randrange(1, 16))]
    for _ in range(steps):
        world.now += chance.randrange(1, 8) * SECOND
        key = chance.choice(keys)
        match chance.randrange(12):
            case 0 | 1 | 2 | 3:
                for _ in range(chance.randrange(1, 6)):
                    busy = chance.choice((key, chance.choice(keys)))
                    world.write(busy, None if chance.random() < 0.2 else f"v{chance.randrange(9)}")
            case 4 | 5:
                world.replicate(chance.randrange(1, 12))
            case 6:
                wrong = chance.choice((None, "bad", f"v{chance.randrange(9)}"))
                world.corrupt(key, wrong, pin=chance.random() < 0.5)
            case 7:
                world.repair(key)
            case _:
                if world.applied >= world.read:
                    until = chance.randrange(world.read, world.applied + 1)
                    world.round(until, crash=chance.random() < 0.15)
    world.replicate(len(world.log))
    for _ in range(12):
        world.now += INTERVAL
        world.round(world.applied, recheck=True)
    return world
