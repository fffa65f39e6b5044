"""Beside the logical replication of PostgreSQL itself, between two servers: nothing of ours writes there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database, PostgreSQL, Server
from tests.validate.watching import validating, wait_for
from truecopy.stream.removal import remove
from truecopy.transfer.continuous.beginning import stream_of
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.continuous.validator import Validator
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

_TABLE = "CREATE TABLE items (id INT PRIMARY KEY, n INT NOT NULL, note TEXT)"


@pytest.fixture
def pair(postgres_server: Server) -> Iterator[tuple[Database, Database]]:
    """A database, and a subscriber to it on another server."""
    with PostgreSQL() as other:
        source = postgres_server.create_database("published")
        target = other.create_database("subscribed")
        try:
            for database in (source, target):
                database.execute(_TABLE)
            source.execute("CREATE PUBLICATION everything FOR ALL TABLES")
            target.execute(
                f"CREATE SUBSCRIPTION copy CONNECTION 'host=127.0.0.1 port={postgres_server.port} dbname=published"
                f" user=postgres password={postgres_server.password}' PUBLICATION everything"
            )
            source.execute("INSERT INTO items SELECT n, n, 'note' FROM generate_series(1, 100) n")
            wait_for(lambda: count(target) == 100)
            yield source, target
            target.execute("DROP SUBSCRIPTION copy")
        finally:
            postgres_server.drop_database("published")


def count(target: Database) -> int:
    return int(target.execute("SELECT COUNT(*) FROM items")[0][0])


@pytest.mark.long
def test_a_subscription_is_validated_by_its_own_position(
    spark: SparkSession, pair: tuple[Database, Database], task: str
) -> None:
    source, target = pair
    settings = Settings(task, source.url, target.url)
    try:
        with validating(settings, row_error_delay=2.0) as watched:
            source.execute("UPDATE items SET n = n + 1 WHERE id <= 50")
            source.execute("DELETE FROM items WHERE id > 90")
            watched.until_processed(60)
            watched.until_settled()
            assert watched.standing.standing.report["applied_by"] == "replica"
            target.execute("ALTER SUBSCRIPTION copy DISABLE")
            source.execute("UPDATE items SET n = n + 1 WHERE id <= 50")
            time.sleep(5)
            assert not watched.errors
            target.execute("ALTER SUBSCRIPTION copy ENABLE")
            watched.until_processed(110)
            watched.until_settled()
            assert not watched.errors
        Validator(settings, ContinuousOptions()).begin()
        source.execute("UPDATE items SET note = 'changed' WHERE id <= 10")
        source.execute("DELETE FROM items WHERE id = 20")
        source.execute("INSERT INTO items VALUES (999, 1, 'last')")
        wait_for(lambda: bool(target.execute("SELECT 1 FROM items WHERE id = 999")))
        target.execute("UPDATE items SET note = 'wrong' WHERE id = 5")
        target.execute("DELETE FROM items WHERE id = 6")
        target.execute("INSERT INTO items VALUES (20, 20, 'again')")
        with validating(settings, row_error_delay=1.0) as watched:
            watched.until_errors(3)
            watched.until_settled()
            assert {(e.key["id"], e.kind) for e in watched.errors} == {
                ("5", "differs"),
                ("6", "missing"),
                ("20", "extra"),
            }
            target.execute("UPDATE items SET note = 'changed' WHERE id = 5")
            watched.until(lambda: len(watched.new) == 2, "the repaired one resolves itself")
        names = "SELECT tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        assert target.execute(names) == [("items",)]  # nothing of ours
    finally:
        remove(stream_of(settings))
