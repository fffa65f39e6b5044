"""One session compares the same tables again and again: what it found before must not stand for what is there."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import truecopy
from tests.servers import Database


@pytest.mark.long
def test_a_row_that_was_damaged_later_is_found_by_the_next_comparison(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """Compared by classes of fingerprints, which are the same ones each time."""
    for database, collation in (
        (mariadb_db, "utf8mb4_bin"),
        (second_mariadb_db, "utf8mb4_general_ci"),
    ):
        database.execute(
            f"CREATE TABLE t (code VARCHAR(20) COLLATE {collation} PRIMARY KEY, v INT NOT NULL)"
        )
        database.executemany("INSERT INTO t VALUES (%s, 0)", [(f"k{n}",) for n in range(600)])
    second_mariadb_db.execute("UPDATE t SET v = 1 WHERE code NOT LIKE '%%7'")

    def found() -> int:
        report = truecopy.verify(mariadb_db.url, second_mariadb_db.url, spark=spark, chunk_rows=50)
        return report.tables[0].found

    assert found() == 540
    second_mariadb_db.execute("UPDATE t SET v = 1 WHERE code = 'k7'")
    assert found() == 541
