"""Slices of a table are written in parallel, in any order: only where its rows have nothing to do with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.servers import Database
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import ROW, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = [f"name{number}" for number in range(40)]


def settings(source: Database, target: Database) -> Settings:
    return Settings("move", source.url, target.url, consistency=ROW)


def sliced(source: Database, target: Database) -> dict[str, bool]:
    """By table, as a run plans it that begins now."""
    transfer = Transfer(settings(source, target))
    with (
        connect(parse_endpoint(source.url)) as here,
        connect(parse_endpoint(target.url)) as there,
    ):
        plans = transfer.prepare(cast(Any, here), cast(Any, there))
    return {name.rpartition(".")[2]: plan.sliced for name, plan in plans.items()}


def test_keys_that_differ_in_case_or_spaces_are_one_row(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """The old key goes and the new one comes, and to the target they are the same: in the wrong order it is lost."""
    mariadb_db.execute("CREATE TABLE people (name VARCHAR(20) PRIMARY KEY, age INT)")
    mariadb_db.executemany("INSERT INTO people VALUES (%s, 1)", [(name,) for name in NAMES])
    asked = settings(mariadb_db, second_mariadb_db)
    Transfer(asked).run(until_caught_up=True)
    mariadb_db.execute("UPDATE people SET name = CONCAT('N', SUBSTRING(name, 2)), age = 2")
    Transfer(asked).run(until_caught_up=True)
    mariadb_db.execute("UPDATE people SET name = CONCAT(name, ' '), age = 3")
    Transfer(asked).run(until_caught_up=True)
    query = "SELECT HEX(name), age FROM people ORDER BY 1"
    assert second_mariadb_db.execute(query) == mariadb_db.execute(query)
    assert sliced(mariadb_db, second_mariadb_db) == {"people": False}


@pytest.mark.parametrize("pair", ["mariadb_db postgres_db", "postgres_db mariadb_db"])
def test_only_rows_that_are_unique_by_their_key_alone_are_sliced(
    spark: SparkSession, request: pytest.FixtureRequest, pair: str
) -> None:
    """The target gets unique indexes when the replay is done, and slices are chosen before."""
    source, target = map(request.getfixturevalue, pair.split())
    source.execute("CREATE TABLE plain (id INT PRIMARY KEY, code INT)")
    source.execute("CREATE TABLE twice (id INT PRIMARY KEY, code INT UNIQUE)")
    assert sliced(source, target) == {"plain": True, "twice": False}
    some = "(code) WHERE code > 0" if target.server.scheme == "postgresql" else "(note(3))"
    target.execute("ALTER TABLE plain ADD COLUMN note VARCHAR(20)")
    target.execute(f"CREATE UNIQUE INDEX partly ON plain {some}")
    assert sliced(source, target) == {"plain": False, "twice": False}
