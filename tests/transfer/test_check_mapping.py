"""`truecopy check` of tasks that choose, rename, mask, compute, filter and merge: what arrives is what is checked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.servers import Database
from tests.transfer.checking import errors, found, warnings
from truecopy.model.finding import Level, Subject
from truecopy.tasks.file import parse_task
from truecopy.tasks.transfer import transfer_settings
from truecopy.transfer.preflight.check import preflight
from truecopy.transfer.preflight.report import Report

RULES: dict[str, Any] = {
    "routes": {"orders": {"table": "sales", "columns": {"cust": "customer"}}},
    "mask-key": "a key that nobody knows",
    "transformers": {
        "orders": {
            "filter": "state <> 'draft'",
            "mask": ["email"],
            "cast": {"code": "text"},
            "drop": ["note", "born"],
            "add": {"total": {"sql": "price * pieces", "type": "decimal(2)"}},
        }
    },
}
SALES = """CREATE TABLE sales (id INT PRIMARY KEY, customer INT NOT NULL, email VARCHAR(64) UNIQUE, code VARCHAR(20),
    price DECIMAL(10,2), pieces INT NOT NULL, state VARCHAR(10) NOT NULL, total DECIMAL(12,2) NOT NULL)"""


def check(source: Database, target: Database, **more: Any) -> Report:
    document = {"task": "move", "source": source.url, "target": target.url, **more}
    return preflight(transfer_settings(parse_task(document)))


def about(report: Report) -> list[str]:
    """Errors and warnings that tables are blamed for."""
    return [f.message for f in report.findings if f.table and f.level is not Level.INFO]


@pytest.fixture
def orders(mariadb_db: Database) -> Database:
    mariadb_db.execute(
        """CREATE TABLE orders (id INT PRIMARY KEY, cust INT, email VARCHAR(200) UNIQUE, code INT,
        price DECIMAL(10,2), pieces INT NOT NULL, state VARCHAR(10) NOT NULL, note LONGTEXT, born DATE)"""
    )
    mariadb_db.execute(
        "SET sql_mode = ''; INSERT INTO orders VALUES (1, 7, 'a@x', 5, 2.5, 1, 'open', 'x', '0000-00-00')"
    )
    return mariadb_db


def test_what_the_task_changes_is_no_alarm(orders: Database, second_mariadb_db: Database) -> None:
    second_mariadb_db.execute(SALES)
    report = check(orders, second_mariadb_db, **RULES)
    assert report.tables == ((f"{orders.name}.orders", f"{second_mariadb_db.name}.sales", True),)
    assert report.is_ready, errors(report)
    # Its filter may leave NULLs out or not: only Spark knows.
    assert about(report) == ["customer may be NULL on the source, and must not on the target"]


def test_a_table_that_will_be_made(orders: Database, postgres_db: Database) -> None:
    report = check(orders, postgres_db, **RULES)
    assert report.tables == ((f"{orders.name}.orders", "sales", False),)
    assert report.is_ready, errors(report)
    assert not about(report), "the zero date stays behind with its column"


def test_a_target_that_lacks_a_mapped_column(orders: Database, second_mariadb_db: Database) -> None:
    second_mariadb_db.execute(SALES)
    second_mariadb_db.execute(
        "ALTER TABLE sales DROP total, CHANGE customer cust INT NOT NULL, MODIFY email VARCHAR(40)"
    )
    report = check(orders, second_mariadb_db, **RULES)
    assert found(report, Subject.TYPES, "has no column total").level is Level.ERROR
    assert found(report, Subject.TYPES, "has no column customer").remedy.startswith("add the col")
    assert found(report, Subject.TYPES, "cust is only on the target").level is Level.ERROR
    assert "more than 40" in found(report, Subject.TYPES, "email (varchar(64))").message


def test_columns_that_are_only_chosen_and_named(
    orders: Database, second_mariadb_db: Database
) -> None:
    second_mariadb_db.execute("CREATE TABLE kept (number INT PRIMARY KEY, cust INT NOT NULL)")
    more = {
        "routes": {"orders": {"table": "kept", "columns": {"id": "number"}}},
        "tables": {"rules": {"orders": {"columns": ["id", "cust"]}}},
    }
    report = check(orders, second_mariadb_db, **more)
    assert report.is_ready, errors(report)
    assert about(report) == ["cust may be NULL on the source, and must not on the target"]
    orders.execute("UPDATE orders SET cust = NULL")
    report = check(orders, second_mariadb_db, **more)
    assert found(report, Subject.TYPES, "cust holds NULL").level is Level.ERROR
    second_mariadb_db.execute("ALTER TABLE kept DROP PRIMARY KEY")
    report = check(orders, second_mariadb_db, **more)
    assert "ADD UNIQUE (number)" in found(report, Subject.KEYS, "has no such key").remedy


def test_tables_that_merge(mariadb_db: Database, second_mariadb_db: Database) -> None:
    for number in (1, 2):
        mariadb_db.execute(f"CREATE TABLE part_{number} (id INT PRIMARY KEY, name VARCHAR(20))")
        mariadb_db.execute(f"INSERT INTO part_{number} VALUES (1, 'x')")
    second_mariadb_db.execute(
        "CREATE TABLE whole (origin VARCHAR(190), id INT, name VARCHAR(20), PRIMARY KEY (origin, id))"
    )
    route = {"table": "whole", "merge": True, "source-column": "origin"}
    report = check(mariadb_db, second_mariadb_db, routes={"part_*": route})
    assert report.is_ready, errors(report)
    assert not warnings(report)
    second_mariadb_db.execute("ALTER TABLE whole ADD UNIQUE (id), MODIFY origin VARCHAR(5)")
    report = check(mariadb_db, second_mariadb_db, routes={"part_*": route})
    assert sum("is unique by (id)" in line for line in warnings(report)) == 2
    assert sum("more than 5 characters" in line for line in warnings(report)) == 2
    mariadb_db.execute("ALTER TABLE part_2 ADD more INT")
    report = check(
        mariadb_db, second_mariadb_db, routes={"part_*": {"table": "other", "merge": True}}
    )
    found(report, Subject.TYPES, "differ in the column more")
    assert "source-column" in found(report, Subject.TABLES, "are one row of").remedy


def test_expressions_whose_type_only_spark_can_tell(
    orders: Database, second_mariadb_db: Database
) -> None:
    transformers = {"orders": {"drop": ["born"], "add": {"total": {"sql": "price * pieces"}}}}
    report = check(orders, second_mariadb_db, transformers=transformers)
    assert report.is_ready, errors(report)
    assert found(report, Subject.TYPES, "total is computed").level is Level.INFO
    second_mariadb_db.execute(SALES.replace("sales", "orders").replace("customer", "cust"))
    second_mariadb_db.execute(
        "ALTER TABLE orders ADD note LONGTEXT, MODIFY email VARCHAR(200), MODIFY code INT"
    )
    report = check(orders, second_mariadb_db, transformers=transformers)
    assert report.is_ready, errors(report)
    assert found(report, Subject.TYPES, "total is computed").level is Level.INFO


def test_rules_that_fit_no_table_or_column(orders: Database, second_mariadb_db: Database) -> None:
    transformers = {"orders": {"drop": ["notes"]}, "odrers": {"drop": ["note"]}}
    report = check(orders, second_mariadb_db, transformers=transformers, routes={"odrers": "sales"})
    assert found(report, Subject.TYPES, "names notes").remedy == "did you mean note?"
    assert found(report, Subject.TABLES, "transformers.odrers").remedy == "did you mean orders?"
    assert found(report, Subject.TABLES, "names odrers").remedy == "did you mean orders?"
