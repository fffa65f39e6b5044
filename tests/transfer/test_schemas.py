"""Tables that go to another schema of the target, or to another of its databases: there, and back after a cutover."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import fresh_database
from tests.servers import Database
from tests.transfer.checking import errors, found
from tests.transfer.cutting import HOW, application, cut_over, switch_back
from truecopy.model.errors import UsageError
from truecopy.model.finding import Level, Subject
from truecopy.tasks.file import parse_task
from truecopy.tasks.transfer import transfer_settings
from truecopy.transfer.cutover.standing import standing
from truecopy.transfer.preflight.check import preflight
from truecopy.transfer.proof.verifier import NotProven
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = """CREATE TABLE orders (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, code VARCHAR(20) NOT NULL UNIQUE, cust INT, total DECIMAL(9,2))"""
NOTES = "CREATE TABLE notes (id INT NOT NULL PRIMARY KEY, body VARCHAR(200))"


@dataclass(frozen=True)
class Elsewhere:
    """A target, and the schema in it that orders go to; notes stay where its URL leads."""

    database: Database
    schema: str

    def settings(self, source: Database, **more: Any) -> Settings:
        route = {"table": f"{self.schema}.orders", "columns": {"cust": "customer_id"}}
        document = {"task": "move", "source": source.url, "target": self.database.url}
        more = {"routes": {"orders": route}, **more}
        return transfer_settings(parse_task(document | more))

    def rows(self) -> list[list[tuple[Any, ...]]]:
        """Without anything of ours between."""
        asked = f"SELECT id, code, customer_id, total FROM {self.schema}.orders ORDER BY id"
        return [
            self.database.execute(asked),
            self.database.execute("SELECT * FROM notes ORDER BY id"),
        ]

    def orders_tables(self) -> list[str]:
        """Where the target has tables of that name."""
        rows = self.database.execute(
            "SELECT table_schema FROM information_schema.tables WHERE table_name = 'orders'"
            f" AND table_schema IN ('public', '{self.database.name}', '{self.schema}')"
        )
        return [schema for (schema,) in rows]


@pytest.fixture(params=["postgresql", "mariadb"])
def elsewhere(request: pytest.FixtureRequest) -> Iterator[Elsewhere]:
    if request.param == "postgresql":
        database: Database = request.getfixturevalue("postgres_db")
        database.execute("CREATE SCHEMA sales")
        yield Elsewhere(database, "sales")
    else:
        database = request.getfixturevalue("second_mariadb_db")
        with fresh_database(database.server) as other:
            yield Elsewhere(database, other.name)


@pytest.fixture
def shop(mariadb_db: Database) -> Database:
    mariadb_db.execute(f"{ORDERS}; {NOTES}")
    mariadb_db.execute(
        "INSERT INTO orders SELECT seq, CONCAT('c', seq), seq % 7, seq / 7 FROM seq_1_to_300"
    )
    mariadb_db.execute("INSERT INTO notes SELECT seq, CONCAT('note ', seq) FROM seq_1_to_300")
    return mariadb_db


def rows(shop: Database) -> list[list[tuple[Any, ...]]]:
    asked = "SELECT id, code, cust, total FROM orders ORDER BY id"
    return [shop.execute(asked), shop.execute("SELECT * FROM notes ORDER BY id")]


def change(database: Database, orders: str, customer: str) -> None:
    """Of each table: rows that come, change, go and take another key."""
    database.execute(f"INSERT INTO {orders} VALUES (1000, 'new', 5, 1.25), (1001, 'newer', 6, 2.5)")
    database.execute(f"UPDATE {orders} SET {customer} = 99 WHERE id BETWEEN 10 AND 20")
    database.execute(f"DELETE FROM {orders} WHERE id BETWEEN 30 AND 40")
    database.execute(f"UPDATE {orders} SET id = id + 5000 WHERE id BETWEEN 50 AND 60")
    database.execute("INSERT INTO notes VALUES (1000, 'new')")
    database.execute("UPDATE notes SET body = 'changed' WHERE id BETWEEN 10 AND 20")
    database.execute("DELETE FROM notes WHERE id BETWEEN 30 AND 40")
    database.execute("UPDATE notes SET id = id + 5000 WHERE id BETWEEN 50 AND 60")


@pytest.mark.long
def test_rows_and_changes_arrive_there_and_are_verified(
    spark: SparkSession, shop: Database, elsewhere: Elsewhere
) -> None:
    settings = elsewhere.settings(shop, verify={"inline": True, "target": True})
    Transfer(settings).run(until_caught_up=True)
    assert elsewhere.rows() == rows(shop)
    change(shop, "orders", "cust")
    before = elsewhere.rows()
    report = Transfer(settings).run(until_caught_up=True)
    assert before != elsewhere.rows() == rows(shop)
    assert report.tables[f"{shop.name}.orders"].changes_applied > 0
    assert report.rows_waiting == 0
    assert elsewhere.orders_tables() == [elsewhere.schema]


@pytest.mark.long
def test_what_somebody_else_writes_there_is_found(
    spark: SparkSession, shop: Database, elsewhere: Elsewhere
) -> None:
    settings = elsewhere.settings(shop, verify={"inline": True, "target": True})
    Transfer(settings).run(until_caught_up=True)
    elsewhere.database.execute(
        f"UPDATE {elsewhere.schema}.orders SET customer_id = -1 WHERE id = 7"
    )
    with pytest.raises(NotProven, match=rf"id=7 of {elsewhere.schema}\.orders was updated"):
        Transfer(settings).run(until_caught_up=True)


def test_a_schema_that_is_missing_is_told_with_its_remedy(
    shop: Database, elsewhere: Elsewhere
) -> None:
    missing = Elsewhere(elsewhere.database, f"{elsewhere.schema}_too")
    word = "schema" if elsewhere.schema == "sales" else "database"
    report = preflight(missing.settings(shop))
    lacking = found(report, Subject.TABLES, f"the target has no {word} {missing.schema}")
    assert lacking.level is Level.ERROR
    assert not report.is_ready
    try:
        elsewhere.database.execute(lacking.remedy)
        report = preflight(missing.settings(shop))
        assert report.is_ready, errors(report)
    finally:
        if word == "database":
            elsewhere.database.execute(f"DROP DATABASE IF EXISTS {missing.schema}")


@pytest.mark.long
@pytest.mark.parametrize("elsewhere", ["postgresql"], indirect=True)
def test_a_cutover_and_the_way_back(
    spark: SparkSession, shop: Database, elsewhere: Elsewhere
) -> None:
    settings = elsewhere.settings(shop, consistency="table")
    Transfer(settings).run(until_caught_up=True)
    with application(shop) as old:
        old.execute("UPDATE orders SET cust = 98 WHERE id = 1")
        report = cut_over(settings, HOW)
        assert report.state == "switched", report.reason
        assert not old.can_write()
        assert elsewhere.rows() == rows(shop)
        change(elsewhere.database, f"{elsewhere.schema}.orders", "customer_id")
        before = rows(shop)
        Transfer(standing(settings)).run(until_caught_up=True)
        assert before != rows(shop) == elsewhere.rows()
        elsewhere.database.execute(f"DELETE FROM {elsewhere.schema}.orders WHERE id > 200")
        returned = switch_back(settings)
        assert returned.state == "switched", returned.reason
        assert rows(shop) == elsewhere.rows()
        assert old.can_write()


@pytest.mark.long
def test_a_second_database_has_no_way_back(
    spark: SparkSession, shop: Database, second_mariadb_db: Database
) -> None:
    """Its tables are none of the database that the target's URL names: said before writers notice anything."""
    with fresh_database(second_mariadb_db.server) as other:
        elsewhere = Elsewhere(second_mariadb_db, other.name)
        settings = elsewhere.settings(shop)
        Transfer(settings).run(until_caught_up=True)
        for rehearse in (True, False):
            with pytest.raises(UsageError, match=r"no way back: .*orders is in another database"):
                cut_over(settings, rehearse=rehearse)
        with application(shop):
            assert cut_over(settings, replace(HOW, reverse=False)).state == "switched"
