"""Invalidators at work on real streams: checkpoints, kills, truncates, composite objects, Spark, the program."""

from __future__ import annotations

import signal
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import truecopy.client
from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.stream.resharding import is_in, wait_until
from truecopy.cache.entry import unpack
from truecopy.cache.follow import Checkpoint, Following
from truecopy.cache.invalidation import ENTRY
from truecopy.cache.objects import Objects
from truecopy.cache.readthrough import ReadThrough
from truecopy.cache.spark import invalidate_by_spark
from truecopy.cache.store import Cache, InProcess, open_cache
from truecopy.model.keyspace import parse_key_range
from truecopy.stream.removal import remove
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, customer INT NOT NULL, n INT NOT NULL)"
OBJECTS = Objects({"orders": ("order:{id}",)})


def values(cache: Cache, keys: Sequence[str]) -> list[Any]:
    """What is cached: `-` for nothing, `token` for a token without a value, else the value."""
    found = cache.get([ENTRY + key for key in keys])
    entries = [unpack(held.content) if held else None for held in found]
    return ["-" if e is None else "token" if e.value is None else e.value.decode() for e in entries]


def test_with_the_embedded_cache(mariadb_db: Database) -> None:
    mariadb_db.execute(ORDERS)
    mariadb_db.execute("INSERT INTO orders VALUES (1, 7, 1), (2, 7, 1)")
    cache, stop = InProcess(), threading.Event()
    request = Request(mariadb_db.url, tables=("orders",), keys_only=True, wait=0.05)
    sql = "SELECT n FROM orders WHERE id = %s"
    with (
        Following(request, cache, OBJECTS, "current") as following,
        truecopy.client.connect(mariadb_db.url) as client,
    ):
        thread = threading.Thread(target=following.run, args=(stop,))
        thread.start()
        try:
            reader = ReadThrough(client, cache)
            wait_until(lambda: reader.get("order:1", sql, (1,)).put)
            assert reader.get("order:1", sql, (1,)).hit
            mariadb_db.execute("UPDATE orders SET n = 2 WHERE id = 1")
            wait_until(lambda: values(cache, ["order:1"]) == ["token"])
            wait_until(lambda: reader.get("order:1", sql, (1,)).hit)
            assert reader.get("order:1", sql, (1,)).value == [[2]]
            mariadb_db.execute("TRUNCATE orders")
            wait_until(lambda: values(cache, ["order:1"]) == ["-"])
            wait_until(lambda: reader.get("order:1", sql, (1,)).hit)
            assert reader.get("order:1", sql, (1,)).value == []
        finally:
            stop.set()
            thread.join()


def test_goes_on_from_its_checkpoint(mariadb_db: Database, tmp_path: Path) -> None:
    mariadb_db.execute(ORDERS)
    cache = InProcess()
    request = Request(mariadb_db.url, tables=("orders",), keys_only=True)
    checkpoint = Checkpoint(tmp_path / "here" / "position")
    with Following(request, cache, OBJECTS, "current", checkpoint) as following:
        mariadb_db.execute("INSERT INTO orders VALUES (1, 7, 1)")
        following.run(until_current=True)
    assert values(cache, ["order:1", "order:2"]) == ["token", "-"]
    mariadb_db.execute("INSERT INTO orders VALUES (2, 7, 1)")  # nobody looks
    cache.clear()
    with Following(request, cache, OBJECTS, "current", checkpoint) as following:
        following.run(until_current=True)
        assert following.counts.changes == 1
    assert values(cache, ["order:1", "order:2"]) == ["-", "token"]


def test_composite_objects_go_with_any_of_their_rows(mariadb_db: Database) -> None:
    mariadb_db.execute(ORDERS)
    mariadb_db.execute("CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(9))")
    cache = InProcess()
    objects = Objects({"orders": ("customer:{customer}",), "customers": ("customer:{id}",)})
    with Following(Request(mariadb_db.url), cache, objects, "current") as following:
        mariadb_db.execute("INSERT INTO customers VALUES (7, 'Ann'), (8, 'Ben'), (9, 'Cy')")
        mariadb_db.execute("INSERT INTO orders VALUES (1, 7, 1)")
        following.run(until_current=True)
        keys = [f"customer:{number}" for number in (6, 7, 8, 9)]
        assert values(cache, keys) == ["-", "token", "token", "token"]
        cache.clear()
        mariadb_db.execute("UPDATE orders SET customer = 8")
        following.run(until_current=True)
        assert values(cache, keys) == ["-", "token", "token", "-"]


def test_a_key_range_of_a_keyspace(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "keyspace: shop\nshards:\n"
        f'  "-80": {{servers: ["{mariadb_db.url}"]}}\n'
        f'  "80-": {{servers: ["{second_mariadb_db.url}"]}}\n'
        "sharding: {orders: {column: id, function: hash}}\n"
    )
    for database in (mariadb_db, second_mariadb_db):
        database.execute(ORDERS)
    ranges = ("-40", "40-80", "80-")
    caches = [InProcess() for _ in ranges]
    with ExitStack() as stack:
        work = [
            stack.enter_context(
                Following(
                    Request(str(file), key_range=parse_key_range(one), keys_only=True),
                    cache,
                    OBJECTS,
                    "current",
                )
            )
            for one, cache in zip(ranges, caches, strict=True)
        ]
        for row in range(40):
            database = mariadb_db if is_in("-80", row) else second_mariadb_db
            database.execute(f"INSERT INTO orders VALUES ({row}, 7, 1)")
        for following in work:
            following.run(until_current=True)
    for one, cache in zip(ranges, caches, strict=True):
        expected = ["token" if is_in(one, row) else "-" for row in range(40)]
        assert values(cache, [f"order:{row}" for row in range(40)]) == expected
    assert sum(following.counts.stored for following in work) == 40


def test_on_postgresql(postgres_db: Database, tmp_path: Path) -> None:
    postgres_db.execute(ORDERS)
    postgres_db.execute("INSERT INTO orders VALUES (1, 7, 1)")
    cache = InProcess()
    work = {"work": str(tmp_path / "work")}
    request = Request(postgres_db.url, tables=("orders",), keys_only=True, settings=work)
    sql = "SELECT n FROM orders WHERE id = %s"
    try:
        with (
            Following(request, cache, OBJECTS, "current") as following,
            truecopy.client.connect(postgres_db.url) as client,
        ):
            reader = ReadThrough(client, cache)
            wait_until(lambda: reader.get("order:1", sql, (1,)).put)
            assert reader.get("order:1", sql, (1,)).hit
            postgres_db.execute("UPDATE orders SET n = 2 WHERE id = 1")
            following.run(until_current=True)
            assert values(cache, ["order:1"]) == ["token"]
            wait_until(lambda: reader.get("order:1", sql, (1,)).hit)
            assert reader.get("order:1", sql, (1,)).value == [[2]]
    finally:
        remove(request)


def test_on_sqlite(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    cache = InProcess()
    sql = "SELECT n FROM orders WHERE id = ?"
    with closing(sqlite3.connect(file, isolation_level=None)) as application:
        application.execute(ORDERS)
        url = f"sqlite:///{file}"
        request = Request(url, tables=("orders",), keys_only=True)
        with (
            Following(request, cache, OBJECTS, "current") as following,
            truecopy.client.connect(url) as client,
        ):
            application.execute("INSERT INTO orders VALUES (1, 7, 1)")
            following.run(until_current=True)
            reader = ReadThrough(client, cache)
            assert reader.get("order:1", sql, (1,)).put
            assert reader.get("order:1", sql, (1,)).value == [[1]]
            application.execute("UPDATE orders SET n = 2")
            following.run(until_current=True)
            assert values(cache, ["order:1"]) == ["token"]
            assert reader.get("order:1", sql, (1,)).put
            assert reader.get("order:1", sql, (1,)).value == [[2]]


def test_by_spark(
    mariadb_db: Database, redis_url: str, spark: SparkSession, tmp_path: Path
) -> None:
    mariadb_db.execute(ORDERS)
    cache = open_cache(redis_url)
    cache.clear()
    request = Request(mariadb_db.url, tables=("orders",), keys_only=True)
    with Following(request, cache, OBJECTS, "current") as following:
        start = str(following.offset.token())
    for first in (0, 100):
        rows = [(number, 7, 1) for number in range(first, first + 100)]
        mariadb_db.executemany("INSERT INTO orders VALUES (%s, %s, %s)", rows)
        counts = invalidate_by_spark(
            request, redis_url, OBJECTS, start, tmp_path / "checkpoint", None, once=True
        )
        assert (counts.changes, counts.stored) == (100, 100)
    assert values(cache, [f"order:{number}" for number in range(200)]) == ["token"] * 200


@pytest.mark.long
def test_the_program(mariadb_db: Database, redis_url: str, tmp_path: Path) -> None:
    mariadb_db.execute(ORDERS)
    cache = open_cache(redis_url)
    cache.clear()
    rows = [(number, 7, 1) for number in range(50)]
    mariadb_db.executemany("INSERT INTO orders VALUES (%s, %s, %s)", rows)
    command = [
        "cache",
        mariadb_db.url,
        redis_url,
        "--until",
        "current",
        "--json",
        "--from",
        "start",
    ]
    command += ["--checkpoint", str(tmp_path / "here"), "--object", "orders=order:{id}"]
    ended = program(*command)
    assert ended.code == 0, ended.err
    assert ended.document["stored"] == 50
    mariadb_db.execute("UPDATE orders SET customer = 8 WHERE id = 3")
    command += ["--object", "orders=customer:{customer}"]
    ended = program(*command)
    assert ended.code == 0, ended.err
    assert ended.document["changes"] == 3
    assert values(cache, ["customer:7", "customer:8", "customer:9"]) == ["token", "token", "-"]
    cache.clear()
    mariadb_db.execute("UPDATE orders SET n = 2 WHERE id = 4")
    for_ever = [word for word in command if word not in ("--until", "current")]
    process = start(*for_ever)
    wait_until(lambda: values(cache, ["order:4"]) == ["token"])
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=180)
    assert (process.returncode, said.count("interrupted; to go on: --from")) == (3, 1)
    mariadb_db.execute("UPDATE orders SET n = 3 WHERE id = 4")  # behind the checkpoint
    refused = program(*command, "--object", "orders=x")
    assert refused.code == 2
    assert "names no column" in refused.err
    unknown = program("cache", mariadb_db.url, redis_url, "--object", "nothing=n:{id}")
    assert unknown.code == 2
    assert "there is no table nothing" in unknown.err
    here = program("cache", mariadb_db.url, "memory://", "--object", "orders=order:{id}")
    assert here.code == 2
    assert "the cache of one process" in here.err
    mariadb_db.execute("FLUSH BINARY LOGS")
    [*_, (last, *_)] = mariadb_db.execute("SHOW BINARY LOGS")
    mariadb_db.execute(f"PURGE BINARY LOGS TO '{last}'")
    gone = program(*command)
    assert gone.code == 3
    assert "clear the cache" in gone.err
    secret = redis_url.partition(":")[2].partition("@")[0].lstrip("/:")
    assert secret not in ended.out + ended.err + refused.err
