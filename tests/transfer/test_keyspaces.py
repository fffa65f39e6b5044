"""Keyspaces as sources and targets: rows by key range, origins in the same transaction."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database, Server
from tests.transfer.sharded import (
    fill,
    held,
    keyspace,
    legs_of,
    task_file,
    together,
    write,
)
from truecopy.transfer.fleet import Fleet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TWO = "-80", "80-"


@pytest.fixture
def targets(second_mariadb_server: Server) -> Iterator[dict[str, Database]]:
    """Two databases for two shards."""
    name = f"bank_{secrets.token_hex(4)}"
    made = {
        shard: second_mariadb_server.create_database(f"{name}_{place}")
        for place, shard in enumerate(TWO)
    }
    yield made
    for database in made.values():
        second_mariadb_server.drop_database(database.name)


def test_a_database_is_split_into_two_shards(
    spark: SparkSession, mariadb_db: Database, targets: dict[str, Database], tmp_path: Path
) -> None:
    fill(mariadb_db)
    legs = legs_of(task_file(tmp_path, mariadb_db.url, keyspace(targets)))
    assert [leg.task for leg in legs] == ["reshard:-80", "reshard:80-"]
    first = Fleet(legs).run(until_caught_up=True)
    assert first.state == "replicate"
    assert first.tables[f"{mariadb_db.name}.account"].rows_copied == 200
    write(mariadb_db)
    Fleet(legs).run(until_caught_up=True)
    for shard, database in targets.items():
        assert held(database) == held(mariadb_db, shard)
        ((name, position, at),) = database.execute("SELECT * FROM truecopy_origin")
        assert name == "-"
        assert position
        assert at > 0
        assert len(database.execute("SHOW INDEX FROM account")) == 2, "the unique key as well"
    assert together(list(targets.values())) == held(mariadb_db)


@pytest.mark.parametrize("target", ["mariadb_db", "postgres_db"])
def test_two_shards_are_merged(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    targets: dict[str, Database],
    tmp_path: Path,
    target: str,
) -> None:
    merged: Database = request.getfixturevalue(target)
    for shard, database in targets.items():
        fill(database, shard)
    legs = legs_of(task_file(tmp_path, keyspace(targets), merged.url))
    Fleet(legs).run(until_caught_up=True)
    assert held(merged) == together(list(targets.values()))
    for seed, (shard, database) in enumerate(targets.items()):
        write(database, shard, seed)
    targets["80-"].execute("TRUNCATE TABLE account")
    Fleet(legs).run(until_caught_up=True)
    assert held(merged) == together(list(targets.values()))
    assert held(merged, "-80")["account"]
