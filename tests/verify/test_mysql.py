"""MySQL itself, against MariaDB and PostgreSQL: `make mysql`."""

from __future__ import annotations

import pytest

import truecopy
from tests.servers import Database

ROWS = [
    (1, "a", '{"b": 1, "a": [1.5, null]}', "2024-03-31 02:30:00", 0.1, b"\x00\xff"),
    (2, "é🙂 ", "{}", "2024-10-27 02:30:00.5", -0.0, b""),
    (3, "", '"text"', None, 5e-324, None),
    (
        18446744073709551615 // 4,
        None,
        None,
        "1999-12-31 23:59:59.999999",
        1.7976931348623157e308,
        b"x",
    ),
]


@pytest.mark.mysql
@pytest.mark.parametrize("other", ["mariadb_db", "postgres_db", "mysql_db"])
def test_equal_and_damaged(other: str, mysql_db: Database, request: pytest.FixtureRequest) -> None:
    target: Database = request.getfixturevalue(other)
    kinds = "id BIGINT PRIMARY KEY, v VARCHAR(20), j JSON, at {}, f {}, b {}"
    mysql_db.execute(f"CREATE TABLE t ({kinds.format('DATETIME(6)', 'DOUBLE', 'VARBINARY(20)')})")
    if other == "postgres_db":
        target.execute(
            f"CREATE TABLE t ({kinds.format('TIMESTAMP', 'DOUBLE PRECISION', 'BYTEA').replace('JSON', 'JSONB')})"
        )
    elif other == "mariadb_db":
        target.execute(f"CREATE TABLE t ({kinds.format('DATETIME(6)', 'DOUBLE', 'VARBINARY(20)')})")
    for database in {id(mysql_db): mysql_db, id(target): target}.values():
        database.executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s, %s)", ROWS)
    report = truecopy.verify(mysql_db.url, target.url)
    assert (report.verdict, report.tables[0].rows_compared) == ("equal", len(ROWS)), (
        report.to_dict()
    )
    if other == "mysql_db":
        return
    target.execute("UPDATE t SET v = 'é🙂' WHERE id = 2")
    target.execute("DELETE FROM t WHERE id = 3")
    table = truecopy.verify(mysql_db.url, target.url).tables[0]
    assert (table.missing, table.extra, table.differing) == (1, 0, 1)
