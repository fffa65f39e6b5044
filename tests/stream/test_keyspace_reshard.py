"""Reshards on real servers, under load; `test_keyspace_simulation` says what may go wrong, and tries it at random."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Server
from tests.stream.resharding import (
    FOUR,
    ONE,
    TWO,
    Consuming,
    KeyedConsumer,
    KeyspaceOnServers,
    Writers,
    is_in,
    keyspace_on,
    small_servers,
    wait_until,
)
from truecopy.metastore.definitions import Definitions
from truecopy.model.token import parse_any, parse_token, token_of_change
from truecopy.stream.changes import read_changes
from truecopy.stream.follow import Change, Following
from truecopy.stream.log import LogGone
from truecopy.stream.request import Request
from truecopy.stream.resharding import Resharded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THREE = "-40", "40-c0", "c0-"


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    with small_servers() as found:
        yield found


@pytest.fixture
def bank(servers: list[Server], tmp_path: Path) -> Iterator[KeyspaceOnServers]:
    """Two shards that serve, and others that wait; those of one generation are on servers of their own."""
    for server in servers:
        server.execute(None, "RESET MASTER")  # a test before may have purged it
    homes = dict(zip(("80-", "-80"), servers, strict=False))
    homes |= dict(zip(FOUR, servers, strict=True)) | {"40-c0": servers[3], "-": servers[2]}
    with keyspace_on(homes, tmp_path / "bank.yaml", TWO) as keyspace:
        yield keyspace


def request_for(bank: KeyspaceOnServers, **more: Any) -> Request:
    return Request(str(bank.file), wait=0.1, heartbeat=0.1, max_bytes=64 << 10, **more)


def prepare(bank: KeyspaceOnServers, target: Sequence[str]) -> None:
    bank.replicate(bank.serving, [name for name in target if name not in bank.serving])


def reshard(
    bank: KeyspaceOnServers, writers: Writers, target: Sequence[str], changes: int = 100
) -> None:
    """As an operator does it."""
    with writers.stopped():
        prepare(bank, target)
    writers.wait_for(changes)
    with writers.stopped():
        bank.catch_up()
        bank.serve(target)
    writers.wait_for(changes)
    bank.stop_replication()


def insert(bank: KeyspaceOnServers, rows: Sequence[int]) -> None:
    for row in rows:
        database = bank.databases[bank.shard_of(row)]
        database.execute("INSERT INTO account VALUES (%s, %s, 'x')", (row, row))


def given(following: Following) -> list[int]:
    """The rows of the changes up to the stream's end, which must have one."""
    return [int(change["key"]["id"]) for change in following.changes() if change["key"]]


@pytest.mark.long
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("path", [(FOUR, ONE), (THREE, ONE)], ids=["split", "both"])
def test_reshards_under_load(
    bank: KeyspaceOnServers, path: Sequence[Sequence[str]], is_restarted: bool
) -> None:
    consumer = KeyedConsumer()
    consuming = Consuming(request_for(bank), consumer.take, "current")
    with Writers(bank) as writers:
        writers.wait_for(100)
        for target in path:
            reshard(bank, writers, target)
            if is_restarted:
                consuming = consuming.restarted()
    truth = bank.rows()
    wait_until(lambda: consumer.rows == truth or consuming.failure is not None)
    consuming.stop()
    assert writers.committed <= consumer.given
    assert not consumer.flaws
    assert set(consuming.following.offset.marks) == {"-"}


def test_reshards_under_load_through_spark(
    bank: KeyspaceOnServers, spark: SparkSession, tmp_path: Path
) -> None:
    consumer = KeyedConsumer()

    def take(batch: DataFrame, _: int) -> None:
        rows = [row.asDict() for row in batch.collect()]
        for row in sorted(rows, key=lambda row: (row["shard"], row["commit_order"], row["seq"])):
            names = Definitions().find(row["schema_id"]).names
            for image in ("before", "after"):
                row[image] = row[image] and dict(zip(names, row[image], strict=True))
            consumer.take({**row, "key": {"id": row["key"][0]}, "token": str(token_of_change(row))})

    # `current` must be before the first write: the query takes it some time after it was started.
    with Following(request_for(bank), "current", "current") as following:
        start = str(following.offset.token())
    changes = read_changes(spark, str(bank.file), start=start, wait=0.5, parts=1)
    query = (
        changes.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        with Writers(bank, pause=0.05) as writers:
            writers.wait_for(20)
            wait_until(lambda: bool(consumer.given) or not query.isActive, 60)
            reshard(bank, writers, FOUR, 40)
        truth = bank.rows()
        wait_until(lambda: consumer.rows == truth or not query.isActive, 60)
    finally:
        query.stop()
    assert query.exception() is None
    assert writers.committed <= consumer.given
    assert not consumer.flaws


def test_a_flip_that_is_seen_late_and_late_writes(bank: KeyspaceOnServers) -> None:
    with Following(request_for(bank), "current", "current") as following:
        start = following.offset.token()
    insert(bank, range(1, 20))
    prepare(bank, FOUR)
    insert(bank, range(20, 40))
    bank.catch_up()
    bank.serve(FOUR)
    insert(bank, range(40, 60))
    # A client that has not heard of the flip.
    late = next(row for row in range(60, 100) if is_in("-80", row))
    bank.databases["-80"].execute("INSERT INTO account VALUES (%s, %s, 'x')", (late, late))
    bank.catch_up()
    insert(bank, range(100, 110))
    with Following(request_for(bank), start, "current") as following:
        found = given(following)
        assert set(following.offset.marks) == set(FOUR)
    assert {*range(1, 60), *range(100, 110), late} == set(found)
    assert len(found) - len(set(found)) <= 1  # the late write may come from both


def test_two_reshards_while_the_stream_stands_still(bank: KeyspaceOnServers) -> None:
    with Following(request_for(bank), "current", "current") as following:
        start = following.offset.token()
    for first, target in ((10, FOUR), (30, ONE)):
        insert(bank, range(first, first + 10))
        prepare(bank, target)
        insert(bank, range(first + 10, first + 15))
        bank.catch_up()
        bank.serve(target)
        insert(bank, range(first + 15, first + 20))
        # What is gone again before the next copy is only in the logs of the shards in between.
        for row in (first, first + 16):
            database = bank.databases[bank.shard_of(row)]
            database.execute("DELETE FROM account WHERE id = %s", (row,))
        bank.catch_up()
        bank.stop_replication()
    with Following(request_for(bank), start, "current") as following:
        changes = [change for change in following.changes() if change["key"]]
        assert set(following.offset.marks) == {"-"}
    rows = [int(change["key"]["id"]) for change in changes]
    assert set(rows) == set(range(10, 50))
    gone = [int(change["key"]["id"]) for change in changes if change["kind"] == "delete"]
    assert sorted(gone) == [10, 26, 30, 46]
    assert len(rows) == 44


def test_stop_on_reshard(bank: KeyspaceOnServers) -> None:
    insert(bank, range(1, 10))
    found: list[int] = []

    def take(change: Change) -> None:
        if change["key"]:
            found.append(int(change["key"]["id"]))
        if len(found) == 9 and bank.serving == TWO:
            prepare(bank, FOUR)
            bank.catch_up()
            bank.serve(FOUR)

    with Following(request_for(bank, stop_on_reshard=True), "start", "never") as following:
        with pytest.raises(Resharded, match="-80 gave way to -40, 40-80") as stopped:
            deque(map(take, following.changes()))
        assert sorted(found) == list(range(1, 10))
        token = str(following.offset.token())
        assert token in str(stopped.value)
    insert(bank, range(10, 20))
    with Following(request_for(bank), parse_any(token), "current") as following:
        assert sorted(given(following)) == list(range(10, 20))


def test_a_destination_whose_log_starts_later_is_refused(bank: KeyspaceOnServers) -> None:
    insert(bank, range(1, 10))
    with Following(request_for(bank), "current", "current") as following:
        start = following.offset.token()
    prepare(bank, FOUR)
    bank.catch_up()
    bank.stop_replication()
    bank.serve(FOUR)
    insert(bank, range(10, 20))
    for name in FOUR:
        purge(bank, name)
    insert(bank, range(20, 30))
    with (
        Following(request_for(bank), start, "never") as following,
        pytest.raises(LogGone, match="starts after what was replicated from shard"),
    ):
        list(following.changes())


def purge(bank: KeyspaceOnServers, shard: str) -> None:
    database = bank.databases[shard]
    database.execute("FLUSH BINARY LOGS")
    deadline = time.monotonic() + 20
    while len(files := database.execute("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < deadline
        database.execute(f"PURGE BINARY LOGS TO '{files[-1][0]}'")


def test_a_time_before_a_shard_was_filled_is_refused(bank: KeyspaceOnServers) -> None:
    """Its own log cannot tell what was changed, and deleted, before its rows were copied."""
    insert(bank, range(1, 10))
    before = time.time_ns() // 1000
    time.sleep(2)
    prepare(bank, FOUR)
    time.sleep(1)
    after = time.time_ns() // 1000
    insert(bank, range(10, 20))
    bank.catch_up()
    bank.serve(FOUR)
    with pytest.raises(
        LogGone, match=r"no log of shard -40 reaches back to 20\d\d-.*was filled later"
    ):
        Following(request_for(bank), before, "current")
    with Following(request_for(bank), after, "current") as following:
        assert set(range(10, 20)) <= set(given(following))


def test_tokens_of_a_fed_shard_carry_the_source(bank: KeyspaceOnServers) -> None:
    prepare(bank, FOUR)
    with Following(request_for(bank), "current", "current") as following:
        start = following.offset.token()
    insert(bank, range(1, 30))
    bank.catch_up()
    with Following(request_for(bank), start, "current") as following:
        at_source = {change["key"]["id"]: change["token"] for change in following.changes()}
    bank.serve(FOUR)
    with Following(request_for(bank), "start", "current") as following:
        changes = [change for change in following.changes() if change["key"]]
    assert {change["key"]["id"] for change in changes} == at_source.keys()
    for change in changes:
        token, source = parse_token(change["token"]), parse_token(at_source[change["key"]["id"]])
        assert token.origin is not None
        assert (token.origin.shard, token.origin.position) == (source.shard, source.position)
        assert token.committed_at == source.committed_at
