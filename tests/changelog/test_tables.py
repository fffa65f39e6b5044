"""Tables of all kinds through a log: without a key, with several columns in it, and altered on the way."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.changelog.recorded import (
    given,
    held,
    record,
    recording,
    seen_now,
    wait_until,
    wait_until_ready,
)
from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.killing import kill_all
from tests.transfer.load import fill, writing
from truecopy.changelog.compact import compact
from truecopy.changelog.diff import diff
from truecopy.changelog.record import Listener
from truecopy.changelog.restore import LINES, restore
from truecopy.changelog.store import CHANGES, Store
from truecopy.model.errors import CannotFinish
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_a_table_without_a_key(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    """Equal rows stay as many as they were; a row that goes cannot be told from others like it."""
    mariadb_db.execute("CREATE TABLE note (at INT, what VARCHAR(20))")
    mariadb_db.execute("INSERT INTO note VALUES (1, 'one'), (1, 'one'), (NULL, NULL)")
    log, request = tmp_path / "log", Request(mariadb_db.url, wait=0.1)
    with recording(request, log):
        mariadb_db.execute("INSERT INTO note VALUES (1, 'one')")
        wait_until_ready(log)
        mariadb_db.execute("INSERT INTO note VALUES (1, 'one'), (2, 'two')")
        then = seen_now(mariadb_db, "SELECT at, what FROM note")
        mariadb_db.execute("INSERT INTO note VALUES (2, 'two')")
    for point, rows in (
        (then.token, then.rows),
        ("current", mariadb_db.execute("SELECT at, what FROM note")),
    ):
        name = f"note_{len(rows)}"
        assert restore(log, "note", point, second_mariadb_db.url, name=name).rows == len(rows)
        assert Counter(second_mariadb_db.execute(f"SELECT at, what FROM {name}")) == Counter(rows)
    mariadb_db.execute("DELETE FROM note WHERE at = 2 LIMIT 1")
    record(request, log)
    with pytest.raises(CannotFinish, match="note has no key, and a row of it was updated"):
        restore(log, "note", "current", second_mariadb_db.url, name="late")
    assert restore(log, "note", then.token, second_mariadb_db.url, name="early").rows == 6


def test_a_key_of_several_columns(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    """In another order than the columns are, and with values that run into each other when joined."""
    mariadb_db.execute(
        "CREATE TABLE stock (amount INT, item VARCHAR(20), shop INT, place VARCHAR(20) NOT NULL,"
        " PRIMARY KEY (place, shop, item))"
    )
    mariadb_db.execute(
        "INSERT INTO stock VALUES (1, 'a', 1, 'x'), (2, 'a', 11, 'x'), (3, '1a', 1, 'x'), (4, 'a', 1, 'x1')"
    )
    log, request = tmp_path / "log", Request(mariadb_db.url, wait=0.1)
    record(request, log)
    query = "SELECT place, shop, item, amount FROM {} ORDER BY place, shop, item"
    mariadb_db.execute("UPDATE stock SET amount = 20 WHERE shop = 11")
    then = seen_now(mariadb_db, query.format("stock"))
    mariadb_db.execute("UPDATE stock SET shop = 2 WHERE place = 'x1'")
    mariadb_db.execute("DELETE FROM stock WHERE item = '1a'")
    record(request, log)
    now = mariadb_db.execute(query.format("stock"))
    for point, rows in ((then.token, then.rows), ("current", now)):
        name = f"stock_{len(rows)}"
        restore(log, "stock", point, second_mariadb_db.url, name=name)
        assert second_mariadb_db.execute(query.format(name)) == rows
    found = {
        (one.kind, *(one.key[name] for name in ("place", "shop", "item")))
        for one in diff(log, "stock", then.token, "current")
    }
    assert found == {
        ("delete", "x1", "1", "a"),
        ("insert", "x1", "2", "a"),
        ("delete", "x", "1", "1a"),
    }


@pytest.mark.long
def test_a_column_that_comes_with_a_value(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    """Rows that have not changed since cannot be restored, and it is said; what was before can be."""
    mariadb_db.execute("CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20))")
    mariadb_db.execute("INSERT INTO item VALUES (1, 'one'), (2, 'two')")
    log, request = tmp_path / "log", Request(mariadb_db.url, wait=0.1)
    said = list[str]()
    with recording(request, log, listener=Listener(said=said.append)):
        wait_until_ready(log)
        mariadb_db.execute("UPDATE item SET name = 'uno' WHERE id = 1")
        before = seen_now(mariadb_db, "SELECT id, name FROM item ORDER BY id")
        mariadb_db.execute("ALTER TABLE item ADD COLUMN amount INT NOT NULL DEFAULT 5")
        mariadb_db.execute("UPDATE item SET name = 'eins' WHERE id = 1")
        wait_until(lambda: any("item got the column amount with a value" in line for line in said))
    with pytest.raises(CannotFinish, match=r"item.amount was added with a value in every row"):
        restore(log, "item", "current", second_mariadb_db.url, name="late")
    restore(log, "item", before.token, second_mariadb_db.url, name="early")
    assert second_mariadb_db.execute("SELECT * FROM early ORDER BY id") == before.rows
    mariadb_db.execute("UPDATE item SET amount = amount + 1")
    record(request, log)
    restore(log, "item", "current", second_mariadb_db.url, name="all_changed")
    now = mariadb_db.execute("SELECT * FROM item ORDER BY id")
    assert second_mariadb_db.execute("SELECT * FROM all_changed ORDER BY id") == now


def test_a_column_that_comes_right_after_the_copy(
    spark: SparkSession, mariadb_db: Database, tmp_path: Path
) -> None:
    """The first event of a table may be of a later definition than its base."""
    mariadb_db.execute("CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20))")
    mariadb_db.execute("INSERT INTO item VALUES (1, 'one'), (2, 'two')")
    log, request = tmp_path / "log", Request(mariadb_db.url, wait=0.1)
    with recording(request, log):
        wait_until_ready(log)
        mariadb_db.execute("ALTER TABLE item ADD COLUMN amount INT NOT NULL DEFAULT 5")
        mariadb_db.execute("UPDATE item SET name = 'eins' WHERE id = 1")
    (tmp_path / "late.db").touch()
    with pytest.raises(CannotFinish, match=r"item.amount was added with a value in every row"):
        restore(log, "item", "current", f"sqlite:///{tmp_path / 'late.db'}")


@pytest.mark.long
def test_compacted_beside_its_writer(
    spark: SparkSession, mariadb_db: Database, tmp_path: Path
) -> None:
    """Nothing is lost or doubled, by those who list the files neither."""
    fill(mariadb_db, 500)
    log, request = tmp_path / "log", Request(mariadb_db.url, wait=0.1)
    merged = 0
    with recording(request, log, interval=0.05), writing(mariadb_db, 500):
        wait_until_ready(log)
        deadline = time.monotonic() + 120
        for rounds in itertools.count(1):
            time.sleep(1)
            report = compact(log)
            merged += report.files_before - report.files_after
            if rounds >= 5 and merged:
                break
            assert time.monotonic() < deadline, "there was nothing to be merged"
    assert held(spark, log) == given(request, log)
    with Store.open(log) as store:
        known = {store.path(file) for file in store.files()}
    assert set((log / CHANGES).glob("*/*/*.parquet")) == known


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_restore_that_was_killed(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database, tmp_path: Path
) -> None:
    """The same command writes the slices that are missing, of the same point."""
    mariadb_db.execute("CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(200))")
    mariadb_db.execute("INSERT INTO item SELECT seq, REPEAT(seq, 20) FROM seq_1_to_160000")
    log, request = tmp_path / "log", Request(mariadb_db.url, wait=0.1)
    record(request, log)
    what = ("changelog", "restore", str(log), "--table", "item", "--at", "current")
    command = (*what, "--to", postgres_db.url, "--json")
    run = start(*command)
    wait_until(lambda: slices_in(postgres_db) > 0)
    kill_all(run)
    assert 0 < slices_in(postgres_db) < 4
    mariadb_db.execute("DELETE FROM item WHERE id > 159990")
    record(request, log)
    ended = program(*command)
    assert ended.code == 0, ended.err
    assert ended.document["rows"] == 160_000
    query = "SELECT count(*), count(DISTINCT id), sum(length(name)), max(id) FROM item"
    ((count, different, size, last),) = postgres_db.execute(query)
    assert (count, different, last) == (160_000, 160_000, 160_000)
    assert size == 20 * sum(len(str(n)) for n in range(1, 160_001))
    assert slices_in(postgres_db) == 0


def slices_in(database: Database) -> int:
    if database.execute(f"SELECT to_regclass('{LINES}')") == [(None,)]:
        return 0
    ((count,),) = database.execute(f"SELECT count(*) FROM {LINES} WHERE slice >= 0")
    return int(count)
