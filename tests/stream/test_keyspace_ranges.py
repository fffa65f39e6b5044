"""What a keyspace's stream carries and in what order: key ranges, skew, heartbeats, tokens, times to restart at."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import fresh_database
from tests.servers import Database, MariaDB, Server
from truecopy.model.errors import UsageError
from truecopy.model.keyspace import keyspace_id, parse_key_range
from truecopy.model.token import parse_any, parse_keyspace_position, parse_token
from truecopy.stream.changes import read_changes
from truecopy.stream.follow import Change, Following
from truecopy.stream.request import Point, Request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARDING = """
sharding:
  account: {column: id, function: hash}
  account_by_owner: {column: owner, function: numeric}
  pair: {column: b, function: hash}
  wrong: {column: nothing, function: hash}
"""


class Bank:
    """Two shards, each on a server of its own."""

    def __init__(self, low: Database, high: Database, file: Path) -> None:
        self.low, self.high, self.file = low, high, file
        file.write_text(
            f'keyspace: bank\nshards:\n  "-80": {{servers: ["{low.url}"]}}\n'
            f'  "80-": {{servers: ["{high.url}"]}}\n{SHARDING}'
        )

    def execute(self, sql: str) -> None:
        for database in (self.low, self.high):
            database.execute(sql)

    def insert(self, rows: Sequence[int]) -> None:
        with closing(self.low.connect()) as low, closing(self.high.connect()) as high:
            for row in rows:
                connection = low if is_in("-80", row) else high
                with connection.cursor() as cursor:
                    cursor.execute("INSERT INTO account VALUES (%s, 'x')", (row,))

    def request(self, **more: Any) -> Request:
        return Request(str(self.file), wait=0.1, **more)

    def changes(
        self, start: Point = "start", until: Point = "current", **more: Any
    ) -> list[Change]:
        with Following(self.request(**more), start, until) as following:
            return list(following.changes())

    def start(self) -> Point:
        with Following(self.request(), "current", "current") as following:
            return following.offset.token()


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    options = "--innodb-log-file-size=4M", "--performance-schema=OFF"
    with ExitStack() as stack:
        yield [stack.enter_context(MariaDB(*options, buffer_pool="16M")) for _ in range(2)]


@pytest.fixture
def bank(servers: list[Server], tmp_path: Path) -> Iterator[Bank]:
    for server in servers:
        # Some tests write at times to come, which later ones must not find in the log.
        server.execute(None, "RESET MASTER")
    with fresh_database(servers[0]) as low, fresh_database(servers[1]) as high:
        made = Bank(low, high, tmp_path / "bank.yaml")
        made.execute("CREATE TABLE account (id INT PRIMARY KEY, v TEXT)")
        yield made


def is_in(key_range: str, row: int) -> bool:
    return parse_key_range(key_range).contains(keyspace_id("hash", str(row)))


def rows(changes: Sequence[Change]) -> list[int]:
    return [int(change["key"]["id"]) for change in changes if change["key"]]


@pytest.mark.parametrize("key_range", ["-", "-80", "80-", "40-c0", "-40", "90-a0"])
def test_a_key_range(bank: Bank, key_range: str) -> None:
    start = bank.start()
    bank.insert(range(200))
    changes = bank.changes(start, key_range=parse_key_range(key_range))
    assert sorted(rows(changes)) == [row for row in range(200) if is_in(key_range, row)]
    shards = {change["shard"] for change in changes}
    assert shards == {s for s in ("-80", "80-") if any(is_in(s, row) for row in rows(changes))}


def test_ranges_that_tile_the_keyspace_give_each_change_once(bank: Bank) -> None:
    start = bank.start()
    bank.insert(range(100))
    bank.execute("UPDATE account SET v = 'y'")
    bank.execute("DELETE FROM account WHERE id % 3 = 0")
    whole = [c["token"] + c["kind"] + str(c["key"]) for c in bank.changes(start)]
    found: list[str] = []
    for key_range in ("-30", "30-90", "90-"):
        changes = bank.changes(start, key_range=parse_key_range(key_range))
        found += [c["token"] + c["kind"] + str(c["key"]) for c in changes]
    assert sorted(found) == sorted(whole)
    assert len(set(found)) == len(found) == 100 + 100 + 34


def test_a_row_that_moves_from_one_range_to_another(bank: Bank) -> None:
    """It is no key's change, so it is one update, and both ranges need to hear of it."""
    bank.low.execute("CREATE TABLE account_by_owner (id INT PRIMARY KEY, owner BIGINT UNSIGNED)")
    start = bank.start()
    low, high = 5, 2**62 + 5
    bank.low.execute(f"INSERT INTO account_by_owner VALUES (1, {low}), (2, {high}), (3, {low})")
    bank.low.execute(f"UPDATE account_by_owner SET owner = {high} WHERE id = 1")
    bank.low.execute("DELETE FROM account_by_owner")

    def kinds(key_range: str) -> list[tuple[str, int]]:
        changes = bank.changes(start, key_range=parse_key_range(key_range))
        return [(change["kind"], int(change["key"]["id"])) for change in changes]

    assert kinds("-40") == [("insert", 1), ("insert", 3), ("update", 1), ("delete", 3)]
    assert kinds("40-80") == [("insert", 2), ("update", 1), ("delete", 1), ("delete", 2)]


def test_a_key_that_moves_from_one_range_to_another(bank: Bank) -> None:
    bank.low.execute("CREATE TABLE pair (a INT, b INT, PRIMARY KEY (a, b))")
    start = bank.start()
    one = next(n for n in range(100) if is_in("-40", n))
    other = next(n for n in range(100) if is_in("40-80", n))
    bank.low.execute(f"INSERT INTO pair VALUES (1, {one})")
    bank.low.execute(f"UPDATE pair SET b = {other}")
    for key_range, kinds in (("-40", ["insert", "delete"]), ("40-80", ["insert"])):
        changes = bank.changes(start, key_range=parse_key_range(key_range))
        assert [change["kind"] for change in changes] == kinds


def test_a_table_that_is_emptied_is_emptied_for_every_range(bank: Bank) -> None:
    start = bank.start()
    bank.insert(range(20))
    bank.low.execute("TRUNCATE TABLE account")
    for key_range in ("-40", "40-80"):
        changes = bank.changes(start, key_range=parse_key_range(key_range))
        assert changes[-1]["kind"] == "truncate"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("plain (id INT PRIMARY KEY)", "does not say how .*plain is sharded"),
        ("wrong (id INT PRIMARY KEY)", "by nothing, and it has no such column"),
        ("account_by_owner (id INT PRIMARY KEY, owner INT)", "does not say its owner"),
    ],
)
def test_what_has_no_keyspace_id_is_refused_in_part_of_a_shard(
    bank: Bank, table: str, reason: str
) -> None:
    bank.low.execute(f"CREATE TABLE {table}")
    start = bank.start()
    bank.low.execute(f"INSERT INTO {table.partition(' ')[0]} (id) VALUES (1)")
    with pytest.raises(UsageError, match=reason):
        bank.changes(start, key_range=parse_key_range("-40"))
    assert rows(bank.changes(start, key_range=parse_key_range("-80"))) == [1]
    assert rows(bank.changes(start, key_range=parse_key_range("-40"), tables=("account",))) == []


def test_keys_alone_do_not_tell_a_column_beside_the_key(bank: Bank) -> None:
    bank.low.execute("CREATE TABLE account_by_owner (id INT PRIMARY KEY, owner BIGINT UNSIGNED)")
    start = bank.start()
    bank.low.execute("INSERT INTO account_by_owner VALUES (1, 5)")
    with pytest.raises(UsageError, match="does not say its owner"):
        bank.changes(start, key_range=parse_key_range("-40"), keys_only=True)


# Order


def insert_at(database: Database, first: int, moments: Sequence[int], text: str) -> None:
    """A row for each moment, committed then by the log's clock, which may run ahead of ours."""
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        for row, moment in enumerate(moments, first):
            cursor.execute(f"SET timestamp = {moment}")
            cursor.execute("INSERT INTO account VALUES (%s, %s)", (row, text))


@pytest.mark.parametrize("skew", [3.0, 30.0])
def test_no_shard_runs_ahead_of_another(bank: Bank, skew: float) -> None:
    """The rows of one shard are long and those of the other short, so that bytes say nothing of time."""
    start = bank.start()
    now = int(time.time())
    insert_at(bank.low, 0, range(now, now + 200), "x" * 3000)
    insert_at(bank.high, 1000, range(now, now + 200), "y")
    with Following(bank.request(skew=skew, max_bytes=16 << 10), start, "current") as following:
        times: dict[str, float] = {}
        worst, steps = 0.0, set()
        for change in following.changes():
            times[change["shard"]] = change["committed_at"].timestamp()
            if len(times) == 2:
                worst = max(worst, abs(times["-80"] - times["80-"]))
            steps.add(str(following.offset.token()))
    assert len(steps) > 10
    assert worst <= skew + 2  # what one step of a log holds comes on top


def test_a_shard_without_news_holds_nobody_back(bank: Bank) -> None:
    start = bank.start()
    now = int(time.time())
    insert_at(bank.high, 0, range(now, now + 100), "y")
    assert rows(bank.changes(start, skew=1.0, max_bytes=4096)) == list(range(100))


def test_changes_of_several_shards_come_by_time(bank: Bank) -> None:
    start = bank.start()
    now = int(time.time())
    insert_at(bank.low, 0, range(now, now + 100, 2), "x")
    insert_at(bank.high, 1000, range(now + 1, now + 100, 2), "y")
    times = [change["committed_at"] for change in bank.changes(start)]
    assert times == sorted(times)
    assert len(times) == 100


# Heartbeats


def test_heartbeats_of_an_idle_stream(bank: Bank) -> None:
    with Following(bank.request(heartbeat=0.2), "current", "never") as following:
        changes = following.changes()
        beats = [next(changes) for _ in range(4)]
        assert [beat["kind"] for beat in beats] == ["heartbeat"] * 4
        assert {beat["shard"] for beat in beats} == {"-80", "80-"}
        assert beats[2]["committed_at"] - beats[0]["committed_at"] >= timedelta(seconds=0.15)
        assert all(beat["restart_at"] for beat in beats)
        token = parse_token(beats[0]["token"])
        assert token.shard == beats[0]["shard"]
        bank.insert([1])
        assert next(change for change in changes if change["kind"] != "heartbeat")["key"] == {
            "id": "1"
        }


@pytest.mark.long
def test_heartbeats_through_spark(bank: Bank, spark: SparkSession, tmp_path: Path) -> None:
    kinds: list[tuple[str, str]] = []

    def take(batch: DataFrame, _: int) -> None:
        kinds.extend((row["kind"], row["shard"]) for row in batch.collect())

    changes = read_changes(spark, str(bank.file), start="current", heartbeat=0.2, wait=0.1)
    query = (
        changes.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        deadline = time.monotonic() + 60
        while len(kinds) < 4 and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        query.stop()
    assert set(kinds) == {("heartbeat", "-80"), ("heartbeat", "80-")}


# Where to start


def test_every_row_says_when_to_restart(bank: Bank) -> None:
    """From each of these times on a new stream gives all that this one had not given before."""
    given: list[Change] = []
    with Following(bank.request(max_bytes=1), "current", "never") as following:
        changes = following.changes()
        for first in range(0, 30, 10):
            bank.insert(range(first, first + 10))
            given += [next(changes) for _ in range(10)]
            time.sleep(1.1)
    assert sorted(rows(given)) == list(range(30))
    assert all(change["restart_at"] <= change["committed_at"] for change in given)
    for number in (0, 9, 15, 25):
        moment = int(given[number]["restart_at"].timestamp() * 1_000_000)
        again = set(rows(bank.changes(moment)))
        assert again.issuperset(rows(given[number:]))
    # Once every shard has moved, it is not much earlier than the row itself.
    assert given[-1]["committed_at"] - given[-1]["restart_at"] < timedelta(seconds=4)


def test_a_time_to_start_at(bank: Bank) -> None:
    bank.insert(range(10))
    time.sleep(2.1)
    moment = datetime.now(UTC)
    bank.insert(range(10, 20))
    assert sorted(rows(bank.changes(int(moment.timestamp() * 1e6)))) == list(range(10, 20))


def test_the_token_of_a_keyspace(bank: Bank) -> None:
    bank.insert(range(10))
    with Following(bank.request(), "start", "current") as following:
        list(following.changes())
        token = str(following.offset.token())
    assert {t.shard for t in parse_keyspace_position(token).tokens} == {"-80", "80-"}
    bank.insert(range(10, 20))
    assert sorted(rows(bank.changes(parse_any(token)))) == list(range(10, 20))


def test_the_token_of_one_shard_starts_the_others_by_time(bank: Bank) -> None:
    bank.insert(range(10))
    time.sleep(5)  # more than shards may be apart, and clocks
    start = bank.start()
    bank.insert(range(10, 30))
    changes = bank.changes(start)
    middle = next(i for i, change in enumerate(changes) if i > 8 and change["shard"] == "-80")
    again = set(rows(bank.changes(parse_any(changes[middle]["token"]))))
    assert again.issuperset(rows(changes[middle + 1 :]))
    same_shard = [row for row in rows(changes[: middle + 1]) if is_in("-80", row)]
    assert not again.intersection(same_shard)
    assert again.isdisjoint(range(10))


def test_a_token_of_another_keyspace(bank: Bank, tmp_path: Path) -> None:
    bank.insert([1])
    token = parse_any(bank.changes()[0]["token"])
    endpoint = Request(bank.low.url, wait=0.1)
    with pytest.raises(UsageError, match=r"the token is of shard (-80|80-)"):
        Following(endpoint, token, "current")
