"""Rows that change on their way: filters, masks, casts, expressions, merges; and what updates do to them."""

from __future__ import annotations

import hashlib
import hmac
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.conftest import fresh_database
from tests.servers import Database
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.tasks.file import parse_task
from truecopy.tasks.transfer import transfer_settings
from truecopy.transfer.run import RunReport, Transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "a key that nobody knows"
RULES: dict[str, Any] = {
    "routes": {"orders": {"table": "sales", "columns": {"cust": "customer"}}},
    "mask-key": KEY,
    "transformers": {
        "orders": {
            "filter": "state <> 'draft'",
            "mask": ["email"],
            "cast": {"code": "text"},
            "drop": ["note"],
            "add": {
                "total": {"sql": "CAST(price * pieces AS DECIMAL(12,2))", "type": "decimal(2)"}
            },
        }
    },
}


def run(source: Database, target: Database, **more: Any) -> RunReport:
    document = {"task": "move", "source": source.url, "target": target.url, **RULES, **more}
    return Transfer(transfer_settings(parse_task(document))).run(until_caught_up=True)


def expected(source: Database) -> list[tuple[Any, ...]]:
    rows = source.execute(
        "SELECT id, cust, email, code, price, pieces, state FROM orders WHERE state <> 'draft' ORDER BY id"
    )
    return [
        (id_, cust, _masked(email), str(code), price, pieces, state, price * pieces)
        for id_, cust, email, code, price, pieces, state in rows
    ]


def _masked(text: str | None) -> str | None:
    return text and hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def found(target: Database) -> list[tuple[Any, ...]]:
    return [
        tuple(row)
        for row in target.execute(
            "SELECT id, customer, email, code, price, pieces, state, total FROM sales ORDER BY id"
        )
    ]


@pytest.fixture
def orders(mariadb_db: Database) -> Database:
    mariadb_db.execute(
        """CREATE TABLE orders (id INT PRIMARY KEY, cust INT, email VARCHAR(80), code INT, price DECIMAL(10,2),
        pieces INT NOT NULL, state VARCHAR(10) NOT NULL, note TEXT)"""
    )
    mariadb_db.execute(
        """INSERT INTO orders SELECT seq, seq % 7, IF(seq % 5, CONCAT('u', seq, '@x'), NULL), seq * 3, seq / 4, seq % 9,
        ELT(1 + seq % 3, 'draft', 'open', 'paid'), REPEAT('n', 50) FROM seq_1_to_900"""
    )
    return mariadb_db


@pytest.mark.long
def test_rows_and_changes_through_a_mapping(
    spark: SparkSession, orders: Database, postgres_db: Database
) -> None:
    run(orders, postgres_db)
    assert found(postgres_db) == expected(orders)
    orders.execute(
        "UPDATE orders SET state = 'draft' WHERE id BETWEEN 10 AND 20"
    )  # leaves the filter
    orders.execute(
        "UPDATE orders SET state = 'open' WHERE id BETWEEN 18 AND 40"
    )  # enters it, some again
    orders.execute("UPDATE orders SET id = -id, pieces = 100 WHERE id BETWEEN 50 AND 60")
    orders.execute("DELETE FROM orders WHERE id BETWEEN 70 AND 80")
    orders.execute("UPDATE orders SET email = 'new@x', price = 1.5 WHERE id BETWEEN 90 AND 99")
    orders.execute(
        "INSERT INTO orders VALUES (5000, 1, 'a@x', 1, 2.50, 4, 'draft', ''), (5001, 1, NULL, 1, 2.50, 4, 'open', '')"
    )
    run(orders, postgres_db)
    assert found(postgres_db) == expected(orders)


@pytest.mark.long
def test_a_truncated_table_is_emptied_and_filled_again(
    spark: SparkSession, orders: Database, postgres_db: Database
) -> None:
    run(orders, postgres_db)
    orders.execute("UPDATE orders SET pieces = 3 WHERE id < 100")
    orders.execute("TRUNCATE TABLE orders")
    orders.execute(
        "INSERT INTO orders VALUES (1, 1, 'a@x', 1, 2.50, 4, 'open', ''), (2, 1, 'b@x', 1, 2.50, 4, 'draft', '')"
    )
    report = run(orders, postgres_db)
    assert found(postgres_db) == expected(orders)
    assert report.tables[f"{orders.name}.orders"].changes_applied >= 2


@pytest.mark.long
def test_tables_that_merge_keep_apart(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    for number in (1, 2):
        mariadb_db.execute(f"CREATE TABLE part_{number} (id INT PRIMARY KEY, name VARCHAR(20))")
        mariadb_db.execute(
            f"INSERT INTO part_{number} SELECT seq, CONCAT({number}, '-', seq) FROM seq_1_to_300"
        )
    more = {
        "routes": {"part_*": {"table": "whole", "merge": True, "source-column": "origin"}},
        "transformers": {},
    }
    run(mariadb_db, second_mariadb_db, **more)
    mariadb_db.execute("UPDATE part_1 SET name = 'x' WHERE id = 7")
    mariadb_db.execute("DELETE FROM part_2 WHERE id = 7")
    run(mariadb_db, second_mariadb_db, **more)
    assert second_mariadb_db.execute("SELECT origin, name FROM whole WHERE id = 7") == [
        (f"{mariadb_db.name}.part_1", "x")
    ]
    assert second_mariadb_db.execute("SELECT COUNT(*) FROM whole") == [(599,)]
    mariadb_db.execute("TRUNCATE TABLE part_1")
    with pytest.raises(CannotFinish, match="holds rows of other tables"):
        run(mariadb_db, second_mariadb_db, **more)


@pytest.mark.parametrize("consistency", ["row", "table", "transaction"])
def test_a_row_that_goes_from_one_merged_table_to_another(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, consistency: str
) -> None:
    for table in ("archive", "orders"):
        mariadb_db.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
    mariadb_db.execute("INSERT INTO orders SELECT seq, 0 FROM seq_1_to_40")
    way = {"table": "whole", "merge": True}
    more: dict[str, Any] = {"routes": {"archive": way, "orders": way}, "transformers": {}}
    run(mariadb_db, second_mariadb_db, consistency=consistency, **more)
    with closing(mariadb_db.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO archive SELECT id, 1 FROM orders WHERE id <= 20")
        cursor.execute("DELETE FROM orders WHERE id <= 20")
        cursor.execute("COMMIT")
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM archive WHERE id <= 5")
        cursor.execute("INSERT INTO orders SELECT seq, 2 FROM seq_1_to_5")
        cursor.execute("COMMIT")
    run(mariadb_db, second_mariadb_db, consistency=consistency, **more)
    both = "SELECT * FROM orders UNION ALL SELECT * FROM archive ORDER BY id"
    assert second_mariadb_db.execute("SELECT * FROM whole ORDER BY id") == mariadb_db.execute(both)


def test_rows_of_merged_tables_with_equal_keys_are_one(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, postgres_db: Database
) -> None:
    for number in (1, 2):
        mariadb_db.execute(f"CREATE TABLE part_{number} (id INT PRIMARY KEY, k INT, v INT)")
        mariadb_db.execute(
            f"INSERT INTO part_{number} SELECT {number} * 100 + seq, seq, {number} FROM seq_1_to_200"
        )
    more = {"routes": {"part_*": {"table": "whole", "merge": True}}, "transformers": {}}
    for task, target in (("one", second_mariadb_db), ("two", postgres_db)):
        run(mariadb_db, target, task=task, **more)
        found = target.execute("SELECT COUNT(*), MIN(id), MAX(id) FROM whole")
        assert found == [(300, 101, 400)]
    mariadb_db.execute("UPDATE part_2 SET v = 3 WHERE id = 250")
    run(mariadb_db, postgres_db, task="two", **more)
    assert postgres_db.execute("SELECT v FROM whole WHERE id = 250") == [(3,)]


def test_a_key_that_does_not_tell_rows_apart_is_refused_where_tables_merge(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    for number in (1, 2):
        mariadb_db.execute(f"CREATE TABLE part_{number} (id INT PRIMARY KEY, k INT NOT NULL)")
    mariadb_db.execute("INSERT INTO part_1 SELECT seq, seq % 20 FROM seq_1_to_40")
    more = {
        "routes": {"part_*": {"table": "whole", "merge": True}},
        "transformers": {"part_*": {"key": ["k"]}},
        "chunks": {"rows": 20},
    }
    with pytest.raises(CannotFinish, match="Duplicate"):
        run(mariadb_db, second_mariadb_db, **more)


MADE = {
    "cast": {"h": "binary", "id": "text"},
    "add": {
        "day": {"sql": "date_trunc('day', d)", "type": "timestamptz"},
        "half": {"sql": "f / 2D"},
        "clock": {"sql": "'10:11:12.5'", "type": "time"},
        "many": {"sql": "f > 3"},
    },
}


@pytest.mark.parametrize("engine", ["mariadb", "postgres"])
def test_columns_that_are_made_on_the_way_between_two_of_one_engine(
    spark: SparkSession, request: pytest.FixtureRequest, engine: str
) -> None:
    source = request.getfixturevalue(f"{engine}_db")
    with fresh_database(source.server) as target:
        _make_on_the_way(source, target)


def _make_on_the_way(source: Database, target: Database) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, d TIMESTAMP, h VARCHAR(40), f INT)")
    source.execute("INSERT INTO t VALUES (1, '1999-02-03 04:05:06', '00112233', 3)")
    run(source, target, routes={}, transformers={"t": MADE})
    ((id_, h, half, clock, many),) = target.execute("SELECT id, h, half, clock, many FROM t")
    assert (id_, bytes(h), half, bool(many)) == ("1", b"00112233", 1.5, False)
    assert str(clock).endswith("10:11:12.500000")


def test_what_the_target_has_no_type_for_is_carried_as_it_says(
    spark: SparkSession, postgres_db: Database, mariadb_db: Database
) -> None:
    postgres_db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, tags text[], b bit varying(5), n numeric(80, 40));"
        "INSERT INTO t VALUES (1, '{a,NULL}', B'101', 2.5)"
    )
    rules: dict[str, Any] = {}
    for column in ("tags", "b", "n"):
        with pytest.raises(
            UsageError, match=rf"t\.{column} .* with drop, or .* text with "
        ) as told:
            run(postgres_db, mariadb_db, routes={}, transformers={"t": rules})
        for rule, columns in yaml.safe_load(str(told.value).rpartition(" text with ")[2]).items():
            rules.setdefault(rule, {}).update(columns)
    run(postgres_db, mariadb_db, routes={}, transformers={"t": rules})
    ((tags, b, n),) = mariadb_db.execute("SELECT tags, b, n FROM t")
    assert "a" in tags
    assert (b, float(n)) == ("101", 2.5)


@pytest.mark.long
def test_long_values_that_a_log_left_out_are_kept(
    spark: SparkSession, postgres_db: Database, mariadb_db: Database
) -> None:
    postgres_db.execute("CREATE TABLE docs (id INT PRIMARY KEY, body TEXT, state INT)")
    postgres_db.execute("ALTER TABLE docs ALTER body SET STORAGE EXTERNAL")
    postgres_db.execute(
        "INSERT INTO docs SELECT g, repeat(md5(g::text), 200), 0 FROM generate_series(1, 20) g"
    )
    more: dict[str, Any] = {"routes": {}, "transformers": {}}
    run(postgres_db, mariadb_db, **more)
    postgres_db.execute("UPDATE docs SET state = 1 WHERE id <= 10")
    postgres_db.execute("UPDATE docs SET body = repeat('new', 2000) WHERE id = 3")
    postgres_db.execute("UPDATE docs SET state = 2 WHERE id IN (3, 4)")
    postgres_db.execute("INSERT INTO docs VALUES (30, repeat('thirty', 1000), 0)")
    postgres_db.execute("UPDATE docs SET state = 5 WHERE id = 30")
    run(postgres_db, mariadb_db, **more)
    query = "SELECT id, md5(body), state FROM docs ORDER BY id"
    assert mariadb_db.execute(query) == postgres_db.execute(query)
    postgres_db.execute("UPDATE docs SET id = 100 WHERE id = 5")
    with pytest.raises(CannotFinish, match="REPLICA IDENTITY FULL"):
        run(postgres_db, mariadb_db, **more)
