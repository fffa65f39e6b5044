"""The log holds each event once, whatever ends its writer; readers see it as tables."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.changelog.recorded import given, held, record, wait_until
from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.killing import kill
from tests.transfer.load import fill, writing
from truecopy.changelog.compact import compact
from truecopy.changelog.restore import restore
from truecopy.changelog.store import Store
from truecopy.model.errors import UsageError
from truecopy.stream.removal import remove
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEM = "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(10,2))"


@pytest.mark.long
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_killed_at_random_instants(
    spark: SparkSession,
    mariadb_db: Database,
    tmp_path: Path,
    times: int,
    record_property: Callable[[str, object], None],
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    record_property("seed", seed)
    dice = random.Random(seed)
    fill(mariadb_db, 3000)
    log = tmp_path / "log"
    command = ("changelog", "start", mariadb_db.url, "--to", str(log), "--interval", "0.1")
    with writing(mariadb_db, 3000, seed=seed % 1000):
        for _ in range(times):
            run = start(*command)
            wait_until(lambda: is_written(log))
            time.sleep(dice.uniform(0, 8))
            assert run.poll() is None, run.communicate()
            kill(run, dice)
    ended = program(*command, "--until", "current")
    assert ended.code == 0, ended.err
    request = Request(mariadb_db.url)
    recorded = held(spark, log)
    assert recorded == given(request, log)
    assert recorded.total() > 100
    with duckdb.connect() as reader:
        reader.execute(f"SELECT count(*) FROM read_parquet('{log}/changes/*/*/*.parquet')")
        assert reader.fetchone() == (recorded.total(),)


@pytest.mark.parametrize("engine", ["mariadb", "postgresql", "sqlite"])
def test_every_source(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    source = Place(engine, request, tmp_path)
    source.execute(ITEM.replace("price DECIMAL", "note TEXT, price DECIMAL"))
    long = (
        random.Random(1).randbytes(5000).hex()
    )  # PostgreSQL keeps it apart, and leaves it out of its log
    source.execute(f"INSERT INTO item VALUES (1, 'one', '{long}', 1.10)")
    log, wanted = tmp_path / "log", Request(source.url, settings=source.settings)
    record(wanted, log)
    source.execute("INSERT INTO item VALUES (2, 'two', NULL, 2)")
    source.execute("UPDATE item SET price = price + 1")
    source.execute("UPDATE item SET id = 7 WHERE id = 2")
    report = record(wanted, log)
    assert report.events == held(spark, log).total() == 5
    if engine == "mariadb":  # others let go of what was recorded
        assert held(spark, log) == given(wanted, log)
    target = f"duckdb:///{tmp_path / 'now.duckdb'}"
    duckdb.connect(str(tmp_path / "now.duckdb")).close()
    with Store.open(log) as store:
        assert any(file.left_out for file in store.files()) == (engine == "postgresql")
    restore(log, "item", "current", target)
    with duckdb.connect(str(tmp_path / "now.duckdb")) as now:
        rows = now.execute(
            "SELECT id, name, note, CAST(price AS DOUBLE) FROM item ORDER BY id"
        ).fetchall()
    assert rows == [(1, "one", long, 2.1), (7, "two", None, 3.0)]
    current = "SELECT id, name, note, price FROM item_current ORDER BY id"
    shown = [(str(i), name, str(note), f"{price:.2f}") for i, name, note, price in rows]
    assert in_duckdb(log, current) == in_spark(spark, log, current) == shown


def test_views_files_and_the_past(
    spark: SparkSession, mariadb_db: Database, tmp_path: Path
) -> None:
    mariadb_db.execute(ITEM)
    mariadb_db.execute("INSERT INTO item VALUES (1, 'one', 1.10), (2, 'two', 2.20)")
    log, request = tmp_path / "log", Request(mariadb_db.url, wait=0.1)
    record(request, log)
    for number in range(3, 9):
        mariadb_db.execute("INSERT INTO item VALUES (%s, 'new', 1)", (number,))
        mariadb_db.execute("UPDATE item SET price = price + 1 WHERE id = 1")
        record(request, log)
    mariadb_db.execute("DELETE FROM item WHERE id = 2; ALTER TABLE item ADD COLUMN note TEXT")
    mariadb_db.execute("UPDATE item SET note = 'late' WHERE id = 3")
    record(request, log)
    now = [tuple(map(str, row)) for row in mariadb_db.execute("SELECT * FROM item ORDER BY id")]
    before = held(spark, log)
    for step in ("as it was written", "compacted", "with its base moved"):
        assert in_duckdb(log, "SELECT * FROM item_current ORDER BY id") == now, step
        assert in_spark(spark, log, "SELECT * FROM item_current ORDER BY id") == now, step
        if step != "with its base moved":
            history = (
                "SELECT truecopy_kind, price FROM item_history WHERE id = 1 ORDER BY truecopy_batch"
            )
            assert len(in_duckdb(log, history)) == len(in_spark(spark, log, history)) == 6
            assert held(spark, log) == before
        if step == "as it was written":
            report = compact(log)
            assert report.files_after < report.files_before
        elif step == "compacted":
            time.sleep(1.1)
            report = compact(log, before=time.time_ns() // 1000)
            assert report.events_removed == before.total()
    mariadb_db.execute("UPDATE item SET price = 100 WHERE id = 8")
    record(request, log)
    (tmp_path / "now.db").touch()
    restore(log, "item", "current", f"sqlite:///{tmp_path / 'now.db'}")
    assert in_duckdb(log, "SELECT price FROM item_current WHERE id = 8") == [("100.00",)]
    mariadb_db.execute("TRUNCATE TABLE item; INSERT INTO item VALUES (9, 'nine', 9, NULL)")
    record(request, log)
    current = "SELECT id, price FROM item_current"
    assert in_duckdb(log, current) == in_spark(spark, log, current) == [("9", "9.00")]


@pytest.mark.long
def test_one_writer_that_can_be_stopped(mariadb_db: Database, tmp_path: Path) -> None:
    mariadb_db.execute(ITEM)
    log = tmp_path / "log"
    run = start("changelog", "start", mariadb_db.url, "--to", str(log))
    wait_until((log / "views" / "duckdb.sql").exists)
    second = program("changelog", "start", mariadb_db.url, "--to", str(log), "--until", "current")
    assert second.code == 3
    assert "is written by process" in second.err
    ls = program("changelog", "ls", str(log), "--json").document
    assert ls["running"]
    assert [one["table"] for one in ls["tables"]] == ["item"]
    assert program("changelog", "stop", str(log)).code == 0
    out, err = run.communicate(timeout=180)
    assert run.returncode == 0, err
    assert "changes recorded" in out
    with Store.open(log) as store:
        assert not store.is_written()
    with pytest.raises(UsageError, match="is a log of"):
        record(Request(mariadb_db.url, tables=("other",)), log)


def is_written(log: Path) -> bool:
    if not (log / "_truecopy" / "log.db").exists():
        return False
    with Store.open(log) as store:
        return store.is_written()


class Place:
    """A source of any engine."""

    def __init__(self, engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        self.settings: dict[str, str] = {}
        if engine == "sqlite":
            import sqlite3

            path = tmp_path / "source.db"
            self.url = f"sqlite:///{path}"
            connection = sqlite3.connect(path, isolation_level=None)
            request.addfinalizer(connection.close)
            self.execute: Callable[[str], object] = connection.execute
            return
        database: Database = request.getfixturevalue(
            "mariadb_db" if engine == "mariadb" else "postgres_db"
        )
        self.url, self.execute = database.url, database.execute
        if engine == "postgresql":
            self.settings = {"slot": f"log_{database.name}", "work": str(tmp_path / "work")}
            request.addfinalizer(lambda: remove(Request(self.url, settings=self.settings)))


def in_duckdb(log: Path, query: str) -> list[tuple[str, ...]]:
    with duckdb.connect() as reader:
        reader.execute((log / "views" / "duckdb.sql").read_text())
        return [tuple(map(str, row)) for row in reader.execute(query).fetchall()]


def in_spark(spark: SparkSession, log: Path, query: str) -> list[tuple[str, ...]]:
    for statement in (log / "views" / "spark.sql").read_text().split(";\n"):
        if statement.strip():
            spark.sql(statement)
    return [tuple(map(str, row)) for row in spark.sql(query).collect()]
