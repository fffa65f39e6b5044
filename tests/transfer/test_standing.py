"""What stands on columns that arrive as they are: numbers, collations, indexes, references, under their new names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from tests.servers import Database
from truecopy.tasks.file import parse_task
from truecopy.tasks.transfer import transfer_settings
from truecopy.transfer.run import RunReport, Transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACCOUNTS = (
    "CREATE TABLE acc (id INT AUTO_INCREMENT PRIMARY KEY, email VARCHAR(50) NOT NULL, note VARCHAR(9), up INT,"
    " UNIQUE KEY email (email), KEY note (note(4)), FOREIGN KEY (up) REFERENCES acc (id))"
    " DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_general_ci;"
    "INSERT INTO acc VALUES (1, 'a@x', 'd', NULL), (2, 'b@x', 'e', 1)"
)
TO_POSTGRESQL = (
    "CREATE TABLE acc (id serial PRIMARY KEY, email text UNIQUE, note varchar(9), up int REFERENCES acc);"
    "INSERT INTO acc VALUES (1, 'a@x', 'd', NULL), (2, 'b@x', 'e', 1)"
)


def run(source: Database, target: Database, **more: Any) -> RunReport:
    document = {"task": "move", "source": source.url, "target": target.url, **more}
    return Transfer(transfer_settings(parse_task(document))).run(until_caught_up=True)


def indexed(target: Database, table: str) -> set[str]:
    """Columns of the indexes of a table of MariaDB, each as one text."""
    rows = target.execute(
        "SELECT GROUP_CONCAT(CONCAT(column_name, COALESCE(sub_part, '')) ORDER BY seq_in_index)"
        " FROM information_schema.statistics"
        f" WHERE table_schema = DATABASE() AND table_name = '{table}' GROUP BY index_name"
    )
    return {columns for (columns,) in rows}


@pytest.mark.parametrize(
    ("transformer", "mail"),
    [
        ({"filter": "id > 0"}, "email"),
        ({"filter": "id > 0", "rename": {"email": "mail"}}, "mail"),
        ({"rename": {"email": "mail"}}, "mail"),
    ],
)
def test_a_table_that_is_made_on_its_way_is_made_as_it_was(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    transformer: dict[str, Any],
    mail: str,
) -> None:
    mariadb_db.execute(ACCOUNTS)
    report = run(mariadb_db, second_mariadb_db, transformers={"acc": transformer})
    assert report.refused == 0
    assert indexed(second_mariadb_db, "acc") == {"id", mail, "note4", "up"}
    second_mariadb_db.execute(f"INSERT INTO acc ({mail}) VALUES ('new')")
    assert second_mariadb_db.execute(f"SELECT id FROM acc WHERE {mail} = 'new'") == [(3,)]
    with pytest.raises(pymysql.err.IntegrityError):
        second_mariadb_db.execute(f"INSERT INTO acc ({mail}) VALUES ('A@X')")
    assert "FOREIGN KEY (`up`)" in second_mariadb_db.execute("SHOW CREATE TABLE acc")[0][1]


def test_the_same_from_postgresql(
    spark: SparkSession, postgres_db: Database, mariadb_db: Database
) -> None:
    postgres_db.execute(TO_POSTGRESQL)
    run(postgres_db, mariadb_db, transformers={"acc": {"filter": "id > 0"}})
    made = mariadb_db.execute("SHOW CREATE TABLE acc")[0][1]
    assert "AUTO_INCREMENT" in made
    assert "`email` varchar(768)" in made  # as long as a unique index takes
    assert "FOREIGN KEY (`up`)" in made


def test_the_same_to_postgresql(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    mariadb_db.execute(ACCOUNTS)
    run(mariadb_db, postgres_db, transformers={"acc": {"filter": "id > 0"}})
    ((numbered,),) = postgres_db.execute(
        "SELECT is_identity FROM information_schema.columns WHERE table_name = 'acc' AND column_name = 'id'"
    )
    assert numbered == "YES"


MERGED = {"routes": {"orders_*": {"table": "orders", "merge": True, "source-column": "came"}}}


def test_tables_that_merge_get_their_indexes_once(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, postgres_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE cust (id INT PRIMARY KEY)")
    for number in (1, 2, 3):
        mariadb_db.execute(
            f"CREATE TABLE orders_{number} (id INT PRIMARY KEY, cust INT, s INT, note VARCHAR(99), KEY customer (s),"
            " KEY note (note(9)),"
            f" CONSTRAINT f{number} FOREIGN KEY (cust) REFERENCES cust (id));"
            f"INSERT INTO cust VALUES ({number}); INSERT INTO orders_{number} VALUES ({number}, {number}, 1, '')"
        )
    assert run(mariadb_db, second_mariadb_db, **MERGED).refused == 0
    assert indexed(second_mariadb_db, "orders") == {"came,id", "cust", "s", "note9"}
    assert second_mariadb_db.execute("SHOW CREATE TABLE orders")[0][1].count("FOREIGN KEY") == 1
    assert run(mariadb_db, postgres_db, **{**MERGED, "task": "other"}).refused == 0
    made = postgres_db.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'orders'")
    assert len(made) == 4
    found = "SELECT count(*) FROM pg_constraint WHERE contype = 'f'"
    assert postgres_db.execute(found) == [(1,)]


def test_columns_that_are_there_in_another_case(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    mariadb_db.execute(
        "CREATE TABLE Parents (Id INT PRIMARY KEY); CREATE TABLE orders (Id INT PRIMARY KEY, CustomerId INT, KEY cust"
        " (CustomerId, Id), FOREIGN KEY (CustomerId) REFERENCES Parents (Id));"
        "INSERT INTO Parents VALUES (2); INSERT INTO orders VALUES (1, 2)"
    )
    postgres_db.execute(
        "CREATE TABLE parents (id INT PRIMARY KEY); CREATE TABLE orders (id INT PRIMARY KEY, customerid INT)"
    )
    assert run(mariadb_db, postgres_db).refused == 0
    ((made,),) = postgres_db.execute(
        "SELECT indexdef FROM pg_indexes WHERE tablename = 'orders' AND indexname NOT LIKE '%pkey'"
    )
    assert made.endswith("(customerid, id)")
    ((key,),) = postgres_db.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'f'"
    )
    assert key.startswith("FOREIGN KEY (customerid) REFERENCES parents(id)")
