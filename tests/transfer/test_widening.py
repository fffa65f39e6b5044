"""The source's tables change while their rows are carried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import truecopy
from tests.servers import Database
from truecopy.transfer.redefinition import DefinitionChanged
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def items(mariadb_db: Database) -> Database:
    mariadb_db.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20))")
    mariadb_db.execute("INSERT INTO items VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    return mariadb_db


def run(source: Database, target: Database, kind: type[Transfer] = Transfer) -> None:
    kind(Settings("move", source.url, target.url)).run(until_caught_up=True)


def is_equal(source: Database, target: Database) -> bool:
    return truecopy.verify(source.url, target.url, tables=("items",)).verdict == "equal"


def altering(source: Database, *statements: str) -> type[Transfer]:
    """A run that meets new definitions in the stream: tables change when its plans are made."""

    class Altered(Transfer):
        def _replicate(self, *args: Any, **more: Any) -> None:
            for statement in statements:
                source.execute(statement)
            super()._replicate(*args, **more)

    return Altered


def test_new_columns_are_carried(
    spark: SparkSession, items: Database, postgres_db: Database
) -> None:
    run(items, postgres_db)
    items.execute("ALTER TABLE items ADD COLUMN note VARCHAR(30), ADD COLUMN price DECIMAL(8,2)")
    items.execute("UPDATE items SET note = 'while it stood', price = 1.25 WHERE id = 1")
    statements = (
        "INSERT INTO items (id, name, note) VALUES (4, 'd', 'before')",
        "ALTER TABLE items ADD COLUMN made DATETIME(3) NULL FIRST",
        "INSERT INTO items VALUES ('2024-02-29 12:00:00.125', 5, 'e', 'after', NULL)",
        "UPDATE items SET made = '1999-12-31' WHERE id = 2",
    )
    run(items, postgres_db, altering(items, *statements))
    assert is_equal(items, postgres_db)
    assert postgres_db.execute("SELECT id, note FROM items WHERE made IS NOT NULL ORDER BY id") == [
        (2, None),
        (5, "after"),
    ]


@pytest.mark.long
def test_what_needs_a_person_stops_in_front_of_it(
    spark: SparkSession, items: Database, postgres_db: Database
) -> None:
    run(items, postgres_db)
    statements = (
        "UPDATE items SET name = 'before' WHERE id = 1",
        "ALTER TABLE items ADD COLUMN state INT NOT NULL DEFAULT 5",
        "INSERT INTO items VALUES (4, 'd', 6)",
    )
    with pytest.raises(DefinitionChanged) as stopped:
        run(items, postgres_db, altering(items, *statements))
    assert 'ADD COLUMN "state"' in str(stopped.value)
    assert postgres_db.execute("SELECT name FROM items WHERE id = 1") == [("before",)]
    postgres_db.execute("ALTER TABLE items ADD COLUMN state INT NOT NULL DEFAULT 5")
    run(items, postgres_db)
    assert is_equal(items, postgres_db)
    dropping = ("ALTER TABLE items DROP COLUMN name", "INSERT INTO items VALUES (7, 1)")
    with pytest.raises(DefinitionChanged, match='DROP COLUMN "name"'):
        run(items, postgres_db, altering(items, *dropping))
    postgres_db.execute("ALTER TABLE items DROP COLUMN name")
    run(items, postgres_db)
    assert is_equal(items, postgres_db)
