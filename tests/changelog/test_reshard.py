"""A log of a keyspace through a split and a merge: every event once, and tables at points on both sides."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.changelog.recorded import log_of, recording, wait_until, wait_until_ready
from tests.changelog.test_log import in_duckdb
from tests.changelog.test_table_log import asked
from tests.servers import Database, MariaDB, Server
from tests.stream.resharding import KeyspaceOnServers, Writers
from truecopy.changelog.follow import Copy
from truecopy.changelog.reading import read_log
from truecopy.changelog.restore import restore
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARDS = ("-80", "80-", "-40", "40-80", "-")


@pytest.fixture
def bank(
    mariadb_server: Server, second_mariadb_server: Server, tmp_path: Path
) -> Iterator[KeyspaceOnServers]:
    """Shards that follow upon each other are on servers of their own, since a log is of a server."""
    name = f"bank_{secrets.token_hex(4)}"
    with ExitStack() as stack:
        third = stack.enter_context(MariaDB("--innodb-log-file-size=4M", buffer_pool="16M"))
        homes = dict(
            zip(
                SHARDS,
                (
                    mariadb_server,
                    mariadb_server,
                    second_mariadb_server,
                    second_mariadb_server,
                    third,
                ),
                strict=True,
            )
        )
        databases = {
            shard: server.create_database(f"{name}_{number}")
            for number, (shard, server) in enumerate(homes.items())
        }
        with KeyspaceOnServers(tmp_path / "bank.yaml", databases, ("-80", "80-")) as keyspace:
            yield keyspace
        for database in databases.values():
            database.server.drop_database(database.name)


def reshard(bank: KeyspaceOnServers, writers: Writers, serving: Sequence[str]) -> None:
    """As an operator does it."""
    with writers.stopped():
        bank.replicate(bank.serving, [name for name in serving if name not in bank.serving])
    writers.wait_for(80)
    with writers.stopped():
        bank.catch_up()
        bank.serve(serving)
    writers.wait_for(80)
    bank.stop_replication()


def stand(
    bank: KeyspaceOnServers, writers: Writers, request: Request
) -> tuple[str, dict[int, int]]:
    """Where the keyspace stands while nobody writes, and its rows."""
    with writers.stopped(), KeyspaceStream(request) as stream:
        return str(stream.current().token()), bank.rows()


def restored(log: Path | str, token: str, path: Path) -> dict[int, int]:
    path.touch()
    restore(log, "account", token, f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        return dict(connection.execute("SELECT id, n FROM account").fetchall())


def current(log: Path | str) -> dict[int, int]:
    """As the log's view has it."""
    if isinstance(log, Path):
        rows = [
            (int(key), int(n)) for key, n in in_duckdb(log, "SELECT id, n FROM account_current")
        ]
    else:
        found = asked(log, "SELECT id, n FROM truecopy_changes_account_current")
        rows = [(int(row["id"]), int(row["n"])) for row in found]
    assert len(rows) == len(dict(rows)), "a row is there twice"
    return dict(rows)


@pytest.mark.long
@pytest.mark.parametrize("kept_in", ["folder", "database"])
@pytest.mark.timeout(600)
def test_a_log_through_reshards(
    spark: SparkSession,
    bank: KeyspaceOnServers,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kept_in: str,
) -> None:
    log: Path | str = tmp_path / "log"
    if kept_in == "database":
        log = request.getfixturevalue("postgres_db").url
    wanted = Request(str(bank.file), wait=0.1)
    points = []
    with Writers(bank, pause=0.02) as writers, recording(wanted, log):
        writers.wait_for(50)
        wait_until_ready(log)
        with writers.stopped():
            committed_before = set(writers.committed)
        writers.wait_for(80)
        points.append(stand(bank, writers, wanted))
        reshard(bank, writers, ("-40", "40-80", "80-"))
        points.append(stand(bank, writers, wanted))
        reshard(bank, writers, ("-",))
        with log_of(log) as found:
            wait_until(lambda: set(found.end_of(found.last).marks) == {"-"})
        writers.wait_for(80)
        writers.stop()
        points.append(stand(bank, writers, wanted))
        between = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))
        time.sleep(5)
    events = read_log(spark, log).where("`table` = 'account'").collect()
    numbers = [
        (
            int(row["key"][0]),
            -int(row["before"][1]) if row["kind"] == "delete" else int(row["after"][1]),
        )
        for row in events
    ]
    assert len(numbers) == len(set(numbers)), "an event came twice"
    assert writers.committed - committed_before <= set(numbers)
    for number, (token, rows) in enumerate(points):
        assert restored(log, token, tmp_path / f"{number}.db") == rows
    assert restored(log, between, tmp_path / "time.db") == points[-1][1]
    assert restored(log, "current", tmp_path / "now.db") == points[-1][1]
    assert current(log) == points[-1][1]


@pytest.mark.timeout(600)
def test_a_copy_through_reshards(
    spark: SparkSession, bank: KeyspaceOnServers, postgres_db: Database
) -> None:
    """New shards bring again what old ones have brought: no row goes back, and all come to where the source is."""
    request = Request(str(bank.file), wait=0.1)
    with Writers(bank, pause=0.02) as writers, following(request, postgres_db.url):
        writers.wait_for(50)
        wait_until(lambda: bool(moved(postgres_db)))
        reshard(bank, writers, ("-40", "40-80", "80-"))
        reshard(bank, writers, ("-",))
        wait_until(lambda: is_of(postgres_db, "-"))
        writers.stop()
    Copy(request, postgres_db.url).run("current")
    rows = postgres_db.execute("SELECT id, n FROM account WHERE truecopy_deleted = 0")
    assert dict(rows) == bank.rows()


@contextmanager
def following(request: Request, to: str) -> Iterator[None]:
    copy = Copy(request, to, interval=0.1)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(copy.run)
        try:
            yield
        finally:
            copy.stop()
        done.result()


def moved(database: Database) -> list[tuple[Any, ...]]:
    if database.execute("SELECT to_regclass('account')") == [(None,)]:
        return []
    return database.execute("SELECT 1 FROM account WHERE truecopy_token IS NOT NULL LIMIT 1")


def is_of(database: Database, shard: str) -> bool:
    """Whether the copy has come to where one shard is left."""
    ((ends,),) = database.execute("SELECT ends FROM truecopy_follow")
    return set(Offset.parse(json.loads(ends)).marks) == {shard}
