"""Which schema of PostgreSQL is home: its tables are at home on the target, too, and the others stay in theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.conftest import fresh_database
from tests.servers import Database, Server
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.transfer.plan import home_of
from truecopy.transfer.redefinition import DefinitionChanged
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMAS = ("sales", "hr")


@pytest.mark.long
def test_a_schema_stays_where_it_is_when_the_last_table_at_home_goes(
    spark: SparkSession, postgres_db: Database, postgres_server: Server
) -> None:
    with fresh_database(postgres_server) as target:
        for schema in SCHEMAS:
            postgres_db.execute(f"CREATE SCHEMA {schema}")
            postgres_db.execute(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
            target.execute(f"CREATE SCHEMA {schema}")
        postgres_db.execute("CREATE TABLE a (id INT PRIMARY KEY)")
        asked = Settings("schemas", postgres_db.url, target.url)
        Transfer(asked).run(until_caught_up=True)
        postgres_db.execute("DROP TABLE a")
        postgres_db.execute("INSERT INTO sales.t VALUES (1)")
        with pytest.raises(DefinitionChanged, match="DROP TABLE"):
            Transfer(asked).run(until_caught_up=True)
        target.execute("DROP TABLE a")
        Transfer(replace(asked, exclude=("a",))).run(until_caught_up=True)
        assert target.execute("SELECT id FROM sales.t") == [(1,)]


def test_a_schema_alone_is_not_at_home(
    spark: SparkSession, postgres_db: Database, postgres_server: Server
) -> None:
    with fresh_database(postgres_server) as target:
        postgres_db.execute("CREATE SCHEMA sales")
        postgres_db.execute("CREATE TABLE sales.t (id INT PRIMARY KEY)")
        target.execute("CREATE SCHEMA sales")
        asked = Settings("schemas", postgres_db.url, target.url, tables=("sales.*",))
        Transfer(asked).run(until_caught_up=True)
        assert target.execute("SELECT schemaname FROM pg_tables WHERE tablename = 't'") == [
            ("sales",)
        ]


def test_a_schema_of_the_users_own_name_is_home_where_it_has_tables(postgres_db: Database) -> None:
    def home() -> str | None:
        with connect(parse_endpoint(postgres_db.url)) as session:
            return home_of(session)

    own = postgres_db.server.user
    postgres_db.execute(f"CREATE SCHEMA {own}")
    assert home() == own, "nothing is anywhere"
    postgres_db.execute("CREATE TABLE public.t (id INT)")
    assert home() == "public"
    postgres_db.execute(f"CREATE TABLE {own}.t (id INT)")
    assert home() == own
