"""Shards in memory, with filtered replication between them: schedules by the thousand, which servers cannot do.

Only the logs are simulated, and they keep to the protocol of `truecopy.stream.log`; the stream over them
is the real one. Keys are bytes, written as two hex digits, and are their own keyspace ids. Every write of a
key has the next version of it, so that losses and steps back are seen at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from truecopy.model.change import CHANGE_SCHEMA, UPDATE
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.keyspace import KeyRange, parse_key_range
from truecopy.model.position import Comparison
from truecopy.model.token import compare_tokens, token_of_change
from truecopy.stream.log import Lag, Level, LogGone, Mark, Part, Wanted
from truecopy.stream.origins import Applied, hop_point

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEYS = tuple(f"{high:x}0" for high in range(16))

Write = tuple[str, int]
"""A key and its new version."""


@dataclass(frozen=True)
class Transaction:
    """`at` is when it was committed first, `logged_at` when it got into this log."""

    at: int
    logged_at: int
    writes: tuple[Write, ...]
    origin: tuple[str, int] | None = None
    begins: bool = False


@dataclass
class SimulatedShard:
    name: str
    log: list[Transaction] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    fed_by: dict[str, int] = field(default_factory=dict)
    first: int = 0  # transactions that were removed from the log
    is_dead: bool = False

    @property
    def key_range(self) -> KeyRange:
        return parse_key_range(self.name)

    def holds(self, key: str) -> bool:
        return self.key_range.contains(bytes.fromhex(key))

    @property
    def has_hole(self) -> bool:
        """Whether others wrote to it before replication had caught up, and such a write was cut from the log.

        Nobody could tell from what is left: it looks like a log from which only replicated ones were cut.
        """
        kinds = "".join("o" if t.origin else "w" for t in self.log)
        copied = len(kinds) - len(kinds.lstrip("w"))
        return "w" in kinds[copied : self.first] and "o" in kinds[self.first :]

    def commit(self, transaction: Transaction) -> None:
        self.log.append(transaction)
        self.rows.update(transaction.writes)
        if transaction.origin:
            shard, position = transaction.origin
            self.fed_by[shard] = position


@dataclass
class Link:
    """Filtered replication from one shard to another; `position` is how far it has come."""

    source: SimulatedShard
    target: SimulatedShard
    position: int

    def pending(self) -> Iterator[tuple[int, Transaction, tuple[Write, ...]]]:
        for number in range(self.position, len(self.source.log)):
            transaction = self.source.log[number]
            comes_back = transaction.origin and transaction.origin[0] == self.target.name
            chosen = () if comes_back else transaction.writes
            yield number + 1, transaction, tuple(w for w in chosen if self.target.holds(w[0]))

    def pending_keys(self) -> set[str]:
        return {key for _, _, writes in self.pending() for key, _ in writes}

    def replicate(self, now: int, most: int, record_all: bool) -> None:
        for position, transaction, writes in list(self.pending())[:most]:
            self.position = position
            if writes or record_all:
                origin = self.source.name, position
                self.target.commit(Transaction(transaction.at, now, writes, origin))


class World:
    """The shards, who serves, and the clock."""

    def __init__(self, file: Path, serving: Sequence[str]) -> None:
        self.file = file
        self.shards = {name: SimulatedShard(name) for name in serving}
        self.serving = list(serving)
        self.links: list[Link] = []
        self.now = time.time_ns() // 1000
        self.served_since = self.now
        self.versions = dict.fromkeys(KEYS, 0)
        self.save()

    def save(self) -> None:
        """A new file each time, renamed into its place, as an operator should do it."""
        shards = {
            name: {"servers": [f"fake://{name}/db"], "serving": name in self.serving}
            for name in self.shards
        }
        draft = self.file.with_suffix(".new")
        draft.write_text(json.dumps({"keyspace": "sim", "shards": shards}))
        draft.rename(self.file)

    def open_log(self, endpoint: Endpoint, wanted: Wanted) -> SimulatedLog:
        return SimulatedLog(self.shards[endpoint.host], wanted)

    def tick(self, microseconds: int) -> int:
        self.now += microseconds
        return self.now

    def serving_shard(self, key: str) -> SimulatedShard:
        return next(self.shards[name] for name in self.serving if self.shards[name].holds(key))

    def write(self, shard: SimulatedShard, keys: Sequence[str], backdate: int) -> list[Write]:
        """One transaction; it may be dated before others of the log, and not before its shard served."""
        writes = []
        for key in keys:
            self.versions[key] += 1
            writes.append((key, self.versions[key]))
        at = max(self.now - backdate, self.served_since)
        shard.commit(Transaction(at, at, tuple(writes)))
        return writes

    def is_writable(self, shard: SimulatedShard, key: str) -> bool:
        """Whether a write is in order: nothing that is older is still on its way here."""
        inbound = (link for link in self.links if link.target is shard)
        return not any(key in link.pending_keys() for link in inbound)

    def prepare(self, target: Sequence[str], record: bool = True) -> None:
        """Copies what the new shards hold, and starts the replication to them."""
        for name in target:
            if name in self.shards:
                continue
            shard = self.shards[name] = SimulatedShard(name)
            sources = [
                source
                for source in map(self.shards.__getitem__, self.serving)
                if source.key_range.overlaps(shard.key_range)
            ]
            for source in sources:
                copied = tuple((k, v) for k, v in source.rows.items() if shard.holds(k))
                at = self.tick(1000)
                shard.commit(Transaction(at, at, copied))
            for source in sources:
                self.start(Link(source, shard, len(source.log)), record)
        self.save()

    def start(self, link: Link, record: bool = True) -> None:
        """Replication records where it begins, before anything else."""
        if record:
            at = self.tick(1000)
            origin = link.source.name, link.position
            link.target.commit(Transaction(at, at, (), origin, begins=True))
        self.links.append(link)

    def flip(self, target: Sequence[str], reverse: bool) -> None:
        before = [name for name in self.serving if name not in target]
        after = [name for name in target if name not in self.serving]
        self.serving = list(target)
        self.served_since = self.now
        if reverse:
            for old in map(self.shards.__getitem__, before):
                for new in map(self.shards.__getitem__, after):
                    if old.key_range.overlaps(new.key_range) and not self.link(new, old):
                        self.start(Link(new, old, len(new.log)))
        self.save()

    def link(self, source: SimulatedShard, target: SimulatedShard) -> Link | None:
        return next((k for k in self.links if k.source is source and k.target is target), None)

    def is_ready(self, target: Sequence[str]) -> bool:
        """Whether every new shard is there, and fed from all that serve now."""
        for name in target:
            if name in self.serving:
                continue
            shard = self.shards.get(name)
            if shard is None or shard.is_dead:
                return False
            for source in map(self.shards.__getitem__, self.serving):
                if source.key_range.overlaps(shard.key_range) and not self.link(source, shard):
                    return False
        return True

    def drain(self) -> None:
        """Replicates everything, through chains and circles, too."""
        while any(writes for link in self.links for _, _, writes in link.pending()):
            for link in self.links:
                link.replicate(self.now, 1 << 30, record_all=False)

    def truth(self) -> dict[str, int]:
        rows: dict[str, int] = {}
        for name in self.serving:
            rows.update(self.shards[name].rows)
        return rows


class SimulatedLog:
    """See `ChangeLog`; a transaction is one byte."""

    level = Level.TRANSACTION

    def __init__(self, shard: SimulatedShard, wanted: Wanted) -> None:
        self._shard = shard
        self._wanted = wanted

    @property
    def shard(self) -> SimulatedShard:
        if self._shard.is_dead:
            raise CannotFinish(f"{self._shard.name} is dead")
        return self._shard

    def missing(self) -> list[str]:
        return []

    def mark(self, number: int) -> Mark:
        at = self.shard.log[number - 1].logged_at if number else 0
        return Mark(str(number), committed_at=at, written=number)

    def oldest(self) -> Mark:
        return self.mark(self.shard.first)

    def current(self) -> Mark:
        return self.mark(len(self.shard.log))

    def seek(self, position: str) -> Mark:
        number = int(position or 0)
        if not self.shard.first <= number <= len(self.shard.log):
            raise LogGone(f"{self.shard.name} has no {position}")
        return self.mark(number)

    def seek_time(self, at: int) -> Mark:
        shard = self.shard
        for number in range(shard.first, len(shard.log)):
            if shard.log[number].logged_at >= at:
                if number == shard.first and shard.first:
                    raise LogGone(f"{shard.name} starts later")
                return self.mark(number)
        return self.current()

    def advance(self, start: Mark, max_bytes: int, wait: float) -> Mark:  # noqa: ARG002 - nothing to wait for
        number = int(start.position or 0)
        self.seek(start.position)
        after = min(number + max(max_bytes, 1), len(self.shard.log))
        return self.mark(after) if after > number else start

    def split(self, start: Mark, end: Mark, parts: int) -> Sequence[Part]:
        low, high = int(start.position or 0), int(end.position)
        middle = (low + high) // 2
        cuts = [low, middle, high] if parts > 1 and low < middle < high else [low, high]
        return [SimulatedPart(self.shard, a, b, low) for a, b in pairwise(cuts)]

    def lag(self, mark: Mark) -> Lag:
        return Lag(len(self.shard.log) - int(mark.position), 0.0)

    def release(self, mark: Mark) -> None: ...
    def close(self) -> None: ...

    def fed_by(self) -> Mapping[str, str]:
        return {name: str(position) for name, position in self.shard.fed_by.items()}

    def fed_since(self) -> int:
        log = self.shard.log
        return log[0].logged_at if log and not self.shard.first else 0

    def seek_origin(self, origins: Mapping[str, str]) -> Mark:
        log = (
            Applied(self.mark(number), *_text(t.origin), t.begins)
            for number, t in enumerate(self.shard.log, 1)
            if number > self.shard.first and (t.writes or t.origin)
        )
        complete = not self.shard.first
        return hop_point(log, origins, self.fed_by(), self.oldest(), complete, self.shard.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def _text(origin: tuple[str, int] | None) -> tuple[str, str]:
    return (origin[0], str(origin[1])) if origin else ("", "")


@dataclass(frozen=True)
class SimulatedPart:
    shard: SimulatedShard
    low: int
    high: int
    first: int

    def read(self) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        for number in range(self.low, self.high):
            transaction = self.shard.log[number]
            origin = transaction.origin
            for seq, (key, version) in enumerate(transaction.writes):
                rows.append(
                    {
                        "shard": self.shard.name,
                        "position": str(number + 1),
                        "txn": str(number + 1),
                        "commit_order": number - self.first,
                        "seq": seq,
                        "committed_at": _EPOCH + timedelta(microseconds=transaction.at),
                        "kind": UPDATE,
                        "table": "t",
                        "key": [key],
                        "after": [key, str(version)],
                        "origin": f"{origin[0]} {origin[1]}" if origin else None,
                    }
                )
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=CHANGE_SCHEMA)


class Consumer:
    """Keeps the newest version of each key by comparing tokens, and everything it was ever given."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.given: set[Write] = set()
        self._tokens: dict[str, tuple[Mapping[str, Any], int]] = {}

    def take(self, change: Mapping[str, Any]) -> str:
        """Applies a change, or drops it; what was wrong with it, if anything."""
        key, version = change["key"][0], int(change["after"][1])
        flaw = ""
        if self._is_news(key, change):
            if version < self.rows.get(key, 0):
                flaw = f"{key} stepped back from {self.rows[key]} to {version}"
            self.rows[key] = version
            self._tokens[key] = change, change["seq"]
        elif (key, version) not in self.given:
            flaw = f"version {version} of {key} was dropped as old, and never given"
        self.given.add((key, version))
        return flaw

    def _is_news(self, key: str, change: Mapping[str, Any]) -> bool:
        if key not in self._tokens:
            return True
        last, seq = self._tokens[key]
        answer = compare_tokens(token_of_change(change), token_of_change(last))
        if answer is Comparison.SAME:
            return bool(change["seq"] > seq)
        return answer is not Comparison.OLDER
