"""Keys of every kind, cut into many chunks: nothing missed, no false alarm."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from pyspark.sql import SparkSession

import truecopy
from tests.servers import Database
from truecopy.verify.chunks import chunks_between, even_chunks


@dataclass(frozen=True)
class KeyCase:
    """A table of 3,000 rows with a key of some kind, in MariaDB's SQL; and its PostgreSQL twin."""

    name: str
    columns: str
    key: str
    values: str
    postgres: str | None = None


CASES = [
    KeyCase("negative", "id BIGINT NOT NULL", "id", "CAST(seq AS SIGNED) - 1500"),
    KeyCase("sparse", "id BIGINT NOT NULL", "id", "seq * 1000000007"),
    KeyCase("skewed", "id BIGINT UNSIGNED NOT NULL", "id", "IF(seq < 2900, seq, 18446744073709551615 - seq)"),
    KeyCase("composite", "a INT NOT NULL, b VARCHAR(20) NOT NULL COLLATE utf8mb4_bin", "a, b",
            "seq % 7, CONCAT('k', seq)"),
    KeyCase("three", "a INT NOT NULL, b DATE NOT NULL, c INT NOT NULL", "a, b, c",
            "seq % 3, DATE('2020-01-01') + INTERVAL (seq % 50) DAY, seq"),
    KeyCase("text", "id VARCHAR(40) NOT NULL", "id", "CONCAT(IF(seq % 2, 'Ab', 'aB'), MD5(seq))"),
    KeyCase("binary", "id VARBINARY(40) NOT NULL", "id", "UNHEX(MD5(seq))"),
    KeyCase("uuid", "id UUID NOT NULL", "id",
            "CONCAT(LEFT(MD5(seq),12),'4',SUBSTR(MD5(seq),14,3),'8',SUBSTR(MD5(seq),18))"),
    KeyCase("decimal", "id DECIMAL(20,6) NOT NULL", "id", "seq / 7"),
    KeyCase("time", "id DATETIME(6) NOT NULL", "id",
            "TIMESTAMP('2024-03-31 00:00:00') + INTERVAL seq * 1234567 MICROSECOND"),
    KeyCase("enum", "id ENUM('z','a') NOT NULL, n INT NOT NULL", "id, n", "IF(seq % 2, 'z', 'a'), seq"),
]  # fmt: skip


def fill(database: Database, case: KeyCase) -> None:
    database.execute(f"CREATE TABLE t ({case.columns}, v INT, PRIMARY KEY ({case.key}))")
    database.execute(f"INSERT INTO t SELECT {case.values}, seq FROM seq_1_to_3000")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kind_of_key(
    case: KeyCase, mariadb_db: Database, second_mariadb_db: Database, spark: SparkSession
) -> None:
    for database in (mariadb_db, second_mariadb_db):
        fill(database, case)
    ends = mariadb_db.url, second_mariadb_db.url
    equal = truecopy.verify(*ends, chunk_rows=250, spark=spark)
    assert (equal.verdict, equal.tables[0].rows_compared) == ("equal", 3000), equal.to_dict()
    second_mariadb_db.execute("UPDATE t SET v = -v WHERE v IN (1, 1500, 3000)")
    second_mariadb_db.execute("DELETE FROM t WHERE v IN (2, 2999)")
    mariadb_db.execute("DELETE FROM t WHERE v = 700")
    found = truecopy.verify(*ends, chunk_rows=250, spark=spark, fresh=True)
    table = found.tables[0]
    assert (table.missing, table.extra, table.differing) == (2, 1, 3), found.to_dict()
    assert table.rows_compared == 3000


def test_text_keys_ordered_differently(
    mariadb_db: Database, postgres_db: Database, spark: SparkSession
) -> None:
    """A collation that ignores case against one that does not: classes of fingerprints, one pass."""
    mariadb_db.execute(
        "CREATE TABLE t (id VARCHAR(40) PRIMARY KEY, v INT) COLLATE utf8mb4_general_ci"
    )
    postgres_db.execute("CREATE TABLE t (id VARCHAR(40) PRIMARY KEY, v INT)")
    rows = [(f"{'Key' if i % 2 else 'kEY'} é{i} ", i) for i in range(2000)]
    for database in (mariadb_db, postgres_db):
        database.executemany("INSERT INTO t VALUES (%s, %s)", rows)
    equal = truecopy.verify(mariadb_db.url, postgres_db.url, chunk_rows=200, spark=spark)
    assert equal.verdict == "equal", equal.to_dict()
    assert equal.tables[0].rows_compared == 2000
    postgres_db.execute("UPDATE t SET id = lower(id) WHERE v = 77")
    postgres_db.execute("UPDATE t SET v = -1 WHERE v = 78")
    postgres_db.execute("DELETE FROM t WHERE v = 79")
    postgres_db.execute("INSERT INTO t VALUES ('new', 1)")
    table = truecopy.verify(
        mariadb_db.url, postgres_db.url, chunk_rows=200, spark=spark, fresh=True
    ).tables[0]
    assert (table.missing, table.extra, table.differing) == (2, 2, 1)


@pytest.mark.parametrize("chunk_rows", [100, 100_000])
def test_tables_without_a_key_are_multisets(
    chunk_rows: int, mariadb_db: Database, postgres_db: Database, spark: SparkSession
) -> None:
    for database in (mariadb_db, postgres_db):
        database.execute("CREATE TABLE t (a INT, b VARCHAR(20))")
        database.executemany(
            "INSERT INTO t VALUES (%s, %s)", [(i % 50, f"b{i % 20}") for i in range(1000)]
        )
    ends = mariadb_db.url, postgres_db.url
    assert truecopy.verify(*ends, chunk_rows=chunk_rows, spark=spark).verdict == "equal"
    mariadb_db.execute("DELETE FROM t WHERE a = 3 AND b = 'b3' LIMIT 2")
    mariadb_db.execute("INSERT INTO t VALUES (NULL, NULL)")
    report = truecopy.verify(*ends, chunk_rows=chunk_rows, spark=spark, fresh=True)
    table = report.tables[0]
    assert (table.missing, table.extra, table.differing) == (1, 2, 0), report.to_dict()
    assert [
        d["source"] for d in report.to_dict()["tables"][0]["differences"] if d["kind"] == "missing"
    ] == [{"a": None, "b": None}]


def test_duplicates_of_a_key_on_the_target(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    second_mariadb_db.execute("CREATE TABLE t (id INT, v INT)")
    for database in (mariadb_db, second_mariadb_db):
        database.execute("INSERT INTO t SELECT seq, seq FROM seq_1_to_100")
    second_mariadb_db.execute("INSERT INTO t VALUES (5, 5), (6, 7)")
    table = truecopy.verify(mariadb_db.url, second_mariadb_db.url).tables[0]
    assert (table.missing, table.extra, table.differing) == (0, 2, 0)


def test_target_with_rows_beyond_the_source(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    for database, rows in ((mariadb_db, 10), (second_mariadb_db, 5000)):
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        database.execute(
            f"INSERT INTO t SELECT CAST(seq AS SIGNED) - 2000, seq FROM seq_1_to_{rows}"
        )
    table = truecopy.verify(mariadb_db.url, second_mariadb_db.url, chunk_rows=100).tables[0]
    assert (table.missing, table.extra, table.differing) == (0, 4990, 0)


def test_chunks_cover_the_key_space() -> None:
    chunks = even_chunks(-5, 1000, 1006, 100)
    assert (chunks[0].low, chunks[-1].high) == (None, None)
    assert all(a.high == b.low for a, b in pairwise(chunks))
    assert len(chunks) == 11
    assert chunks_between([]) == even_chunks(1, 1, 1, 100)
