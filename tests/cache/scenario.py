"""The cache scenario on real servers: writers, lagging replicas, two invalidators, four readers, evictions, a reshard.

The invalidators are processes of the program itself, which are killed and started again. Readers are threads, each with
a client of its own, that begin anew now and then. Every write gives its row a number that grows, so what a reader is
given from the cache can be put in order.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import redis

import truecopy.client
from tests.servers import Server
from tests.stream.resharding import IDS, KeyspaceOnServers, Write, Writers, wait_until
from truecopy.cache.entry import unpack
from truecopy.cache.invalidation import ENTRY
from truecopy.cache.objects import object_key
from truecopy.cache.readthrough import ReadThrough
from truecopy.cache.store import open_cache
from truecopy.model.position import contains
from truecopy.model.token import KeyspacePosition, parse_any
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.request import Request

OBJECT = "account:{id}"
QUERY = "SELECT n FROM account WHERE id = %s"
OLD, NEW = ("-",), ("-80", "80-")
_KILL_SECONDS = 4.0

Hit = tuple[int, int | None]
"""A row's id, and the number that it had in the cache; None where it was not there."""


Step = tuple[float, Callable[[], None]]
"""After which part of the operations something happens."""


@dataclass
class Verdict:
    """What came of a run.

    Attributes:
        stepped_back: Hits that were older than one before, of the same reader and row.
        wrong: Entries that differ from the database in the end.
    """

    operations: int
    hits: int
    puts: int
    stepped_back: list[str]
    wrong: list[str]

    @property
    def is_right(self) -> bool:
        return not self.stepped_back and not self.wrong


def start_lagging_replica(primary: Server, replica: Server, seconds: int) -> None:
    replica.execute(
        None,
        f"CHANGE MASTER TO master_host='{primary.host}', master_port={primary.port},"
        f" master_user='{primary.user}', master_password='{primary.password}',"
        f" master_use_gtid=slave_pos, master_connect_retry=1, master_delay={seconds}; START SLAVE",
    )


@dataclass
class Scenario:
    bank: KeyspaceOnServers
    redis_url: str
    folder: Path
    reader: type[ReadThrough] = ReadThrough
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def run(self, operations: int) -> Verdict:
        readers: list[Reader] = []
        with ExitStack() as stack:
            invalidators = [Invalidating(self, number) for number in range(2)]
            for invalidator in invalidators:
                stack.enter_context(invalidator)
            wait_until(lambda: all(one.is_at_work for one in invalidators), 60)
            writers = stack.enter_context(Writers(self.bank))
            readers += [Reader(self, number) for number in range(4)]
            for reader in readers:
                stack.enter_context(reader)
            steps: Iterator[Step] = iter(
                [
                    (0.2, invalidators[0].kill_and_restart),
                    (0.35, lambda: self._prepare(writers)),
                    (0.55, lambda: self._flip(writers)),
                    (0.65, invalidators[1].kill_and_restart),
                    (0.75, self.bank.stop_replication),
                ]
            )
            with evictions(self.redis_url):
                self._until(operations, writers, readers, invalidators, steps)
            for reader in readers:
                reader.stop()
            writers.stop()
            done = _done(writers, readers)
            wrong = self._wrong_in_the_end(invalidators)
        states = _states(writers.committed)
        stepped_back = [flaw for reader in readers for flaw in _steps_back(reader.hits, states)]
        hits, puts = sum(len(one.hits) for one in readers), sum(one.puts for one in readers)
        return Verdict(done, hits, puts, stepped_back, wrong)

    def _until(
        self,
        operations: int,
        writers: Writers,
        readers: Sequence[Reader],
        invalidators: Sequence[Invalidating],
        steps: Iterator[Step],
    ) -> None:
        step = next(steps, None)
        killed_at = time.monotonic()
        while (done := _done(writers, readers)) < operations or step is not None:
            if step is not None and done >= step[0] * operations:
                step[1]()
                step = next(steps, None)
            if time.monotonic() - killed_at > _KILL_SECONDS:
                victim = self.chance.choice(invalidators)
                if victim.is_at_work:
                    victim.kill_and_restart()
                    killed_at = time.monotonic()
            for reader in readers:
                reader.check()
            for invalidator in invalidators:
                invalidator.check()
            assert not writers.failures, writers.failures
            time.sleep(0.02)

    def _prepare(self, writers: Writers) -> None:
        with writers.stopped():
            self.bank.replicate(OLD, NEW)

    def _flip(self, writers: Writers) -> None:
        with writers.stopped():
            self.bank.catch_up()
            self.bank.serve(NEW)

    def _wrong_in_the_end(self, invalidators: Sequence[Invalidating]) -> list[str]:
        """Entries that differ from the database when the invalidators have nothing left to do."""
        with KeyspaceStream(Request(str(self.bank.file))) as stream:
            end = stream.current().token()
        deadline = time.monotonic() + 60
        while not all(invalidator.has_reached(end) for invalidator in invalidators):
            assert time.monotonic() < deadline, "the invalidators do not catch up"
            for invalidator in invalidators:
                invalidator.check()
            time.sleep(0.1)
        truth = self.bank.rows()
        cache = open_cache(self.redis_url)
        wrong = []
        for row in IDS:
            (held,) = cache.get([ENTRY + object_key(OBJECT, id=row)])
            value = unpack(held.content).value if held else None
            if value is not None and _number(json.loads(value)) != truth.get(row):
                wrong.append(f"{row}: {value!r} is cached, and it is {truth.get(row)}")
        cache.close()
        return wrong


class Invalidating:
    """A process of `truecopy cache`, with a checkpoint of its own."""

    def __init__(self, scenario: Scenario, number: int) -> None:
        self._checkpoint = scenario.folder / f"invalidator-{number}"
        url = urlsplit(scenario.redis_url)
        self._command = [
            str(Path(sys.executable).with_name("truecopy")),
            "cache",
            str(scenario.bank.file),
            f"redis://:${{REDIS_PW}}@{url.hostname}:{url.port}/0",
            "--object",
            f"account={OBJECT}",
            "--checkpoint",
            str(self._checkpoint),
            "--from",
            "10m",
        ]
        self._environment = {**os.environ, "REDIS_PW": url.password or ""}
        self._log = scenario.folder / f"invalidator-{number}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Invalidating:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    @property
    def is_at_work(self) -> bool:
        """Whether it has got somewhere since it was started."""
        file = self._checkpoint / "position"
        return file.exists() and file.stat().st_mtime > self._started_at

    def _start(self) -> None:
        self._started_at = time.time()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log
            )

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill_and_restart(self) -> None:
        wait_until(lambda: self.is_at_work, 60)
        self._kill()
        self._start()

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()

    def has_reached(self, end: KeyspacePosition) -> bool:
        try:
            found = parse_any((self._checkpoint / "position").read_text())
        except FileNotFoundError:
            return False
        assert isinstance(found, KeyspacePosition)
        marks = {token.shard: found.of(token.shard) for token in end.tokens}
        return all(
            mark is not None and contains(mark.position, token.position)
            for token in end.tokens
            for mark in (marks[token.shard],)
        )


class Reader:
    """A thread that reads rows at random, through the cache."""

    def __init__(self, scenario: Scenario, number: int) -> None:
        self._scenario = scenario
        self._chance = random.Random(number)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"reader {number}")
        self.hits: list[Hit] = []
        self.reads = self.puts = 0

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a reader hangs"

    def check(self) -> None:
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        cache = open_cache(self._scenario.redis_url)
        try:
            while not self._stop.is_set():
                with truecopy.client.connect(str(self._scenario.bank.file)) as client:
                    reader = self._scenario.reader(client, cache)
                    for _ in range(self._chance.randrange(500, 3000)):
                        if self._stop.is_set():
                            break
                        self._read(reader)
        except BaseException as error:  # noqa: BLE001 - told by whoever checks
            self._failure = error
        finally:
            cache.close()

    def _read(self, reader: ReadThrough) -> None:
        row = self._chance.choice(IDS)
        got = reader.get(object_key(OBJECT, id=row), QUERY, (row,), of=("account", row))
        self.reads += 1
        self.puts += got.put
        if got.hit:
            self.hits.append((row, _number(got.value)))


@contextmanager
def evictions(url: str, pause: float = 0.03) -> Iterator[None]:
    """Keys go at random, and once in a while all of them."""
    stop = threading.Event()
    client = redis.Redis.from_url(url)

    def evict() -> None:
        chance = random.Random(7)
        while not stop.wait(pause):
            key = client.randomkey()
            if key is not None:
                client.delete(key)
            if chance.random() < 0.001:
                client.flushdb()

    thread = threading.Thread(target=evict, name="evictions")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        client.close()


def _done(writers: Writers, readers: Sequence[Reader]) -> int:
    return len(writers.committed) + sum(reader.reads for reader in readers)


def _number(rows: Sequence[Sequence[int]]) -> int | None:
    return rows[0][0] if rows else None


def _states(committed: set[Write]) -> Mapping[int, list[float]]:
    """When each row was not there: numbers between those that it had, in their order."""
    gone: dict[int, list[float]] = {row: [0.0] for row in IDS}
    for row, number in committed:
        if number < 0:
            gone[row].append(-number + 0.5)
    return {row: sorted(times) for row, times in gone.items()}


def _steps_back(hits: Sequence[Hit], gone: Mapping[int, list[float]]) -> Iterator[str]:
    """A row that is not there is taken for the first time that it was not, after what was seen before."""
    last = dict.fromkeys(IDS, 0.0)
    for row, number in hits:
        at = (
            number
            if number is not None
            else next((time for time in gone[row] if time >= last[row]), -1.0)
        )
        if at < last[row]:
            yield f"row {row} stepped back from {last[row]} to {number}"
        else:
            last[row] = at
