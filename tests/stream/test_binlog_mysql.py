"""MySQL's own binary log: GTIDs with and without tags, none at all, compressed transactions, partial JSON."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress

import pymysql
import pytest

from tests.servers import Database, MySQL
from tests.stream.changes import Follower, plain, session
from tests.stream.replay import read_changes
from truecopy.engines.protocols import Statement
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.stream.binlog import tail
from truecopy.stream.binlog.log import BinlogLog
from truecopy.stream.binlog.visibility import snapshot, visible_mark
from truecopy.stream.log import LogGone, Mark, Wanted

pytestmark = pytest.mark.mysql
GTIDS = ("--gtid-mode=ON", "--enforce-gtid-consistency=ON")


def private(*options: str) -> MySQL:
    mysqld = os.environ.get("TRUECOPY_MYSQLD")
    if not mysqld:
        pytest.skip("TRUECOPY_MYSQLD names no mysqld (`make mysql` fetches one)")
    return MySQL(mysqld, "--innodb-redo-log-capacity=8M", *options, buffer_pool="32M")


@pytest.fixture(scope="module", params=["with GTIDs", "without GTIDs"])
def shop(request: pytest.FixtureRequest) -> Iterator[Database]:
    options = GTIDS if request.param == "with GTIDs" else ()
    with private("--max-binlog-size=8192", *options) as server:
        yield server.create_database("shop")


@pytest.fixture(scope="module")
def with_gtids() -> Iterator[Database]:
    with private(*GTIDS, "--binlog-row-metadata=FULL") as server:
        yield server.create_database("shop")


WRITES = (
    "INSERT INTO t VALUES ({n}, {n} / 7, REPEAT('é', {n}), JSON_OBJECT('n', {n}, 'a', '[1, 2]'), NOW(6), 'b')",
    "REPLACE INTO t (id, v) VALUES ({n}, 'replaced')",
    "UPDATE t SET v = CONCAT(v, 'y'), d = NULL WHERE id % 3 = {n} % 3",
    "UPDATE t SET id = id + 100 WHERE id = {n}",
    "UPDATE t SET j = JSON_SET(j, '$.n', {n}, '$.new', '{n}') WHERE id > {n}",
    "DELETE FROM t WHERE id = {n}",
    "INSERT INTO p VALUES ({n} % 4, {n}, 1) ON DUPLICATE KEY UPDATE v = v + 1",
    "TRUNCATE TABLE p",
)


def write(database: Database, seed: int, *settings: str) -> None:
    chosen = random.Random(seed)
    with session(database, *settings) as run:
        for _ in range(60):
            statements = [
                chosen.choice(WRITES[:-1]).format(n=chosen.randint(1, 40))
                for _ in range(chosen.randint(1, 4))
            ]
            if chosen.random() < 0.1:
                statements = [WRITES[-1]]
            run("BEGIN")
            for statement in statements:
                with suppress(pymysql.MySQLError):
                    run(statement)
            run(chosen.choice(["COMMIT", "COMMIT", "ROLLBACK"]))


def create(database: Database) -> None:
    database.execute("DROP TABLE IF EXISTS t, p")
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(12, 4), v VARCHAR(2000), j JSON, at DATETIME(6),"
        " e ENUM('a', 'b'), g INT AS (id + 1) VIRTUAL, s INT AS (id + 2) STORED, h INT INVISIBLE DEFAULT 3)"
    )
    database.execute("CREATE TABLE p (a INT, b INT, v INT, PRIMARY KEY (a, b))")


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("SET SESSION binlog_transaction_compression = ON",),
        ("SET SESSION binlog_row_value_options = PARTIAL_JSON",),
        (
            "SET SESSION binlog_row_value_options = PARTIAL_JSON",
            "SET SESSION binlog_transaction_compression = ON",
        ),
    ],
)
def test_the_stream_is_the_tables(
    shop: Database, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "SAMPLE_BYTES", 1000)
    create(shop)
    with Follower(shop) as follower:
        start = follower.mark
        for seed in range(4):
            write(shop, seed, *settings)
            follower.replay(parts=seed + 1, max_bytes=20_000)
            follower.check("t", "p")
        assert len({mark.place.partition(":")[0] for mark in follower.marks}) > 1
        assert all(change["committed_at"].microsecond for change in follower.changes[:5])
        with BinlogLog(follower.endpoint, Wanted("s")) as fresh:
            again = read_changes(fresh, start, follower.mark)
        columns = ("position", "txn", "seq", "kind", "key", "before", "after", "committed_at")
        assert plain(again, *columns) == plain(follower.changes, *columns)


def test_current_is_after_everything_committed(shop: Database) -> None:
    create(shop)
    with session(shop) as run, Follower(shop) as follower:
        for n in range(10):
            before = follower.log.current()
            run(f"INSERT INTO p VALUES ({n}, {n}, 1)")
            after = follower.log.current()
            found = read_changes(follower.log, before, follower.log.advance(before, 1 << 20, 5))
            assert plain(found, "key", "position") == [((str(n), str(n)), after.position)]
            assert follower.log.lag(after).bytes == 0
            assert follower.log.lag(before).bytes > 0


def test_times_are_found(shop: Database) -> None:
    with session(shop) as run, Follower(shop, tables=("timed",)) as follower:
        run("CREATE TABLE timed (id INT PRIMARY KEY)")
        for n in range(20):
            run(f"INSERT INTO timed VALUES ({n})")
        rows = follower.read()
        for row in rows[::5]:
            at = round(row["committed_at"].timestamp() * 1_000_000)
            with Follower(shop, follower.log.seek_time(at), tables=("timed",)) as later:
                assert row["key"] in [change["key"] for change in later.read()]
        run("DROP TABLE timed")


def test_a_position_alone_is_enough(shop: Database) -> None:
    create(shop)
    with session(shop) as run, Follower(shop) as follower:
        run("INSERT INTO p VALUES (1, 1, 1)")
        follower.read()
        middle = follower.mark
        run("INSERT INTO p VALUES (2, 2, 2)")
        with Follower(shop, follower.log.seek(middle.position)) as resumed:
            assert plain(resumed.read(), "key") == [(("2", "2"),)]
        with BinlogLog(follower.endpoint, Wanted("s")) as log:
            for wrong in ("0-1-5", "16/B374D848"):
                with pytest.raises(LogGone):
                    log.seek(wrong)


def test_what_was_purged_is_gone(shop: Database) -> None:
    create(shop)
    with Follower(shop) as follower:
        write(shop, 9)
        shop.execute("FLUSH BINARY LOGS")
        last = shop.execute("SHOW BINARY LOGS")[-1][0]
        shop.execute(f"PURGE BINARY LOGS TO '{last}'")
        with pytest.raises(LogGone):
            follower.log.advance(follower.mark, 1 << 20, 5)
        with pytest.raises(LogGone):
            follower.log.seek(follower.mark.position)
        if ":" in follower.mark.position and "@" not in follower.mark.position:
            with pytest.raises(LogGone):
                follower.log.advance(Mark(""), 1 << 20, 5)
        with Follower(shop, follower.log.oldest()) as rest, session(shop) as run:
            run("REPLACE INTO p VALUES (77, 77, 77)")
            assert plain(rest.read(), "key") == [(("77", "77"),)]


def test_tags(with_gtids: Database) -> None:
    create(with_gtids)
    with session(with_gtids) as run, Follower(with_gtids) as follower:
        for n, tag in enumerate(["", ":blue", ":green", "", ":blue"]):
            run(f"SET gtid_next = 'AUTOMATIC{tag}'", f"INSERT INTO p VALUES ({n}, {n}, 1)")
        run("SET gtid_next = 'AUTOMATIC'")
        follower.read(max_bytes=1)
        assert len(follower.changes) == 5
        assert [change["txn"].count("blue") for change in follower.changes] == [0, 1, 0, 0, 1]
        ((executed,),) = run("SELECT @@global.gtid_executed")
        assert follower.mark.position == executed.replace("\n", "")
        assert all(change["committed_at"].microsecond for change in follower.changes)
        for mark in follower.marks:
            # Also from the position alone, which the server has to find.
            with Follower(with_gtids, Mark(mark.position)) as later:
                assert plain(later.read(), "txn") == plain(
                    [
                        change
                        for change in follower.changes
                        if follower.changes.index(change) >= follower.marks.index(mark)
                    ],
                    "txn",
                )


def test_annotations(with_gtids: Database) -> None:
    create(with_gtids)
    with (
        session(with_gtids, "SET SESSION binlog_rows_query_log_events = ON") as run,
        Follower(with_gtids) as follower,
    ):
        run("/* task:1 */ INSERT INTO p VALUES (1, 1, 1)", "INSERT INTO p VALUES (2, 2, 2)")
        run("/* " + "long " * 100 + "*/ INSERT INTO p VALUES (3, 3, 3)")
        assert plain(follower.read(), "annotation") == [
            ("task:1",),
            (None,),
            (("long " * 100).strip(),),
        ]


def test_a_full_log_says_its_definitions(with_gtids: Database) -> None:
    with session(with_gtids) as run, Follower(with_gtids) as follower:
        run(
            "CREATE TABLE f (id INT PRIMARY KEY, u INT UNSIGNED, s VARCHAR(10) CHARACTER SET latin1,"
            " e ENUM('x', 'é'), w SET('a', 'b'), b BLOB, j JSON, y YEAR)"
        )
        run("INSERT INTO f VALUES (1, 4000000000, 'ÿ', 'é', 'a,b', X'00ff', '[1]', 2024)")
        run("ALTER TABLE f DROP COLUMN u, MODIFY e ENUM('z'), RENAME COLUMN s TO t", "DROP TABLE f")
        changes = follower.read()
    assert changes[0]["after"] == [
        "1",
        "4000000000",
        "ÿ",
        "é",
        "a,b",
        "00ff",
        changes[0]["after"][6],
        "2024",
    ]
    assert [change["kind"] for change in changes] == ["insert", "truncate"]


@pytest.mark.parametrize("native", ["OFF", "ON"])
def test_cascades_are_in_the_log_or_refused(native: str) -> None:
    """Until MySQL 9.6 InnoDB changed the rows by itself, and nobody logged them."""
    with private(*GTIDS, f"--innodb-native-foreign-keys={native}") as server:
        shop = server.create_database("shop")
        with session(shop) as run, Follower(shop) as follower:
            run("CREATE TABLE parent (id INT PRIMARY KEY)")
            run(
                "CREATE TABLE child (id INT PRIMARY KEY, p INT,"
                " FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)"
            )
            run("INSERT INTO parent VALUES (1), (2)", "INSERT INTO child VALUES (1, 1), (2, 2)")
            run("DELETE FROM parent WHERE id = 1")
            follower.replay()
            follower.check("parent")
            if native == "ON":
                (line,) = follower.log.missing()
                assert "cascades=target" in line
                assert len(follower.rows("child")) == 2
            else:
                assert follower.log.missing() == []
                follower.check("child")


def test_xa_and_partial_images(with_gtids: Database) -> None:
    create(with_gtids)
    with session(with_gtids) as run:
        with Follower(with_gtids) as follower:
            run(
                "XA START 'a'",
                "INSERT INTO p VALUES (1, 1, 1)",
                "XA END 'a'",
                "XA COMMIT 'a' ONE PHASE",
            )
            assert plain(follower.read(), "key") == [(("1", "1"),)]
            run("XA START 'b'", "INSERT INTO p VALUES (2, 2, 1)", "XA END 'b'", "XA PREPARE 'b'")
            run("XA COMMIT 'b'")
            with pytest.raises(CannotFinish, match="XA PREPARE"):
                follower.read()
        run("SET SESSION binlog_row_image = MINIMAL")
        with Follower(with_gtids) as full, Follower(with_gtids, keys_only=True) as keys:
            run("UPDATE p SET v = 9 WHERE a = 1")
            assert plain(keys.read(), "kind", "key") == [("update", ("1", "1"))]
            with pytest.raises(CannotFinish, match="binlog_row_image = 'FULL'"):
                full.read()


def test_rights_are_named(with_gtids: Database) -> None:
    with_gtids.execute("CREATE USER few IDENTIFIED BY 'pw'")
    with_gtids.execute("GRANT SELECT ON shop.* TO few")
    url = f"mysql://few:pw@127.0.0.1:{with_gtids.server.port}/shop"
    with BinlogLog(parse_endpoint(url), Wanted("s")) as log:
        for line in log.missing():
            with_gtids.execute("GRANT" + line.rpartition(": GRANT")[2])
    create(with_gtids)
    with Follower(with_gtids, url=url) as follower, session(with_gtids) as run:
        assert follower.log.missing() == []
        run("INSERT INTO p VALUES (1, 1, 1)")
        assert plain(follower.read(), "key") == [(("1", "1"),)]


def test_visible_positions(shop: Database) -> None:
    create(shop)
    endpoint = parse_endpoint(shop.url)
    ((mode,),) = shop.execute("SELECT @@global.gtid_mode")
    if mode == "OFF":
        with pytest.raises(UsageError, match="gtid_mode=ON"):
            visible_mark(endpoint)
        return
    shop.execute("INSERT INTO p VALUES (1, 1, 1)")
    with snapshot(endpoint) as (seen, mark):
        shop.execute("INSERT INTO p VALUES (2, 2, 2)")
        assert seen.fetch(Statement("SELECT a FROM p")) == [("1",)]
        with Follower(shop, mark) as follower:
            assert plain(follower.read(), "key") == [(("2", "2"),)]


def test_a_log_that_was_reset_is_an_honest_error() -> None:
    with private(*GTIDS) as server:
        shop = server.create_database("shop")
        create(shop)
        with Follower(shop) as follower:
            write(shop, 3)
            follower.read()
            shop.execute("RESET BINARY LOGS AND GTIDS")
            with pytest.raises(CannotFinish):
                follower.log.advance(follower.mark, 1 << 20, 20)
        with BinlogLog(follower.endpoint, Wanted("s")) as log, pytest.raises(CannotFinish):
            log.advance(follower.mark, 1 << 20, 5)
