"""What a user may choose: columns, types, rows, routes, limits."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import truecopy
from tests.servers import Database
from truecopy.verify.certificate import not_seen
from truecopy.verify.report import Report


class Pair:
    """Two SQLite databases and what they say of each other."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "source.db", folder / "target.db"

    def run(self, side: int, script: str) -> None:
        with sqlite3.connect(self.files[side]) as connection:
            connection.executescript(script)

    def both(self, script: str) -> None:
        self.run(0, script)
        self.run(1, script)

    def verify(self, **choices: Any) -> Report:
        source, target = (f"sqlite:///{file}" for file in self.files)
        return truecopy.verify(source, target, **choices)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


MANY = """
INSERT INTO items WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < {})
SELECT value, 'a', 1 FROM n
"""
ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price REAL);"


def test_ignored_column(pair: Pair) -> None:
    pair.both(ITEMS + "INSERT INTO items VALUES (1, 'a', 1.5)")
    pair.run(1, "UPDATE items SET price = 2")
    assert pair.verify().verdict == "different"
    ignored = pair.verify(ignore_columns=("price",))
    assert ignored.verdict == "equal"
    assert ignored.tables[0].ignored == ("price",)
    assert pair.verify(ignore_columns=("other.price",)).verdict == "different"


def test_renamed_column(pair: Pair) -> None:
    pair.run(0, ITEMS + "INSERT INTO items VALUES (1, 'a', 1.5)")
    pair.run(1, ITEMS.replace("price", "cost") + "INSERT INTO items VALUES (1, 'a', 1.5)")
    unmatched = pair.verify()
    assert unmatched.verdict == "different"
    kinds = [finding.kind for finding in unmatched.tables[0].structure]
    assert kinds == ["missing_on_target", "missing_on_source"]
    assert pair.verify(renames=("price=cost",)).verdict == "equal"


def test_case_and_order_of_columns(pair: Pair) -> None:
    pair.run(
        0,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b TEXT); INSERT INTO t VALUES (1, 'x', 'y')",
    )
    pair.run(
        1,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, B TEXT, A TEXT); INSERT INTO t VALUES (1, 'y', 'x')",
    )
    assert pair.verify().verdict == "equal"
    assert pair.verify(match_case=True).verdict == "different"
    assert pair.verify(match_order=True).verdict == "different"


def test_where(pair: Pair) -> None:
    pair.both(ITEMS + "INSERT INTO items VALUES (1, 'a%', 1), (2, 'b', 2)")
    pair.run(1, "UPDATE items SET name = 'c' WHERE id = 2")
    assert pair.verify(where="name LIKE 'a%'").verdict == "equal"
    assert pair.verify(where="id = 2").tables[0].rows_compared == 1


def test_where_with_percent_on_servers(mariadb_db: Database, postgres_db: Database) -> None:
    for database in (mariadb_db, postgres_db):
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20))")
        database.executemany("INSERT INTO t VALUES (%s, %s)", [(1, "a%b"), (2, "b"), (3, "ab")])
    report = truecopy.verify(mariadb_db.url, postgres_db.url, where="name LIKE 'a%'")
    assert (report.verdict, report.tables[0].rows_compared) == ("equal", 2)


def test_float_tolerance(pair: Pair) -> None:
    pair.both(ITEMS + "INSERT INTO items VALUES (1, 'a', 1e20), (2, 'b', 1e-20), (3, 'c', 5)")
    pair.run(1, "UPDATE items SET price = price * (1 + 1e-12)")
    assert pair.verify().tables[0].differing == 2 or pair.verify().tables[0].differing == 3
    assert pair.verify(float_tolerance=1e-9).verdict == "equal"
    pair.run(1, "UPDATE items SET price = 2e-20 WHERE id = 2")
    assert pair.verify(float_tolerance=1e-9).tables[0].differing == 1


def test_cast(mariadb_db: Database, postgres_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY, n VARCHAR(10), at TIMESTAMP(3) NULL)")
    postgres_db.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT, at TIMESTAMP)")
    mariadb_db.execute(
        "SET time_zone='+00:00'; INSERT INTO t VALUES (1, '7', '2024-01-01 00:00:00.5'), (2, 'x', NULL)"
    )
    postgres_db.execute("INSERT INTO t VALUES (1, 7, '2024-01-01 00:00:00.5'), (2, 0, NULL)")
    refused = truecopy.verify(mariadb_db.url, postgres_db.url)
    assert refused.verdict == "not_compared"
    assert "--cast" in (refused.tables[0].reason or "")
    table = truecopy.verify(
        mariadb_db.url, postgres_db.url, casts=("n=integer", "at=timestamp")
    ).to_dict()["tables"][0]
    assert [(d["key"]["id"], d["source"]) for d in table["differences"]] == [("2", {"n": "x"})]


def test_limit_stops_early(pair: Pair) -> None:
    pair.both(ITEMS)
    pair.run(0, MANY.format(5000))
    report = pair.verify(limit=10, chunk_rows=100)
    assert report.verdict == "different"
    assert len(report.to_dict()["tables"][0]["differences"]) == 10
    assert not report.tables[0].complete
    assert report.tables[0].rows_compared < 5000


def test_sample(pair: Pair) -> None:
    pair.both(ITEMS)
    pair.both(MANY.format(10000))
    report = pair.verify(sample=0.2, chunk_rows=100)
    assert report.verdict == "equal"
    assert 1500 <= report.tables[0].rows_compared <= 2500
    assert report.tables[0].sampled


def test_many_tables_merged_into_one(mariadb_db: Database, postgres_db: Database) -> None:
    for shard in range(3):
        mariadb_db.execute(f"CREATE TABLE orders_{shard} (id INT PRIMARY KEY, v VARCHAR(20))")
        mariadb_db.execute(
            f"INSERT INTO orders_{shard} SELECT seq * 3 + {shard}, seq FROM seq_1_to_1000"
        )
    postgres_db.execute("CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))")
    postgres_db.execute(
        "INSERT INTO orders SELECT s * 3 + n, s FROM generate_series(1, 1000) s, generate_series(0, 2) n"
    )
    ends = mariadb_db.url, postgres_db.url
    report = truecopy.verify(*ends, tables=("orders_*=orders",), chunk_rows=300)
    assert (report.verdict, report.tables[0].rows_compared) == ("equal", 3000)
    postgres_db.execute("DELETE FROM orders WHERE id = 1501")
    postgres_db.execute("UPDATE orders SET v = '' WHERE id = 1503")
    table = truecopy.verify(*ends, tables=("orders_*=orders",), chunk_rows=300).tables[0]
    assert (table.missing, table.extra, table.differing) == (1, 0, 1)


def test_tables_of_one_side_only(pair: Pair) -> None:
    pair.both(ITEMS + "INSERT INTO items VALUES (1, 'a', 1)")
    pair.run(0, "CREATE TABLE lost (id INTEGER PRIMARY KEY)")
    report = pair.verify()
    assert (report.verdict, report.only_source) == ("equal", ("lost",))
    assert any("lost" in line for line in not_seen(report))
    assert pair.verify(strict_structure=True).verdict == "different"


def test_differences_as_arrow_and_spark(pair: Pair, spark: SparkSession) -> None:
    pair.both(ITEMS + "INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 2)")
    pair.run(1, "UPDATE items SET name = NULL WHERE id = 1; DELETE FROM items WHERE id = 2")
    report = pair.verify()
    table = report.to_arrow()
    assert isinstance(table, pa.Table)
    assert sorted(table.column("kind").to_pylist()) == ["differs", "missing"]
    frame = report.to_spark(spark)
    row = frame.where("kind = 'differs'").first()
    assert row is not None
    assert (row["key"], row["columns"], row["target"]["name"]) == ({"id": "1"}, ["name"], None)


def test_keeps_to_the_ceiling_of_connections(
    mariadb_db: Database, second_mariadb_db: Database, spark: SparkSession
) -> None:
    for database in (mariadb_db, second_mariadb_db):
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        database.execute("INSERT INTO t SELECT seq FROM seq_1_to_20000")
    mariadb_db.execute("CREATE USER few IDENTIFIED BY 'few-pw' WITH MAX_USER_CONNECTIONS 2")
    mariadb_db.execute(f"GRANT SELECT ON {mariadb_db.name}.* TO few")
    url = (
        f"mariadb://few:few-pw@{mariadb_db.server.host}:{mariadb_db.server.port}/{mariadb_db.name}"
    )
    try:
        # One connection looks at the structure, one compares.
        report = truecopy.verify(
            url, second_mariadb_db.url, connections=1, chunk_rows=2000, spark=spark
        )
    finally:
        mariadb_db.execute("DROP USER few")
    assert report.verdict == "equal"
