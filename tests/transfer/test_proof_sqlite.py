"""The target verifier on SQLite: triggers of the file tell who wrote, also while our own DDL changes its tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.transfer.cutting import HOW, cut_over, switch_back
from truecopy.model.errors import TruecopyError
from truecopy.transfer.deletion import delete_task
from truecopy.transfer.preflight.check import preflight
from truecopy.transfer.proof.alone import verify_task
from truecopy.transfer.proof.verifier import NotProven
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, code TEXT NOT NULL, price INTEGER)"


def write(url: str, *statements: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as file, file:
        for statement in statements:
            file.execute(statement)


def rows(url: str, table: str = "items") -> list[Any]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as file:
        return file.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


def triggers(url: str) -> list[Any]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        return file.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    source, target = (f"sqlite:///{tmp_path / name}.db" for name in ("old", "new"))
    write(target, "PRAGMA user_version = 1")  # it must be there
    numbers = ", ".join(f"({n}, 'c{n}', {n})" for n in range(30))
    write(
        source,
        ITEMS,
        "CREATE UNIQUE INDEX by_code ON items (code)",
        f"INSERT INTO items VALUES {numbers}",
        "CREATE TABLE plain (note TEXT)",
        "INSERT INTO plain VALUES ('a'), ('a')",
    )
    return Settings(
        "file", source, target, chunk_rows=7, verify=("inline", "target"), consistency="table"
    )


def run(settings: Settings) -> None:
    Transfer(settings).run(until_caught_up=True)


@pytest.mark.long
def test_our_own_writes_and_ddl_are_no_rogue_writes(
    spark: SparkSession, settings: Settings
) -> None:
    run(settings)
    assert rows(settings.target) == rows(settings.source)
    write(
        settings.source,
        "ALTER TABLE items ADD COLUMN extra TEXT",
        "INSERT INTO items VALUES (100, 'c100', 1, 'x')",
        "UPDATE items SET id = 101, extra = 'y' WHERE id = 3",
        "UPDATE items SET code = CASE id WHEN 1 THEN 'c2' ELSE 'c1' END || '.' WHERE id IN (1, 2)",
        "DELETE FROM items WHERE id = 5",
        "INSERT INTO plain VALUES ('b')",
    )
    run(settings)
    assert rows(settings.target) == rows(settings.source)
    assert sorted(rows(settings.target, "plain")) == sorted(rows(settings.source, "plain"))
    assert rows(settings.target, "truecopy_annotation") == [], "nobody else's rows get our mark"
    run(settings)


ROGUE = {
    "insert": ("INSERT INTO items VALUES (500, 'rogue', 0)", "id=500 of items was inserted"),
    "update": ("UPDATE items SET price = 0 WHERE id = 5", "id=5 of items was updated"),
    "delete": ("DELETE FROM items WHERE id = 5", "id=5 of items was deleted"),
    "replace": ("REPLACE INTO items VALUES (500, 'c6', 0)", "id=6 of items was deleted"),
    "everything": ("DELETE FROM items", "id=0 of items was deleted"),
    "a column": ("ALTER TABLE items ADD COLUMN rogue TEXT", "items was altered on the target"),
    "an index": ("CREATE INDEX rogue ON items (price)", "items was altered on the target"),
    "a table without a key": ("DELETE FROM plain", "plain was deleted on the target"),
}


@pytest.mark.parametrize("write_", ROGUE)
def test_a_rogue_write_fails_the_run(spark: SparkSession, settings: Settings, write_: str) -> None:
    run(settings)
    statement, said = ROGUE[write_]
    write(settings.target, statement)
    write(settings.source, "UPDATE items SET price = 7 WHERE id = 7")
    with pytest.raises(NotProven, match=said):
        run(settings)


@pytest.mark.long
def test_a_rogue_write_among_ours_is_found(spark: SparkSession, settings: Settings) -> None:
    run(settings)
    write(settings.source, "UPDATE items SET price = price + 1")
    with pytest.raises(NotProven) as raised:  # noqa: PT012 - a run, a write, a run
        run(settings)
        write(settings.target, "UPDATE items SET price = 0 WHERE id = 9")
        write(settings.source, "UPDATE items SET price = price + 1")
        run(settings)
    found = raised.value.outcome
    assert [(one.kind, one.key) for one in found.mismatches] == [("rogue", ("9",))]
    assert "without an annotation" in str(found)


def test_a_table_that_was_dropped_and_made_anew_is_told_of(
    spark: SparkSession, settings: Settings
) -> None:
    run(settings)
    kept = "CREATE TABLE kept AS SELECT * FROM items"
    unique = "CREATE UNIQUE INDEX by_code ON items (code)"
    back = "INSERT INTO items SELECT * FROM kept"
    write(settings.target, kept, "DROP TABLE items", ITEMS, unique, back, "DROP TABLE kept")
    with pytest.raises(NotProven, match="items was dropped or made anew") as raised:
        run(settings)
    raised.value.told()
    run(settings)  # it is told of once, and the triggers are there again
    write(settings.target, "DELETE FROM items WHERE id = 5")
    with pytest.raises(NotProven, match="id=5 of items was deleted"):
        run(settings)


@pytest.mark.long
def test_a_write_of_ours_that_fails_leaves_no_mark(spark: SparkSession, settings: Settings) -> None:
    run(settings)
    write(
        settings.target,
        "CREATE TRIGGER no BEFORE DELETE ON items BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    write(settings.source, "DELETE FROM items WHERE id = 5")
    with pytest.raises(TruecopyError):
        run(settings)
    write(settings.target, "DROP TRIGGER no")
    assert rows(settings.target, "truecopy_annotation") == []
    run(settings)
    assert rows(settings.target) == rows(settings.source)


@pytest.mark.long
def test_a_cutover_and_the_way_back(spark: SparkSession, settings: Settings) -> None:
    settings, by_hand = (
        replace(settings, tables=("items",)),
        replace(HOW, lock="none", verify=settings.verify),
    )
    run(settings)
    write(settings.source, "UPDATE items SET price = 7 WHERE id = 7")
    report = cut_over(settings, by_hand)
    assert report.state == "switched", report.reason
    assert rows(settings.target) == rows(settings.source)
    write(settings.target, "UPDATE items SET price = 8 WHERE id = 8")
    returned = switch_back(settings, by_hand)
    assert returned.state == "switched", returned.reason
    assert rows(settings.target) == rows(settings.source)
    write(settings.source, "UPDATE items SET price = 9 WHERE id = 9")
    run(settings)
    assert rows(settings.target) == rows(settings.source)


def test_deletion_takes_the_triggers_back(spark: SparkSession, settings: Settings) -> None:
    run(settings)
    assert triggers(settings.target)
    delete_task(settings)
    assert not triggers(settings.target)


def test_a_rogue_write_stops_a_cutover(spark: SparkSession, settings: Settings) -> None:
    run(settings)
    write(settings.target, "UPDATE items SET price = 0 WHERE id = 9")
    report = cut_over(settings, replace(HOW, lock="none", verify=settings.verify))
    assert report.state != "switched"
    assert "id=9 of items" in report.reason


@pytest.mark.long
def test_from_outside(spark: SparkSession, settings: Settings) -> None:
    run(settings)
    look = partial(verify_task, settings, ("target",), options=Options(delay=1.0))
    assert look().verdict == "equal"
    write(settings.target, "UPDATE items SET price = 9 WHERE id = 9")  # as it was
    for _ in range(2):  # asking does not move the task's own verifier
        (items,) = [table for table in look().tables if table.source == "items"]
        assert "id=9" in str(items.structure)
    with pytest.raises(NotProven, match="id=9 of items was updated"):
        run(settings)


def test_a_check_takes_it_and_makes_nothing(settings: Settings) -> None:
    before = Path(settings.target.removeprefix("sqlite:///")).read_bytes()
    report = preflight(settings)
    assert report.is_ready, report.errors
    assert Path(settings.target.removeprefix("sqlite:///")).read_bytes() == before
