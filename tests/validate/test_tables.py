"""Tables that change or cannot be validated: each goes on by column name, or stops alone with its message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Database
from tests.validate.watching import begun, copied, validating
from truecopy.mapping.plan import MappingRules
from truecopy.mapping.routes import Route
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.continuous.validator import Validator
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)


@pytest.mark.long
def test_tables_that_cannot_be_validated_stop_alone(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE good (id INT PRIMARY KEY, v INT)")
    source.execute("CREATE TABLE keyless (v INT)")
    source.execute("CREATE TABLE dropped (id INT PRIMARY KEY, v INT)")
    source.execute("CREATE TABLE rekeyed (id INT PRIMARY KEY, other INT NOT NULL)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    for table in ("good", "dropped"):
        source.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    source.execute("INSERT INTO rekeyed VALUES (1, 1)")
    copied(settings)
    target.execute("DROP TABLE dropped")
    target.execute("UPDATE good SET v = 9 WHERE id = 2")
    with validating(settings, row_error_delay=1.0) as watched:
        (error,) = watched.until_errors(1)
        assert error.table == f"{source.name}.good"
        stages = watched.standing.tables
        assert stages[f"{source.name}.good"].stage == "running"
        assert "no key" in stages[f"{source.name}.keyless"].message
        assert "dropped" in stages[f"{source.name}.dropped"].message
        assert {name for name, one in stages.items() if one.stage == "stopped"} == {
            f"{source.name}.keyless",
            f"{source.name}.dropped",
        }
        source.execute("ALTER TABLE rekeyed DROP PRIMARY KEY, ADD PRIMARY KEY (other)")
        source.execute("INSERT INTO rekeyed VALUES (2, 2)")
        source.execute("INSERT INTO good VALUES (3, 3)")
        watched.until(
            lambda: watched.standing.tables[f"{source.name}.rekeyed"].stage == "stopped",
            "the table whose key changed stops",
        )
        assert "key changed" in watched.standing.tables[f"{source.name}.rekeyed"].message
        assert watched.standing.state == "running"


def test_rows_that_foreign_keys_change_without_a_log_are_no_errors(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE parent (id INT PRIMARY KEY)")
    source.execute(
        "CREATE TABLE child (id INT PRIMARY KEY, parent INT,"
        " FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE)"
    )
    settings = Settings(task, source.url, target.url, cascades="target")
    begun(settings)
    source.execute("INSERT INTO parent VALUES (1), (2)")
    source.execute("INSERT INTO child VALUES (1, 1), (2, 2)")
    source.execute("DELETE FROM parent WHERE id = 1")
    copied(settings)
    assert target.execute("SELECT id FROM child") == [(2,)]
    target.execute("INSERT INTO parent VALUES (1)")
    with validating(settings, row_error_delay=1.0) as watched:
        (error,) = watched.until_errors(1)
        watched.until_settled()
        assert (error.table, error.kind) == (f"{source.name}.parent", "extra")
        child = watched.standing.tables[f"{source.name}.child"]
        assert child.stage == "stopped"
        assert "foreign keys change its rows" in child.message


@pytest.mark.long
def test_columns_that_come_go_and_move_are_compared_by_name(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20), c INT)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.execute("INSERT INTO t VALUES (1, 1, 'one', 1), (2, 2, 'two', 2)")
    copied(settings)
    source.execute("ALTER TABLE t ADD COLUMN d VARCHAR(10) NULL AFTER id")
    source.execute("INSERT INTO t VALUES (3, 'new', 3, 'three', 3), (4, 'new', 4, 'four', 4)")
    copied(settings)
    target.execute("ALTER TABLE t MODIFY COLUMN c INT FIRST, MODIFY COLUMN b VARCHAR(30)")
    target.execute("UPDATE t SET d = 'old' WHERE id = 4")
    target.execute("UPDATE t SET b = 'wrong' WHERE id = 2")
    with validating(settings, row_error_delay=1.0) as watched:
        errors = watched.until_errors(2)
        watched.until_settled()
        assert {(e.key["id"], tuple(e.columns)) for e in errors} == {("2", ("b",)), ("4", ("d",))}
        target.execute("ALTER TABLE t DROP COLUMN a")
        source.execute("ALTER TABLE t DROP COLUMN a")
        source.execute("UPDATE t SET b = 'again' WHERE id = 1")
        source.execute("UPDATE t SET b = 'once more' WHERE id = 3")
        with watched.between_checks:
            copied(settings)
            target.execute("UPDATE t SET b = 'wrong' WHERE id = 3")
        watched.until(lambda: {e.key["id"] for e in watched.new} == {"2", "3", "4"}, "row 3")
        assert watched.processed() == 6


@pytest.mark.long
def test_a_route_a_rename_and_merged_tables_apply(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    for name in ("orders_1", "orders_2"):
        source.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, cust INT)")
    rules = MappingRules(
        routes=(
            Route("orders_*", "orders", {"cust": "customer"}, merge=True, source_column="origin"),
        )
    )
    settings = Settings(task, source.url, target.url, rules=rules)
    begun(settings)
    source.execute("INSERT INTO orders_1 VALUES (1, 10), (2, 20)")
    source.execute("INSERT INTO orders_2 VALUES (1, 11), (2, 21)")
    copied(settings)
    target.execute("UPDATE orders SET customer = 0 WHERE customer = 21")
    target.execute("DELETE FROM orders WHERE customer = 10")
    for _ in range(2):  # and a restart in between mixes nothing up
        with validating(settings, row_error_delay=1.0) as watched:
            errors = watched.until_errors(2)
            watched.until_settled()
            assert {(e.table, e.kind) for e in errors} == {
                (f"{source.name}.orders_1", "missing"),
                (f"{source.name}.orders_2", "differs"),
            }
            assert watched.processed() == 4


@pytest.mark.long
def test_an_emptied_table_is_expected_to_be_empty(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    source.execute("TRUNCATE TABLE t")
    source.execute("INSERT INTO t VALUES (3, 3)")
    copied(settings)
    target.execute("INSERT INTO t VALUES (2, 2)")
    with validating(settings, row_error_delay=1.0) as watched:
        (error,) = watched.until_errors(1)
        watched.until_settled()
        assert (error.key, error.kind) == ({"id": "2"}, "extra")


def test_a_task_that_only_copies_is_refused(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    settings = Settings(task, mariadb_db.url, second_mariadb_db.url)
    Transfer(settings).run(snapshot_only=True)
    with pytest.raises(UsageError, match="has only copied rows"):
        Validator(settings, ContinuousOptions()).run()


@pytest.mark.long
@pytest.mark.parametrize(
    ("most", "named"),
    [
        ({"max_pending_rows": 100}, "max-pending-rows"),
        ({"max_pending_bytes": 1000}, "max-pending-bytes"),
    ],
)
def test_too_much_that_is_pending_stops_it_and_is_kept(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    task: str,
    most: dict[str, Any],
    named: str,
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.executemany("INSERT INTO t VALUES (%s, %s)", [(n, n) for n in range(500)])
    copied(settings)
    target.execute("UPDATE t SET v = -1")
    options = replace(ContinuousOptions(validate_interval=1.0), **most)
    with pytest.raises((UsageError, CannotFinish), match=named):
        Validator(settings, options).run()
    with validating(settings, row_error_delay=600.0) as watched:
        assert watched.standing.pending.total == 500
        target.execute("UPDATE t SET v = id")
        watched.until_settled()
        assert watched.processed() == 500
