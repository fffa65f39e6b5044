"""Queries with tokens: what an answer is known to show, on each engine and on servers that lag."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

import truecopy.client
from tests.conftest import fresh_database
from tests.servers import Database, PostgreSQL, Server
from tests.stream.resharding import is_in, wait_until
from tests.stream.test_binlog_servers import (
    primary_and_replica,  # noqa: F401 - a fixture
    wait_for,
)
from tests.stream.test_postgresql_spool import Standby, own_server  # noqa: F401 - a fixture
from truecopy.client import Client
from truecopy.model.errors import UsageError
from truecopy.model.token import EventToken, parse_token
from truecopy.stream.follow import Following
from truecopy.stream.removal import remove
from truecopy.stream.request import Request

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)"


def last_token(following: Following) -> EventToken:
    """Of the last change that the stream has until now."""
    *_, last = following.changes()
    return parse_token(last["token"])


def answers(
    client: Client, sql: str = "SELECT v FROM t ORDER BY id"
) -> tuple[list[int], EventToken]:
    found = client.query(sql, include_token=True)
    assert found.token is not None
    return [row[0] for row in found.rows], found.token


@pytest.fixture(
    params=["mariadb", pytest.param("mysql", marks=pytest.mark.mysql), "postgresql", "sqlite"]
)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, object]]:
    """The URL of a database with a table, and something that executes statements there."""
    if request.param == "sqlite":
        file = tmp_path / "shop.db"
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute(TABLE)
            yield f"sqlite:///{file}", connection.execute
        return
    name = "postgres" if request.param == "postgresql" else request.param
    database: Database = request.getfixturevalue(f"{name}_db")
    database.execute(TABLE)
    yield database.url, database.execute


def test_an_answer_shows_everything_up_to_its_token(
    shop: tuple[str, object], tmp_path: Path
) -> None:
    url, execute = shop
    assert callable(execute)
    settings = {"postgresql": {"work": str(tmp_path / "work")}, "sqlite": {"keep_log": "true"}}
    request = Request(url, shard="shop", settings=settings.get(url.partition(":")[0], {}))
    with Following(request, "current", "current") as following:
        start = following.offset.token()
    with truecopy.client.connect(url, shard="shop") as client:
        client.query("SELECT 1", include_token=True)  # from now on its log is watched
        seen = None
        for number in range(1, 4):
            execute(f"INSERT INTO t VALUES ({number}, {number})")
            with Following(request, start, "current") as following:
                token = last_token(following)
            wait_until(
                lambda token=token: client.query("SELECT 1", compare_token=token).fresher  # type: ignore[misc]
            )
            found = client.query(
                "SELECT v FROM t ORDER BY id", include_token=True, compare_token=token
            )
            assert found.columns == ("v",)
            assert [row[0] for row in found.rows] == list(range(1, number + 1))
            assert found.fresher
            assert found.token is not None
            assert found.token.shard == "shop"
            if seen is not None:
                # What the first answers were as fresh as is older than what came after them.
                old = client.query("SELECT 1", compare_token=seen)
                assert old.fresher
            seen = found.token
            assert not client.query("SELECT 1").fresher
            assert client.query("SELECT 1").token is None
    if url.startswith("postgresql"):
        remove(request)


def test_a_replica_that_lags_is_not_fresher(
    primary_and_replica: tuple[Server, Server],  # noqa: F811 - the fixture above
) -> None:
    one, two = primary_and_replica
    shop = one.create_database("lagging")
    shop.execute(TABLE)
    shop.execute("INSERT INTO t VALUES (1, 1)")
    wait_for(two, one)
    replica = Database(two, "lagging")
    with (
        truecopy.client.connect(shop.url, shard="s") as primary,
        truecopy.client.connect(replica.url, shard="s") as lagging,
    ):
        answers(primary)
        rows, same = answers(lagging)
        assert rows == [1]
        two.execute(None, "STOP SLAVE SQL_THREAD")
        try:
            shop.execute("UPDATE t SET v = 2")
            wait_until(lambda: answers(primary)[1] != same)
            rows, newer = answers(primary)
            assert rows == [2]
            behind = lagging.query("SELECT v FROM t", include_token=True, compare_token=newer)
            assert behind.rows == [[1]]
            assert not behind.fresher
        finally:
            two.execute(None, "START SLAVE SQL_THREAD")
        wait_for(two, one)
        wait_until(lambda: lagging.query("SELECT 1", compare_token=newer).fresher)
        assert answers(lagging)[0] == [2]


def test_a_commit_that_nobody_sees_yet_is_not_in_the_token(
    primary_and_replica: tuple[Server, Server],  # noqa: F811 - the fixture above
) -> None:
    one, two = primary_and_replica
    shop = one.create_database("waiting")
    shop.execute(TABLE)
    shop.execute("INSERT INTO t VALUES (1, 1)")
    wait_for(two, one)
    two.execute(None, "SET GLOBAL rpl_semi_sync_slave_enabled = 1; STOP SLAVE; START SLAVE")
    one.execute(
        None,
        "SET GLOBAL rpl_semi_sync_master_timeout = 600000, rpl_semi_sync_master_wait_point = AFTER_SYNC;"
        "SET GLOBAL rpl_semi_sync_master_enabled = 1",
    )
    writer = Thread(target=shop.execute, args=("UPDATE t SET v = 2",))
    with (
        truecopy.client.connect(shop.url, shard="s") as client,
        Following(Request(shop.url, shard="s"), "current", "never") as stream,
    ):
        _, before = answers(client)
        two.execute(None, "STOP SLAVE IO_THREAD")
        writer.start()
        try:
            change = next(stream.changes())
            assert change["after"]["v"] == "2"
            logged = parse_token(change["token"])
            time.sleep(0.3)  # the watcher has it, too
            found = client.query("SELECT v FROM t", include_token=True, compare_token=logged)
            assert found.rows == [[1]]
            assert not found.fresher
            assert found.token is not None
            assert found.token.position == before.position
        finally:
            two.execute(None, "START SLAVE IO_THREAD")
            writer.join(30)
            one.execute(None, "SET GLOBAL rpl_semi_sync_master_enabled = 0")
        wait_until(lambda: client.query("SELECT 1", compare_token=logged).fresher)
        assert answers(client)[0] == [2]


def test_a_commit_that_waits_for_a_standby_is_not_in_the_token(
    own_server: PostgreSQL,  # noqa: F811 - the fixture above
    tmp_path: Path,
) -> None:
    server = own_server.server()
    with fresh_database(server) as db, Standby(server) as standby:
        db.execute(TABLE)
        request = Request(db.url, shard="s", settings={"work": str(tmp_path / "work")})
        server.execute(None, "ALTER SYSTEM SET synchronous_standby_names = 'walreceiver'")
        server.execute(None, "SELECT pg_reload_conf()")
        is_sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        wait_until(lambda: server.execute(None, is_sync) == [(1,)])
        try:
            with (
                closing(db.connect()) as waiting,
                truecopy.client.connect(db.url, shard="s") as here,
                truecopy.client.connect(standby.url(db.name), shard="s") as there,
                Following(request, "current", "never") as stream,
            ):
                answers(here)
                waiting.execute("SET synchronous_commit = remote_apply")
                waiting.execute("INSERT INTO t VALUES (1, 1)")
                changes = stream.changes()
                first = parse_token(next(changes)["token"])
                for client in (here, there):
                    wait_until(lambda c=client: c.query("SELECT 1", compare_token=first).fresher)  # type: ignore[misc]
                    assert answers(client)[0] == [1]
                standby.execute(None, "SELECT pg_wal_replay_pause()")
                wait_until(
                    lambda: (
                        standby.execute(None, "SELECT pg_get_wal_replay_pause_state()")
                        == [("paused",)]
                    )
                )
                writer = Thread(target=waiting.execute, args=("INSERT INTO t VALUES (2, 2)",))
                writer.start()
                second = parse_token(next(changes)["token"])
                time.sleep(0.3)  # the watcher has it, too
                for client in (here, there):
                    found = client.query("SELECT v FROM t", compare_token=second)
                    assert found.rows == [[1]]
                    assert not found.fresher
                    assert client.query("SELECT 1", compare_token=first).fresher
                standby.execute(None, "SELECT pg_wal_replay_resume()")
                writer.join(20)
                for client in (here, there):
                    wait_until(lambda c=client: c.query("SELECT 1", compare_token=second).fresher)  # type: ignore[misc]
                    assert answers(client)[0] == [1, 2]
        finally:
            server.execute(None, "ALTER SYSTEM RESET synchronous_standby_names")
            server.execute(None, "SELECT pg_reload_conf()")
            remove(request)


def test_answers_are_exact_while_others_write(mariadb_db: Database) -> None:
    """The number that a query sees is that of the transaction of its token, and files are rotated meanwhile."""
    mariadb_db.execute(TABLE)
    mariadb_db.execute("INSERT INTO t VALUES (1, 0)")
    is_over = False
    numbers: dict[str, int] = {}

    def write() -> None:
        with closing(mariadb_db.connect()) as connection, connection.cursor() as cursor:
            number = 0
            while not is_over:
                number += 1
                cursor.execute("UPDATE t SET v = %s", (number,))
                if number % 40 == 0:
                    cursor.execute("FLUSH BINARY LOGS")

    with (
        Following(Request(mariadb_db.url, shard="s"), "current", "current") as following,
        truecopy.client.connect(mariadb_db.url, shard="s") as client,
    ):
        start = following.offset.token()
        found = [client.query("SELECT v FROM t", include_token=True)]
        writer = Thread(target=write)
        writer.start()
        try:
            found += [client.query("SELECT v FROM t", include_token=True) for _ in range(200)]
        finally:
            is_over = True
            writer.join()
    with Following(Request(mariadb_db.url, shard="s"), start, "current") as following:
        for change in following.changes():
            numbers[change["position"]] = int(change["after"]["v"])
    exact = [one for one in found if one.token is not None and one.token == one.bound]
    assert len(exact) > 50
    for answer in found:
        if answer.token is not None:
            known = numbers.get(str(answer.token.position), 0)
            assert answer.rows[0][0] >= known
            assert answer.token != answer.bound or answer.rows[0][0] == known


def test_a_query_that_spans_shards_has_no_token(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "keyspace: shop\nshards:\n"
        f'  "-80": {{servers: ["{mariadb_db.url}"]}}\n'
        f'  "80-": {{servers: ["{second_mariadb_db.url}"]}}\n'
        "sharding: {t: {column: id, function: hash}}\n"
    )
    for database, shard in ((mariadb_db, "-80"), (second_mariadb_db, "80-")):
        database.execute(TABLE)
        rows = [(row, row) for row in range(10) if is_in(shard, row)]
        database.executemany("INSERT INTO t VALUES (%s, %s)", rows)
    with truecopy.client.connect(str(file)) as client:
        everywhere = client.query("SELECT id FROM t", include_token=True)
        assert sorted(row[0] for row in everywhere.rows) == list(range(10))
        assert everywhere.token is None
        for row in range(10):
            one = client.query(
                "SELECT v FROM t WHERE id = %s", (row,), of=("t", row), include_token=True
            )
            assert one.rows == [[row]]
            assert one.token is not None
            assert is_in(one.token.shard, row)
        with pytest.raises(UsageError, match="does not say how other is sharded"):
            client.query("SELECT 1", of=("other", 1))
        assert client.serves("-80")
        assert not client.serves("-")
        file.write_text(f'keyspace: shop\nshards: {{"-": {{servers: ["{mariadb_db.url}"]}}}}\n')
        assert client.serves("-")
        assert client.query("SELECT 1", include_token=True).token is not None


def test_why_there_are_no_tokens_is_told(mariadb_db: Database, tmp_path: Path) -> None:
    mariadb_db.execute(TABLE)
    user = f"reader_{mariadb_db.name}"
    mariadb_db.execute(
        f"CREATE USER {user} IDENTIFIED BY 'pw'; GRANT SELECT ON {mariadb_db.name}.* TO {user}"
    )
    server = mariadb_db.server
    url = f"mariadb://{user}:pw@{server.host}:{server.port}/{mariadb_db.name}"
    try:
        with truecopy.client.connect(url) as client:
            found = client.query("SELECT COUNT(*) FROM t", include_token=True)
            assert (found.rows, found.token) == ([[0]], None)
            (line,) = client.problems()
            assert user in line
    finally:
        mariadb_db.execute(f"DROP USER {user}")
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(TABLE)
    with truecopy.client.connect(f"sqlite:///{file}") as client:
        assert client.query("SELECT COUNT(*) FROM t", include_token=True).token is None
        assert "has no change log" in client.problems()[0]


def test_a_token_query_only_reads(mariadb_db: Database) -> None:
    mariadb_db.execute(TABLE)
    with truecopy.client.connect(mariadb_db.url) as client:
        with pytest.raises(truecopy.model.errors.TruecopyError, match="READ ONLY"):
            client.query("INSERT INTO t VALUES (1, 1)", include_token=True)
        assert client.query("SELECT COUNT(*) FROM t", include_token=True).rows == [[0]]
