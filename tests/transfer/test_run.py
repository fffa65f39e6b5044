"""Copy and replicate under load; resume; late attempts; what each delivery promises."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pytest

import truecopy
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.killing import put_back
from tests.transfer.load import fill, writing
from truecopy.engines import connect
from truecopy.metastore.known_progress import KnownProgress
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.transfer.ledger import Ledger, Overtaken
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.snapshot import ATTEMPTS
from truecopy.transfer.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1000


def settings(source: str, target: str, **more: Any) -> Settings:
    return Settings("move", source, target, chunk_rows=500, **more)


def is_equal(source: Database, target: Database) -> bool:
    return truecopy.verify(source.url, target.url, tables=("items",)).verdict == "equal"


@pytest.mark.parametrize(
    "consistency",
    [
        "row",
        pytest.param("table", marks=pytest.mark.slow),
        pytest.param("transaction", marks=pytest.mark.slow),
    ],
)
def test_mariadb_to_mariadb_under_load(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, consistency: str
) -> None:
    fill(mariadb_db, ROWS)
    asked = settings(mariadb_db.url, second_mariadb_db.url, consistency=consistency)
    with writing(mariadb_db, ROWS):
        first = Transfer(asked).run(until_caught_up=True)
    assert first.tables[f"{mariadb_db.name}.items"].rows_copied > 0
    Transfer(asked).run(until_caught_up=True)
    assert is_equal(mariadb_db, second_mariadb_db)


def test_mariadb_to_postgresql_under_load(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    fill(mariadb_db, ROWS)
    asked = settings(mariadb_db.url, postgres_db.url)
    with writing(mariadb_db, ROWS):
        Transfer(asked).run(until_caught_up=True)
    Transfer(asked).run(until_caught_up=True)
    assert is_equal(mariadb_db, postgres_db)
    indexes = postgres_db.execute("SELECT count(*) FROM pg_indexes WHERE tablename = 'items'")
    assert indexes[0][0] == 2, "the unique index is built after the replay"


@pytest.mark.long
def test_postgresql_to_mariadb_under_load(
    spark: SparkSession, postgres_db: Database, mariadb_db: Database
) -> None:
    fill(postgres_db, ROWS)
    asked = settings(postgres_db.url, mariadb_db.url)
    with writing(postgres_db, ROWS):
        Transfer(asked).run(until_caught_up=True)
    Transfer(asked).run(until_caught_up=True)
    assert is_equal(postgres_db, mariadb_db)


def test_a_target_that_is_not_empty_is_refused(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 10)
    fill(second_mariadb_db, 1)
    with pytest.raises(UsageError, match="not empty"):
        Transfer(settings(mariadb_db.url, second_mariadb_db.url)).run(snapshot_only=True)


def test_a_run_that_was_overtaken_cannot_write(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """A driver, or a task attempt, that wakes up after its replacement finds no line to move."""
    with connect(parse_endpoint(second_mariadb_db.url)) as session:
        ledger = Ledger(cast(Any, session), "move")
        ledger.create()
        old = ledger.claim({})
        ledger.open_part("shop", "0-1-1", 0, old.epoch)
        new = ledger.claim({})
        assert new.epoch == old.epoch + 1
        session_ = cast(Any, session)
        session_.begin()
        with pytest.raises(Overtaken):
            ledger.advance("shop", "0-1-1", "0-1-2", 0, old.epoch)
        session_.rollback()
        session_.begin()
        assert ledger.advance("shop", "0-1-1", "0-1-2", 0, new.epoch)
        session_.commit()
        session_.begin()
        assert not ledger.advance("shop", "0-1-1", "0-1-2", 0, new.epoch), "done already"
        session_.rollback()


@pytest.mark.long
def test_a_run_that_ended_in_the_middle_of_a_multi_row_event_goes_on(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """Some parts are ahead of others: what they have is passed over, and nothing is lost."""
    mariadb_db.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20))")
    mariadb_db.execute("INSERT INTO items SELECT seq, 'a' FROM seq_1_to_500")
    asked = settings(mariadb_db.url, second_mariadb_db.url, consistency="row")
    Transfer(asked).run(until_caught_up=True)
    mariadb_db.execute("UPDATE items SET name = 'b'")
    Transfer(asked).run(until_caught_up=True)
    before: dict[str, str] = dict(
        second_mariadb_db.execute("SELECT part, position FROM truecopy_progress")
    )
    known = KnownProgress(asked.task).find()
    assert known is not None
    mariadb_db.execute("UPDATE items SET name = 'c'")
    mariadb_db.execute("DELETE FROM items WHERE id % 7 = 0")
    Transfer(asked).run(until_caught_up=True)
    behind = {part: before[part] for part in sorted(before)[::2]}
    put_back(asked.task, second_mariadb_db, behind, known)
    for _ in range(2):
        Transfer(asked).run(until_caught_up=True)
        mariadb_db.execute("UPDATE items SET name = CONCAT(name, 'd')")
    Transfer(asked).run(until_caught_up=True)
    assert is_equal(mariadb_db, second_mariadb_db)


def test_tables_whose_names_differ_in_case_are_two(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    for table in ("orders", "Orders", "örders"):
        mariadb_db.execute(f"CREATE TABLE `{table}` (id INT PRIMARY KEY, name VARCHAR(20))")
        mariadb_db.execute(f"INSERT INTO `{table}` VALUES (1, '{table}')")
    asked = settings(mariadb_db.url, second_mariadb_db.url, consistency="table")
    Transfer(asked).run(until_caught_up=True)
    for table in ("orders", "Orders", "örders"):
        mariadb_db.execute(f"INSERT INTO `{table}` VALUES (2, '{table}')")
    Transfer(asked).run(until_caught_up=True)
    for table in ("orders", "Orders", "örders"):
        rows = second_mariadb_db.execute(f"SELECT * FROM `{table}` ORDER BY id")
        assert rows == [(1, table), (2, table)]


def test_what_is_not_on_the_target_as_it_was_sent_is_not_committed(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """Compared in the transaction that writes, and tried again within a limit."""
    source, target = mariadb_db, second_mariadb_db
    create = "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20))"
    for side in (source, target):
        side.execute(create)
    source.execute("INSERT INTO items VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    # Without transactions: what is written here stays when the chunk is rolled back.
    target.execute("CREATE TABLE tries (id INT) ENGINE = Aria TRANSACTIONAL = 0")
    target.execute(
        "CREATE TRIGGER spoils BEFORE INSERT ON items FOR EACH ROW BEGIN"
        " IF NEW.id = 2 THEN INSERT INTO tries VALUES (2); SET NEW.name = 'spoiled'; END IF; END"
    )
    asked = settings(source.url, target.url, tables=("items",))
    with pytest.raises(
        CannotFinish, match=r"chunk 0 of .*items is not on the target as it was sent"
    ):
        Transfer(asked).run(until_caught_up=True)
    assert target.execute("SELECT * FROM items") == []
    assert target.execute("SELECT copied FROM truecopy_chunk") == [(None,)]
    assert len(target.execute("SELECT * FROM tries")) == ATTEMPTS
    target.execute("DROP TRIGGER spoils")
    Transfer(asked).run(until_caught_up=True)
    assert is_equal(source, target)


def test_a_run_that_ended_between_two_indexes_goes_on(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE parents (id INT PRIMARY KEY)")
    mariadb_db.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, a INT, b INT, parent INT, KEY (a), KEY (b),"
        " FOREIGN KEY (parent) REFERENCES parents (id))"
    )
    mariadb_db.execute("INSERT INTO parents VALUES (1)")
    mariadb_db.execute("INSERT INTO items VALUES (1, 1, 1, 1)")
    asked = settings(mariadb_db.url, second_mariadb_db.url)
    Transfer(asked).run(snapshot_only=True)
    second_mariadb_db.execute("CREATE INDEX a ON items (a)")
    Transfer(asked).run(until_caught_up=True)
    ((made,),) = second_mariadb_db.execute(
        "SELECT COUNT(DISTINCT index_name) FROM information_schema.statistics WHERE table_schema = DATABASE()"
        " AND table_name = 'items'"
    )
    assert made == 4
    ((parent,),) = second_mariadb_db.execute(
        "SELECT unique_constraint_schema FROM information_schema.referential_constraints"
        " WHERE constraint_schema = DATABASE()"
    )
    assert parent == second_mariadb_db.name


def test_changes_of_a_table_that_came_later_are_told(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 5)
    asked = settings(mariadb_db.url, second_mariadb_db.url, exclude=("tmp_*",))
    Transfer(asked).run(until_caught_up=True)
    mariadb_db.execute("CREATE TABLE tmp_x (id INT PRIMARY KEY)")
    mariadb_db.execute("INSERT INTO tmp_x VALUES (1)")
    Transfer(asked).run(until_caught_up=True)
    mariadb_db.execute("CREATE TABLE later (id INT PRIMARY KEY)")
    mariadb_db.execute("INSERT INTO later VALUES (1)")
    with pytest.raises(UsageError, match=r"later was not there when move copied"):
        Transfer(asked).run(until_caught_up=True)
    assert not second_mariadb_db.execute("SHOW TABLES LIKE 'later'")


@pytest.mark.long
def test_run_from_a_task_file(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    fill(mariadb_db, 200)
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"task: shop\nsource: {mariadb_db.url}\ntarget: {second_mariadb_db.url}\n", encoding="utf-8"
    )
    ended = program("run", str(file), "--until-caught-up", "--json")
    assert ended.code == 0, ended.err
    document = ended.document
    assert document["task"] == "shop"
    assert document["tables"][f"{mariadb_db.name}.items"]["rows_copied"] == 200
    mariadb_db.execute("DELETE FROM items WHERE id <= 50")
    again = program("run", str(file), "--until-caught-up", "--json")
    assert again.document["tables"][f"{mariadb_db.name}.items"]["changes_applied"] == 50
    assert is_equal(mariadb_db, second_mariadb_db)


class Overhauled(Transfer):
    """The source is written to once more, after everything that was committed is in."""

    late: Callable[[], object] = staticmethod(lambda: None)

    def _finish_tables(self, *given: Any) -> None:
        super()._finish_tables(*given)
        self.late()


@pytest.mark.long
def test_a_run_ends_with_what_status_says(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 20)
    mariadb_db.execute("CREATE TABLE `a/b` (id INT PRIMARY KEY)")
    asked = settings(mariadb_db.url, second_mariadb_db.url, consistency="table")
    assert Transfer(asked).run(snapshot_only=True).lag_seconds is None, "nothing was replicated"
    mariadb_db.execute("DELETE FROM items WHERE id <= 5")
    mariadb_db.execute("INSERT INTO `a/b` VALUES (7)")
    report = Transfer(asked).run(until_caught_up=True)
    assert report.lag_seconds == 0
    assert second_mariadb_db.execute("SELECT id FROM `a/b`") == [(7,)]
    said = read_status(asked).plain()["tables"]
    assert said.keys() == report.tables.keys()
    for name, table in report.tables.items():
        assert table.version == said[name]["version"], name
        assert table.rows_copied == said[name]["rows_copied"]
    version = report.tables[f"{mariadb_db.name}.items"].version
    assert version is not None
    age = datetime.now(UTC) - datetime.fromisoformat(str(version["committed_at"]))
    assert timedelta(0) < age < timedelta(minutes=1)

    def late() -> None:
        mariadb_db.execute("DELETE FROM items WHERE id <= 10")
        time.sleep(1.2)

    behind = Overhauled(asked)
    behind.late = late
    report = behind.run(until_caught_up=True)
    assert report.lag_seconds is not None
    assert 1.2 <= report.lag_seconds <= report.seconds


@pytest.mark.parametrize("target", ["sqlite", "duckdb"])
def test_sqlite_to_a_file(spark: SparkSession, tmp_path: Path, target: str) -> None:
    source = tmp_path / "shop.db"
    with sqlite3.connect(source) as shop:
        shop.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price DECIMAL(8,2))")
        shop.executemany(
            "INSERT INTO items VALUES (?, ?, ?)", [(n, f"n{n}", n / 4) for n in range(1, 900)]
        )
    url = f"sqlite:///{source}"
    onto = f"{target}:///{tmp_path / 'copy'}"
    connect_to: Any = {"sqlite": sqlite3, "duckdb": duckdb}[target].connect
    connect_to(tmp_path / "copy").close()
    Transfer(settings(url, onto)).run(until_caught_up=True)
    with sqlite3.connect(source) as shop:
        shop.execute("UPDATE items SET name = 'x' WHERE id % 7 = 0")
        shop.execute("DELETE FROM items WHERE id % 11 = 0")
        shop.execute("UPDATE items SET id = -id WHERE id % 13 = 0")
    Transfer(settings(url, onto)).run(until_caught_up=True)
    assert truecopy.verify(url, onto, tables=("items",)).verdict == "equal"
