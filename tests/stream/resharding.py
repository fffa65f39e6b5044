"""A keyspace on real servers: its file, writers, filtered replication, and a consumer that keeps rows by key.

    keyspace = KeyspaceOnServers(file, {"-80": one, "80-": two}, serving=["-80", "80-"])
    with Writers(keyspace) as writers, keyspace.replicating(["-80"], ["-40", "40-80"]):
        ...
        with writers.stopped():
            keyspace.catch_up()
            keyspace.serve(["-40", "40-80", "80-"])

Every write gives its row a number that no other write has, and that grows: so a change that is missing, and a
row that steps back, can be told.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import yaml

from tests.servers import Database, MariaDB, Server
from truecopy.model.change import DELETE, HEARTBEAT
from truecopy.model.keyspace import keyspace_id, parse_key_range
from truecopy.model.position import Comparison, contains, parse_position
from truecopy.model.token import compare_tokens, parse_any, parse_token
from truecopy.stream.follow import Change, Following
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.request import Point, Request

TWO, FOUR, ONE = ("-80", "80-"), ("-40", "40-80", "80-c0", "c0-"), ("-",)
IDS = range(1, 120)
TABLE = "CREATE TABLE account (id INT PRIMARY KEY, n BIGINT NOT NULL, note VARCHAR(40))"
ORIGIN = "CREATE TABLE truecopy_origin (shard VARCHAR(190) PRIMARY KEY, position TEXT, committed_at BIGINT)"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Write = tuple[int, int]
"""A row's id, and the number that it got, or had when it was deleted (then as a negative one)."""


@contextmanager
def small_servers() -> Iterator[list[Server]]:
    """Four, one for each shard of the largest generation."""
    small = "--innodb-log-file-size=4M", "--performance-schema=OFF"
    with ExitStack() as stack:
        yield [stack.enter_context(MariaDB(*small, buffer_pool="16M")) for _ in range(4)]


@contextmanager
def keyspace_on(
    homes: Mapping[str, Server], file: Path, serving: Sequence[str]
) -> Iterator[KeyspaceOnServers]:
    """A keyspace with a database for each shard, on the server that is its home."""
    name = f"bank_{secrets.token_hex(4)}"
    databases = {
        shard: server.create_database(f"{name}_{number}")
        for number, (shard, server) in enumerate(homes.items())
    }
    with KeyspaceOnServers(file, databases, serving) as keyspace:
        yield keyspace
    for database in databases.values():
        database.server.drop_database(database.name)


def is_in(shard: str, row: int) -> bool:
    return parse_key_range(shard).contains(keyspace_id("hash", str(row)))


@dataclass
class KeyspaceOnServers:
    file: Path
    databases: Mapping[str, Database]
    serving: Sequence[str]
    replicators: list[Replicator] = field(default_factory=list)
    more_servers: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for database in self.databases.values():
            database.execute(f"{TABLE}; {ORIGIN}")
        self.save()

    def serve(self, shards: Sequence[str]) -> None:
        self.serving = list(shards)
        self.save()

    def save(self) -> None:
        document = {
            "keyspace": "bank",
            "shards": {
                name: {
                    "servers": [database.url, *self.more_servers.get(name, ())],
                    "serving": name in self.serving,
                }
                for name, database in self.databases.items()
            },
            "sharding": {"account": {"column": "id", "function": "hash"}},
        }
        draft = self.file.with_suffix(".new")
        draft.write_text(yaml.safe_dump(document))
        draft.rename(self.file)

    def shard_of(self, row: int) -> str:
        return next(name for name in self.serving if is_in(name, row))

    def replicate(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Copies, and starts filtered replication; writers must stand still meanwhile."""
        for target in targets:
            for source in sources:
                one, other = parse_key_range(source), parse_key_range(target)
                if one.overlaps(other):
                    replicator = Replicator(self.databases, source, target)
                    replicator.copy()
                    self.replicators.append(replicator)
                    replicator.start()

    def catch_up(self) -> None:
        for replicator in self.replicators:
            replicator.catch_up()

    def stop_replication(self) -> None:
        for replicator in self.replicators:
            replicator.stop()
        self.replicators.clear()

    def rows(self) -> dict[int, int]:
        """What the serving shards hold together."""
        found: dict[int, int] = {}
        for name in self.serving:
            found.update(dict(self.databases[name].execute("SELECT id, n FROM account")))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_replication()


class Replicator:
    """Filtered replication: what the target holds of the source's changes, with the origin first."""

    def __init__(self, databases: Mapping[str, Database], source: str, target: str) -> None:
        self.source, self.target = source, target
        self._from, self._to = databases[source], databases[target]
        self._stream = KeyspaceStream(Request(self._from.url, shard=source, wait=0.05))
        self._offset = self._stream.start("current")
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=f"{source} to {target}")
        self.failure: Exception | None = None

    @property
    def position(self) -> str:
        return self._offset.marks[self.source].position

    def copy(self) -> None:
        """The rows as they are now, marked by the position that they are of."""
        self._offset = self._stream.start("current")
        rows = self._from.execute("SELECT id, n, note FROM account")
        chosen = [row for row in rows if is_in(self.target, row[0])]
        with closing(self._to.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            self._record(cursor, self.position, time.time_ns() // 1000)
            cursor.executemany("INSERT INTO account VALUES (%s, %s, %s)", chosen)
            cursor.execute("COMMIT")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        self._thread.join()
        self._stream.close()
        if self.failure:
            raise self.failure

    def catch_up(self) -> None:
        end = parse_position(self._stream.current().marks[self.source].position)
        deadline = time.monotonic() + 30
        while not contains(parse_position(self.position), end):
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, "replication does not catch up"
            time.sleep(0.01)

    def _run(self) -> None:
        try:
            with closing(self._to.connect()) as connection, connection.cursor() as cursor:
                while not self._is_stopping:
                    after = self._stream.advance(self._offset, 1 << 20, 0.05)
                    self._apply(cursor, after)
                    self._offset = after
        except Exception as error:  # noqa: BLE001 - told by whoever waits for it
            self.failure = error

    def _apply(self, cursor: Any, after: Any) -> None:
        transactions: dict[str, list[Change]] = {}
        for part in self._stream.parts(self._offset, after, 1):
            for batch in part.read():
                for row in batch.to_pylist():
                    transactions.setdefault(row["txn"], []).append(row)
        for changes in transactions.values():
            first = changes[0]
            chosen = [change for change in changes if is_in(self.target, int(change["key"][0]))]
            came_back = (first["origin"] or "").startswith(f"{self.target} ")
            if not chosen or came_back:
                continue
            cursor.execute("BEGIN")
            at = (first["committed_at"] - _EPOCH) // timedelta(microseconds=1)
            self._record(cursor, first["position"], at)
            for change in chosen:
                if change["kind"] == DELETE:
                    cursor.execute("DELETE FROM account WHERE id = %s", change["key"])
                else:
                    cursor.execute("REPLACE INTO account VALUES (%s, %s, %s)", change["after"])
            cursor.execute("COMMIT")

    def _record(self, cursor: Any, position: str, at: int) -> None:
        cursor.execute(
            "INSERT INTO truecopy_origin VALUES (%s, %s, %s)"
            " ON DUPLICATE KEY UPDATE position = VALUES(position), committed_at = VALUES(committed_at)",
            (self.source, position, at),
        )


class Writers:
    """Threads that write to whichever shard serves a row, each to rows of its own."""

    def __init__(self, keyspace: KeyspaceOnServers, count: int = 2, pause: float = 0.002) -> None:
        self._keyspace = keyspace
        self._pause = pause
        self._gate = threading.RLock()
        self._gates = [threading.Lock() for _ in range(count)]
        self._number = 0
        self._is_stopping = False
        self.committed: set[Write] = set()
        self.failures: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._run, args=(i,), name=f"writer {i}") for i in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._is_stopping = True
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """A write stop: every transaction that has begun is committed, and none begins."""
        for gate in self._gates:
            gate.acquire()
        try:
            yield
        finally:
            for gate in self._gates:
                gate.release()

    def wait_for(self, more: int) -> None:
        """Until so many more changes are committed."""
        goal = len(self.committed) + more
        deadline = time.monotonic() + 240
        while len(self.committed) < goal:
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, "the writers are too slow"
            time.sleep(0.01)

    def _run(self, which: int) -> None:
        mine = [row for row in IDS if row % len(self._threads) == which]
        chance = random.Random(which)
        connections: dict[str, Any] = {}
        rows: dict[int, int] = {}
        try:
            while not self._is_stopping:
                with self._gates[which]:
                    self._transaction(chance, mine, rows, connections)
                time.sleep(self._pause)
        except Exception as error:  # noqa: BLE001 - told by whoever waits for it
            self.failures.append(error)
        finally:
            for connection in connections.values():
                connection.close()

    def _transaction(
        self,
        chance: random.Random,
        mine: Sequence[int],
        rows: dict[int, int],
        connections: dict[str, Any],
    ) -> None:
        shard = self._keyspace.shard_of(chance.choice(mine))
        near = [row for row in mine if is_in(shard, row)]
        if shard not in connections:
            connections[shard] = self._keyspace.databases[shard].connect()
        chosen = chance.choices(near, k=chance.randint(1, 3))
        with connections[shard].cursor() as cursor:
            cursor.execute("BEGIN")
            made = [self._change(chance, cursor, row, rows) for row in chosen]
            cursor.execute("COMMIT")
        self.committed.update(made)

    def _change(self, chance: random.Random, cursor: Any, row: int, rows: dict[int, int]) -> Write:
        with self._gate:
            self._number += 1
            number = self._number
        if row not in rows:
            cursor.execute("INSERT INTO account VALUES (%s, %s, 'new')", (row, number))
        elif chance.random() < 0.3:
            cursor.execute("DELETE FROM account WHERE id = %s", (row,))
            return row, -rows.pop(row)
        else:
            cursor.execute("UPDATE account SET n = %s WHERE id = %s", (number, row))
        rows[row] = number
        return row, number


class KeyedConsumer:
    """Keeps the newest version of each row by comparing tokens, and everything that it was ever given."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.given: set[Write] = set()
        self.repeated = 0
        self.flaws: list[str] = []
        self._last: dict[int, tuple[str, int, int]] = {}

    def take(self, change: Change) -> None:
        if change["kind"] == HEARTBEAT:
            return
        row = int(change["key"]["id"])
        is_delete = change["kind"] == DELETE
        number = int((change["before"] if is_delete else change["after"])["n"])
        write = (row, -number) if is_delete else (row, number)
        token, seq, newest = self._last.get(row, ("", -1, 0))
        is_new = write not in self.given
        if token and not _is_news(change, token, seq):
            self.repeated += 1
            if is_new:
                self.flaws.append(f"{write} at {change['token']} was dropped as old")
        else:
            if number < newest:
                self.flaws.append(f"row {row} stepped back from {newest} to {number}")
            self._last[row] = change["token"], change["seq"], max(number, newest)
            self.rows.pop(row, None) if is_delete else self.rows.update({row: number})
        self.given.add(write)


def _is_news(change: Change, token: str, seq: int) -> bool:
    answer = compare_tokens(parse_token(change["token"]), parse_token(token))
    if answer is Comparison.SAME:
        return bool(change["seq"] > seq)
    return answer is not Comparison.OLDER


class Consuming:
    """A stream that is consumed in a thread, and can be broken off and begun again from its token."""

    def __init__(self, request: Request, take: Callable[[Change], None], start: Point) -> None:
        self._request = request
        self._take = take
        self._is_stopping = False
        self.failure: BaseException | None = None
        self.following = Following(request, start, "never")
        self._thread = threading.Thread(target=self._run, name="consumer")
        self._thread.start()

    def _run(self) -> None:
        try:
            for change in self.following.changes():
                if self._is_stopping:
                    return
                self._take(change)
        except BaseException as error:  # noqa: BLE001 - told by whoever waits for it
            self.failure = error

    def stop(self) -> str:
        """Breaks it off, in the middle of whatever it does; the token to go on from."""
        self._is_stopping = True
        self._thread.join(30)
        assert not self._thread.is_alive(), "the stream hangs"
        token = str(self.following.offset.token())
        self.following.close()
        if self.failure:
            raise self.failure
        return token

    def restarted(self) -> Consuming:
        return Consuming(self._request, self._take, parse_any(self.stop()))


def wait_until(is_done: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)
