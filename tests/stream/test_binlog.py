"""MariaDB's binary log as a change log, against a real server."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pymysql
import pytest

from tests.servers import Database
from tests.stream.changes import Follower, plain, session
from tests.stream.replay import read_changes
from truecopy.model.errors import CannotFinish
from truecopy.model.position import contains, parse_position
from truecopy.stream.binlog import tail
from truecopy.stream.binlog.log import BinlogLog
from truecopy.stream.binlog.walk import Walk
from truecopy.stream.log import Mark, Wanted


@pytest.fixture
def follower(mariadb_db: Database) -> Iterator[Follower]:
    with Follower(mariadb_db) as follower:
        yield follower


def test_streams_inserts_updates_and_deletes(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
        run("INSERT INTO t VALUES (1, 'a'), (2, NULL)", "UPDATE t SET v = 'b' WHERE id = 1")
        run("DELETE FROM t WHERE id = 2")
    changes = follower.read()
    assert plain(changes, "kind", "key", "before", "after", "commit_order", "seq") == [
        ("insert", ("1",), None, ("1", "a"), 1, 0),
        ("insert", ("2",), None, ("2", None), 1, 1),
        ("update", ("1",), ("1", "a"), ("1", "b"), 2, 0),
        ("delete", ("2",), ("2", None), None, 3, 0),
    ]
    assert {change["shard"] for change in changes} == {"s"}
    assert {change["table"] for change in changes} == {f"{mariadb_db.name}.t"}
    assert all(change["committed_at"] for change in changes)


def test_a_changed_key_is_a_delete_and_an_insert(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run(
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
        )
        run("UPDATE t SET id = id + 10, v = v WHERE id = 2")
        run("UPDATE t SET v = 9, id = IF(id = 3, 30, id) ORDER BY id")
    assert plain(follower.read(), "kind", "key", "seq")[3:] == [
        ("delete", ("2",), 0),
        ("insert", ("12",), 1),
        ("update", ("1",), 0),
        ("delete", ("3",), 1),
        ("insert", ("30",), 2),
        ("update", ("12",), 3),
    ]


def test_what_is_rolled_back_is_not_streamed(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY)")
        run("BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK")
        run("BEGIN", "INSERT INTO t VALUES (2)", "SAVEPOINT a", "INSERT INTO t VALUES (3)")
        run("ROLLBACK TO a", "INSERT INTO t VALUES (4)", "COMMIT")
    assert plain(follower.read(), "kind", "key") == [("insert", ("2",)), ("insert", ("4",))]


def test_truncate_and_drop_empty_a_table(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", "TRUNCATE TABLE t")
        run("INSERT INTO t VALUES (2)", "DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY)")
        run("INSERT INTO t VALUES (3)", "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)")
    # Read at once, the first two tables cannot be known any more; step by step they can.
    with pytest.raises(CannotFinish, match="cannot be known: a later CREATE TABLE changed it"):
        follower.read()


def test_streams_what_a_dropped_table_had(follower: Follower, mariadb_db: Database) -> None:
    kinds = []
    with session(mariadb_db) as run:
        for statement in (
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "INSERT INTO t VALUES (1)",
            "TRUNCATE TABLE t",
            "INSERT INTO t VALUES (2)",
            "DROP TABLE t",
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "INSERT INTO t VALUES (3)",
            "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)",
        ):
            run(statement)
            kinds += [change["kind"] for change in follower.read()]
    assert kinds == ["insert", "truncate", "insert", "truncate", "insert", "truncate"]


def test_other_databases_are_left_out(
    follower: Follower, mariadb_db: Database, second_database: Database
) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY)")
        run(f"CREATE TABLE {second_database.name}.t (id INT PRIMARY KEY)")
        run("BEGIN", f"INSERT INTO {second_database.name}.t VALUES (1)", "INSERT INTO t VALUES (2)")
        run("COMMIT", f"INSERT INTO {second_database.name}.t VALUES (3)")
        run(f"TRUNCATE TABLE {second_database.name}.t")
    assert plain(follower.read(), "key", "seq") == [(("2",), 0)]


@pytest.fixture
def second_database(mariadb_db: Database) -> Iterator[Database]:
    name = f"{mariadb_db.name}_two"
    yield mariadb_db.server.create_database(name)
    mariadb_db.server.drop_database(name)


def test_tables_are_chosen_by_name_and_pattern(
    mariadb_db: Database, second_database: Database
) -> None:
    with (
        Follower(mariadb_db, tables=("a*", f"{second_database.name}.c")) as follower,
        session(mariadb_db) as run,
    ):
        for name in (
            "a1",
            "a2",
            "b",
            "c",
            f"{second_database.name}.c",
            f"{second_database.name}.a1",
        ):
            run(f"CREATE TABLE {name} (id INT PRIMARY KEY)", f"INSERT INTO {name} VALUES (1)")
        found = {change["table"] for change in follower.read()}
    assert found == {
        f"{mariadb_db.name}.a1",
        f"{mariadb_db.name}.a2",
        f"{second_database.name}.c",
    }


def test_a_table_without_a_key_has_empty_keys(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (a INT, b INT)", "INSERT INTO t VALUES (1, 1)", "UPDATE t SET a = 2")
    assert plain(follower.read(), "kind", "key", "after") == [
        ("insert", (), ("1", "1")),
        ("update", (), ("2", "1")),
    ]


@pytest.fixture
def busy_range(mariadb_db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    """A range of some hundred transactions over several tables, and files, with boundaries close together."""
    monkeypatch.setattr(tail, "SAMPLE_BYTES", 500)
    with Follower(mariadb_db) as follower, session(mariadb_db) as run:
        run("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(100))")
        run("CREATE TABLE b (k VARCHAR(20), n INT, v INT, PRIMARY KEY (k, n)) ENGINE = MyISAM")
        for n in range(60):
            run("BEGIN", f"INSERT INTO a VALUES ({n}, REPEAT('x', {n % 100}))")
            run(f"UPDATE a SET v = CONCAT(v, 'y') WHERE id % 7 = {n % 7}", "COMMIT")
            run(f"INSERT INTO b VALUES ('k{n % 5}', {n}, 1), ('é', {n}, NULL)")
            if n % 20 == 19:
                run("FLUSH BINARY LOGS", f"DELETE FROM a WHERE id < {n // 2}")
        yield follower


def whole_range(follower: Follower) -> tuple[Mark, Mark]:
    """From the follower's mark to the end of the log, as one batch."""
    end, last = follower.mark, parse_position(follower.log.current().position)
    while not contains(parse_position(end.position), last):
        end = follower.log.advance(follower.mark, 1 << 40, 1)
    return follower.mark, end


@pytest.mark.parametrize("parts", [2, 7, 60])
def test_a_range_cut_otherwise_gives_the_same_rows(busy_range: Follower, parts: int) -> None:
    start, end = whole_range(busy_range)
    once = read_changes(busy_range.log, start, end)
    cut = busy_range.log.split(start, end, parts)
    assert len(cut) == parts or len(cut) > 40
    assert read_changes(busy_range.log, start, end, parts) == once
    assert len(once) > 300


def test_a_range_read_in_a_new_process_gives_the_same_rows(busy_range: Follower) -> None:
    start, end = whole_range(busy_range)
    once = read_changes(busy_range.log, start, end, 7)
    with BinlogLog(busy_range.endpoint, Wanted("s")) as fresh:
        assert read_changes(fresh, start, end, 7) == once
        assert read_changes(fresh, start, end, 1) == once


@pytest.mark.parametrize("settings", [{}, {"cascades": "target"}])
def test_a_range_without_before_is_otherwise_the_same(
    busy_range: Follower, settings: dict[str, str]
) -> None:
    busy_range.database.execute("UPDATE a SET id = id + 1000 WHERE id % 3 = 0")
    start, end = whole_range(busy_range)
    whole = read_changes(busy_range.log, start, end)
    assert {change["kind"] for change in whole if change["before"]} == {"update", "delete"}
    wanted = Wanted("s", settings=settings, before=False)
    with BinlogLog(busy_range.endpoint, wanted) as fresh:
        assert read_changes(fresh, start, end) == [{**change, "before": None} for change in whole]


def test_many_small_transactions_at_once_are_the_same_as_one_by_one(
    mariadb_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "SAMPLE_BYTES", 500)
    tables = ("a", "b", "unwanted")
    with Follower(mariadb_db, tables=("a", "b")) as follower, session(mariadb_db) as run:
        for table in tables:
            run(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))")
        for n in range(40):
            for table in tables[n % 3 :]:
                run(f"INSERT INTO {table} (id, v) VALUES ({n}, 'x'), ({n + 1000}, NULL)")
                run(f"INSERT INTO {table} (id, v) VALUES ({n + 2000}, 'é')")
            run(f"UPDATE a SET v = '{n}' WHERE id = {n}", f"DELETE FROM b WHERE id = {n}")
            run(f"/* mark */ UPDATE a SET id = -{n} - 1 WHERE id = {n}")
            run(f"UPDATE a SET id = id - 1000 WHERE id = -{n} - 1")
            if n % 10 == 9:
                run("FLUSH BINARY LOGS", f"SET SESSION gtid_domain_id = {n}")
            if n == 25:
                run("ALTER TABLE b ADD w INT DEFAULT 7")
        ranges = list(follower.ranges(1 << 40))
        apart = [
            read_changes(follower.log, *marks, parts) for marks in ranges for parts in (1, 2, 7)
        ]
        monkeypatch.setattr(Walk, "strides", Walk.steps)
        whole = [read_changes(follower.log, *marks) for marks in ranges for _ in range(3)]
    assert apart == whole
    assert sum(map(len, whole)) > 3 * 200


def test_parts_travel(busy_range: Follower) -> None:
    start, end = whole_range(busy_range)
    for part in busy_range.log.split(start, end, 3):
        copy = pickle.loads(pickle.dumps(part))
        assert [b.to_pydict() for b in copy.read()] == [b.to_pydict() for b in part.read()]


def test_small_batches_say_the_same_as_one(busy_range: Follower) -> None:
    start = busy_range.mark
    changes = busy_range.read(max_bytes=5000)
    assert len(busy_range.marks) > 8
    with BinlogLog(busy_range.endpoint, Wanted("s")) as fresh:
        whole = read_changes(fresh, start, busy_range.mark)
    columns = ("position", "txn", "seq", "committed_at", "kind", "table", "key", "before", "after")
    assert plain(changes, *columns) == plain(whole, *columns)


def test_advance_takes_at_least_one_transaction_and_waits(follower: Follower) -> None:
    assert follower.log.advance(follower.mark, 1, 0.2) == follower.mark
    follower.database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    after = follower.log.advance(follower.mark, 1, 5)
    assert after != follower.mark
    assert after.written > follower.mark.written
    assert follower.log.advance(after, 1, 0.2) == after


def test_current_is_after_everything_committed(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY)")
        for n in range(30):
            before = follower.log.current()
            run(f"INSERT INTO t VALUES ({n})")
            after = follower.log.current()
            changes = read_changes(follower.log, before, follower.log.advance(before, 1 << 20, 5))
            assert plain(changes, "key") == [((str(n),),)]
            assert changes[0]["position"] == after.position


def test_a_range_up_to_current_ends_there(follower: Follower, mariadb_db: Database) -> None:
    """Also where the end of the log is the head of a file in which nothing was committed yet."""
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        follower.read()
        start = follower.mark
        run("INSERT INTO t VALUES (2)", "FLUSH BINARY LOGS")
        end = follower.log.current()
        end = Mark(end.position, end.place, schemas=start.schemas)
        assert plain(read_changes(follower.log, start, end), "key") == [(("2",),)]
        run("INSERT INTO t VALUES (3)")
        assert plain(read_changes(follower.log, start, end), "key") == [(("2",),)]
        assert read_changes(follower.log, end, end) == []


def test_lag_counts_only_what_is_to_come(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        follower.read()
        run("FLUSH BINARY LOGS")
        assert (follower.log.lag(follower.mark).bytes, follower.log.lag(follower.mark).seconds) == (
            0,
            0,
        )
        run("INSERT INTO t VALUES (2)")
        lag = follower.log.lag(follower.mark)
        assert 0 < lag.bytes < 2000
        assert 0 <= lag.seconds < 60
        follower.read()
        assert follower.log.lag(follower.mark).bytes == 0


def test_a_position_alone_is_enough(busy_range: Follower) -> None:
    """A token has a position and no place: the log finds it."""
    changes = busy_range.read(max_bytes=5000)
    middle = busy_range.marks[len(busy_range.marks) // 2]
    mark = busy_range.log.seek(middle.position)
    assert mark.place == ""
    with Follower(busy_range.database, mark) as resumed:
        rest = resumed.read()
    positions = [change["position"] for change in changes]
    at = positions.index(middle.position)
    last_of = len(positions) - positions[::-1].index(middle.position)
    assert at < last_of
    columns = ("position", "txn", "seq", "kind", "table", "key", "before", "after")
    assert plain(rest, *columns) == plain(changes[last_of:], *columns)


def test_a_failing_statement_leaves_what_it_did_to_tables_without_transactions(
    follower: Follower, mariadb_db: Database
) -> None:
    with session(mariadb_db) as run:
        run(
            "CREATE TABLE m (id INT PRIMARY KEY) ENGINE = MyISAM",
            "CREATE TABLE i (id INT PRIMARY KEY)",
        )
        run("INSERT INTO m VALUES (5)", "INSERT INTO i VALUES (5)")
        for table in "mi":
            with pytest.raises(pymysql.IntegrityError):
                run(f"INSERT INTO {table} VALUES (3), (4), (5), (6)")
    follower.replay()
    follower.check("m", "i")
    assert set(follower.rows("m")) == {("3",), ("4",), ("5",)}
