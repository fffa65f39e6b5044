"""A shard of several servers: one is read from, and left when it dies, lags, or its log does not reach back."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest

from tests.servers import Database, MariaDB, Server
from tests.stream.resharding import Consuming, wait_until
from truecopy.model.errors import CannotFinish
from truecopy.model.token import KeyspacePosition
from truecopy.stream import parts, shard
from truecopy.stream.follow import Change, Following
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.log import LogGone
from truecopy.stream.request import Request

# What is committed survives the process, so that a killed server goes on where it was.
SMALL = (
    "--innodb-flush-log-at-trx-commit=2",
    "--log-slave-updates",
    "--innodb-log-file-size=4M",
    "--performance-schema=OFF",
    "--gtid-strict-mode=1",
)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[MariaDB, MariaDB]]:
    """A primary and its replica."""
    with ExitStack() as stack:
        primary, replica = (MariaDB(*SMALL, buffer_pool="16M") for _ in range(2))
        source = stack.enter_context(primary)
        stack.enter_context(replica).execute(
            None,
            f"CHANGE MASTER TO master_host='{source.host}', master_port={source.port},"
            f" master_user='{source.user}', master_password='{source.password}',"
            " master_use_gtid=slave_pos, master_connect_retry=1; START SLAVE",
        )
        yield primary, replica


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "HEALTH_SECONDS", 0.3)
    monkeypatch.setattr(parts, "PAUSE_SECONDS", 0.2)


@pytest.fixture
def primary(pair: tuple[MariaDB, MariaDB]) -> Database:
    database = pair[0].server().create_database(f"shop_{secrets.token_hex(4)}")
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    wait_for_replica(pair)
    return database


@pytest.fixture
def replica(pair: tuple[MariaDB, MariaDB], primary: Database) -> Database:
    return Database(pair[1].server(), primary.name)


def wait_for_replica(pair: tuple[MariaDB, MariaDB]) -> None:
    ((position,),) = pair[0].server().execute(None, "SELECT @@gtid_binlog_pos")
    waited = pair[1].server().execute(None, f"SELECT MASTER_GTID_WAIT('{position}', 120)")
    assert waited == [(0,)]


def keyspace(folder: Path, *databases: Database) -> str:
    file = folder / "shop.yaml"
    servers = ", ".join(f'"{database.url}"' for database in databases)
    file.write_text(f'keyspace: shop\nshards: {{"-": {{servers: [{servers}]}}}}\n')
    return str(file)


def insert(database: Database, first: int, last: int) -> None:
    with_values = [(n, "x" * 150) for n in range(first, last)]
    connection = database.connect()
    try:
        with connection.cursor() as cursor:
            for values in with_values:
                cursor.execute("INSERT INTO t VALUES (%s, %s)", values)
    finally:
        connection.close()


class Rows:
    """The rows that a stream gave; at some row it may be held up."""

    def __init__(self, held_at: int = -1) -> None:
        self.found: list[int] = []
        self._held_at = held_at
        self.go_on = Event()

    def take(self, change: Change) -> None:
        if change["key"]:
            self.found.append(int(change["key"]["id"]))
        if len(self.found) == self._held_at:
            self.go_on.wait()

    def wait_for(self, consuming: Consuming, count: int) -> None:
        wait_until(lambda: len(self.found) >= count or consuming.failure is not None)


def server_in_use(consuming: Consuming) -> Server:
    log = consuming.following._stream._shards.log("-")
    return log.servers[log._at]  # type: ignore[return-value]


@contextmanager
def killed(private: MariaDB) -> Iterator[None]:
    """Without a server for a while, and then with it again."""
    process = private._process
    assert process is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    try:
        yield
    finally:
        private._start()


def request(file: str, **more: float) -> Request:
    return Request(file, wait=0.05, heartbeat=0.1, max_bytes=16 << 10, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("first", ["primary", "replica"])
def test_the_server_in_use_is_killed(
    pair: tuple[MariaDB, MariaDB],
    primary: Database,
    replica: Database,
    tmp_path: Path,
    first: str,
) -> None:
    """Nothing is lost and nothing comes twice, whichever it is."""
    order = (primary, replica) if first == "primary" else (replica, primary)
    rows = Rows(held_at=300)
    consuming = Consuming(request(keyspace(tmp_path, *order)), rows.take, "current")
    insert(primary, 0, 1000)
    rows.wait_for(consuming, 300)
    insert(primary, 1000, 2000)
    wait_for_replica(pair)
    assert server_in_use(consuming).port == order[0].server.port
    with killed(pair[0] if first == "primary" else pair[1]):
        rows.go_on.set()
        rows.wait_for(consuming, 2000)
        assert server_in_use(consuming).port == order[1].server.port
    insert(primary, 2000, 2010)
    rows.wait_for(consuming, 2010)
    consuming.stop()
    assert rows.found == list(range(2010))


def test_a_part_is_read_to_its_end_on_another_server(
    pair: tuple[MariaDB, MariaDB], primary: Database, replica: Database, tmp_path: Path
) -> None:
    """Killed while a part of it is being read: the rows that were given are not given again."""
    with KeyspaceStream(request(keyspace(tmp_path, replica, primary))) as stream:
        start = stream.start("current")
        insert(primary, 0, 1000)
        primary.executemany(
            "INSERT INTO t VALUES (%s, %s)", [(n, "y" * 150) for n in range(1000, 90_000)]
        )
        wait_for_replica(pair)
        end = stream.current()
        at = start
        while not stream.has_reached(at, end):
            at = stream.advance(at, 1 << 30, 1.0)
        (part,) = stream.parts(start, at, 1)
        batches = part.read()
        found = next(batches).column("key").to_pylist()
        with killed(pair[1]):
            for batch in batches:
                found += batch.column("key").to_pylist()
    assert [int(key) for (key,) in found] == list(range(90_000))


def test_a_server_that_does_not_follow_any_more_is_left(
    primary: Database, replica: Database, tmp_path: Path
) -> None:
    rows = Rows()
    consuming = Consuming(request(keyspace(tmp_path, replica, primary)), rows.take, "current")
    insert(primary, 0, 50)
    rows.wait_for(consuming, 50)
    assert server_in_use(consuming).port == replica.server.port
    replica.execute("STOP SLAVE")
    try:
        insert(primary, 50, 100)
        rows.wait_for(consuming, 100)
        assert server_in_use(consuming).port == primary.server.port
    finally:
        replica.execute("START SLAVE")
    consuming.stop()
    assert rows.found == list(range(100))


def test_a_server_that_lags_is_left(primary: Database, replica: Database, tmp_path: Path) -> None:
    file = keyspace(tmp_path, replica, primary)
    rows = Rows()
    consuming = Consuming(request(file, max_lag=1.0), rows.take, "current")
    insert(primary, 0, 50)
    rows.wait_for(consuming, 50)
    lock = replica.connect()
    with lock.cursor() as cursor:
        cursor.execute("LOCK TABLES t READ")  # replication waits
        insert(primary, 50, 100)
        rows.wait_for(consuming, 100)
        assert server_in_use(consuming).port == primary.server.port
    lock.close()
    consuming.stop()
    assert rows.found == list(range(100))


def test_a_server_that_lags_is_better_than_none(
    pair: tuple[MariaDB, MariaDB], primary: Database, replica: Database, tmp_path: Path
) -> None:
    """Also one that is behind the stream: it is waited for."""
    rows = Rows()
    consuming = Consuming(request(keyspace(tmp_path, primary, replica)), rows.take, "current")
    replica.execute("STOP SLAVE SQL_THREAD")
    try:
        insert(primary, 0, 50)
        rows.wait_for(consuming, 50)
        wait_until(lambda: has_fetched(pair))
        with killed(pair[0]):
            time.sleep(1)
            assert consuming.failure is None
            replica.execute("START SLAVE SQL_THREAD")
            wait_until(lambda: replica.execute("SELECT count(*) FROM t") == [(50,)])
            # It is promoted.
            replica.execute("INSERT INTO t VALUES (50, 'x')")
            rows.wait_for(consuming, 51)
            consuming.stop()
            replica.execute("SET SESSION sql_log_bin = 0; DELETE FROM t WHERE id = 50")
    finally:
        replica.execute("STOP SLAVE; RESET MASTER; SET GLOBAL gtid_slave_pos = ''")
        replica.execute(f"SET GLOBAL gtid_slave_pos = '{end_of(primary)}'; START SLAVE")
    assert rows.found == list(range(51))


def has_fetched(pair: tuple[MariaDB, MariaDB]) -> bool:
    ((_, position, *_),) = pair[0].server().execute(None, "SHOW MASTER STATUS")
    connection = pair[1].server().connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW SLAVE STATUS")
            names = [column[0] for column in cursor.description]
            status = dict(zip(names, cursor.fetchone(), strict=True))
    finally:
        connection.close()
    return bool(status["Read_Master_Log_Pos"] == position)


def end_of(database: Database) -> str:
    ((position,),) = database.execute("SELECT @@gtid_binlog_pos")
    return str(position)


def test_a_server_whose_log_does_not_reach_back_is_passed_over(
    pair: tuple[MariaDB, MariaDB], primary: Database, replica: Database, tmp_path: Path
) -> None:
    file = keyspace(tmp_path, primary, replica)
    with Following(request(file), "current", "current") as following:
        start = following.offset.token()
    insert(primary, 0, 50)
    wait_for_replica(pair)
    purge(primary)
    insert(primary, 50, 60)
    assert given(file, start) == list(range(60))
    wait_for_replica(pair)
    purge(replica)
    insert(primary, 60, 70)
    with pytest.raises(LogGone, match="start from a newer point"):
        given(file, start)


def given(file: str, start: KeyspacePosition) -> Sequence[int]:
    rows = Rows()
    with Following(request(file), start, "current") as following:
        for change in following.changes():
            rows.take(change)
    return rows.found


def purge(database: Database) -> None:
    database.execute("FLUSH BINARY LOGS")
    wait_until(lambda: is_purged(database))


def is_purged(database: Database) -> bool:
    files = database.execute("SHOW BINARY LOGS")
    database.execute(f"PURGE BINARY LOGS TO '{files[-1][0]}'")
    return len(files) == 1


def test_no_server_at_all(
    primary: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "PATIENCE_SECONDS", 0.0)
    dead = [
        Database(type(primary.server)("mariadb", "127.0.0.1", port, "root", "x"), "shop")
        for port in (1, 2)
    ]
    with pytest.raises(
        CannotFinish, match="no server of shard - can be streamed from: cannot connect"
    ):
        Following(request(keyspace(tmp_path, *dead)), "current", "never")
