"""Transactions that are large: memory stays flat, and files may be longer than offsets can say."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
import pytest

from tests.servers import Database, MariaDB
from tests.stream.changes import Follower, session
from truecopy.stream.binlog.log import BinlogLog
from truecopy.stream.log import Mark, Wanted


def memory() -> int:
    return int(psutil.Process().memory_info().rss)


def read_to_end(follower: Follower, start: Mark, end: Mark) -> tuple[int, int, int]:
    """Rows, batches, and by how much memory grew after the first batch."""
    rows, sizes = 0, []
    for part in follower.log.split(start, end, 1):
        for batch in part.read():
            rows += batch.num_rows
            sizes.append(memory())
    return rows, len(sizes), max(sizes) - sizes[0] if sizes else 0


def test_a_large_transaction_flows(mariadb_db: Database) -> None:
    with session(mariadb_db) as run, Follower(mariadb_db) as follower:
        run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(250)) ENGINE = MyISAM")
        run("INSERT INTO t SELECT seq, REPEAT('x', 200) FROM seq_1_to_300000")
        before = memory()
        *_, (start, end) = follower.ranges(seconds=60)
        rows, batches, growth = read_to_end(follower, start, end)
        assert rows == 300_000
        assert batches > 10
        assert growth < 50 << 20
        assert memory() - before < 200 << 20
        # What is first in it comes long before its end.
        (part,) = follower.log.split(start, end, 1)
        began = time.monotonic()
        batches_read = part.read()
        first = next(batches_read)
        waited = time.monotonic() - began
        assert first.column("seq")[0].as_py() == 0
        list(batches_read)
        assert waited < (time.monotonic() - began) / 2


@pytest.fixture
def swallowing() -> Iterator[Database]:
    """Tables that keep nothing, and log everything."""
    options = ("--plugin-load-add=ha_blackhole", "--innodb-log-file-size=4M")
    with MariaDB(*options, buffer_pool="16M") as server:
        yield server.create_database("shop")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_transaction_longer_than_offsets(swallowing: Database) -> None:
    with session(swallowing) as run, Follower(swallowing) as follower:
        run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(3000)) ENGINE = BLACKHOLE")
        run("INSERT INTO t VALUES (0, 'before')")
        run("INSERT INTO t SELECT seq, REPEAT('x', 2500) FROM seq_1_to_2000000")
        run("INSERT INTO t VALUES (3000000, 'after')")
        ranges = list(follower.ranges(max_bytes=1, seconds=900))
        assert any(size > 4 << 30 for _, size in swallowing.execute("SHOW BINARY LOGS"))
        counted = [read_to_end(follower, start, end) for start, end in ranges]
        assert sum(rows for rows, _, _ in counted) == 2_000_002
        assert max(growth for _, _, growth in counted) < 100 << 20
        # Each boundary is found again, by its place or by its position.
        with BinlogLog(follower.endpoint, Wanted("s")) as fresh:
            last = ranges[-1][1]
            for start, _ in ranges[-2:]:
                for mark in (start, Mark(start.position, schemas=start.schemas)):
                    end = mark
                    while end.position != last.position:
                        end = fresh.advance(end, 1 << 40, 60)
