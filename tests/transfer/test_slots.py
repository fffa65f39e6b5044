"""Tasks of one source with the same tables: what one has read, or is deleted with, the other may still need."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Database
from truecopy.stream.removal import remove
from truecopy.tasks.file import parse_task
from truecopy.tasks.transfer import transfer_settings
from truecopy.transfer.cutover.back import way_back
from truecopy.transfer.deletion import delete_task
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "SELECT id, v FROM t ORDER BY id"


@dataclass(frozen=True)
class Source:
    """What keeps its log for each reader."""

    url: str
    execute: Callable[[str], list[Any]]


@pytest.fixture(params=["postgresql", "sqlite"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    if request.param == "postgresql":
        database: Database = request.getfixturevalue("postgres_db")
        return Source(database.url, database.execute)
    file = tmp_path / "source.db"

    def execute(statement: str) -> list[Any]:
        with closing(sqlite3.connect(file, timeout=30)) as connection, connection:
            return connection.execute(statement).fetchall()

    return Source(f"sqlite:///{file}", execute)


@pytest.mark.long
def test_a_task_that_is_deleted_takes_nothing_from_another(
    spark: SparkSession, source: Source, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    source.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT)")
    source.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    one = Settings("one", source.url, mariadb_db.url, tables=("t",))
    other = Settings("other", source.url, second_mariadb_db.url, tables=("t",))
    Transfer(one).run(until_caught_up=True)
    Transfer(other).run(snapshot_only=True)

    source.execute("UPDATE t SET v = 20 WHERE id = 2")
    Transfer(one).run(until_caught_up=True)  # and lets go of what it has read
    assert mariadb_db.execute(ROWS) == source.execute(ROWS)
    source.execute("DELETE FROM t WHERE id = 1")
    delete_task(one)
    source.execute("INSERT INTO t VALUES (4, 4)")

    Transfer(other).run(until_caught_up=True)
    assert second_mariadb_db.execute(ROWS) == source.execute(ROWS)
    delete_task(other)


def test_every_way_of_a_task_has_a_name_of_its_own() -> None:
    shop = Settings("shop", "postgresql://u@h/shop", "postgresql://u@h/copy")
    slots = [
        one.request.settings["slot"]
        for one in (
            shop,
            Settings("shop", "postgresql://u@h/shop2", "postgresql://u@h/copy"),
            Settings("shop2", "postgresql://u@h/shop", "postgresql://u@h/copy"),
            way_back(shop, {}),
        )
    ]
    assert len(set(slots)) == 4
    later = Settings("shop", "postgresql://v:secret@h/shop?sslmode=require", "postgresql://h/other")
    assert later.request.settings["slot"] == slots[0], "whoever logs in"


def test_an_empty_name_is_that_of_all_streams_of_these_tables(
    spark: SparkSession, postgres_db: Database, mariadb_db: Database
) -> None:
    """How a task goes on that has begun when tasks had no names of their own."""
    postgres_db.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT)")
    file = {
        "task": "shop",
        "source": postgres_db.url,
        "target": mariadb_db.url,
        "stream": {"settings": {"slot": ""}},
    }
    earlier = transfer_settings(parse_task(file))
    Transfer(earlier).run(snapshot_only=True)
    remove(Settings("shop", postgres_db.url, mariadb_db.url).request)
    postgres_db.execute("INSERT INTO t VALUES (1, 1)")
    Transfer(earlier).run(until_caught_up=True)
    assert mariadb_db.execute(ROWS) == [(1, 1)]
    delete_task(earlier)
