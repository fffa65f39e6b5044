"""Private MariaDB servers whose logs hold one kind of work each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.servers import Database, MariaDB

BULK, TYPES, SINGLE = "bulk", "types", "single"
_STATEMENT_ROWS = 10_000

_SYSBENCH = """(
    id INT NOT NULL PRIMARY KEY,
    k INT NOT NULL DEFAULT 0,
    c CHAR(120) NOT NULL DEFAULT '',
    pad CHAR(60) NOT NULL DEFAULT '')"""
_SYSBENCH_ROW = (
    "seq, seq * 7 % 1000003, REPEAT(SHA1(seq), 3), CONCAT(SHA1(-seq), SUBSTR(MD5(seq), 1, 20))"
)

_TWENTY = """(
    id BIGINT UNSIGNED NOT NULL PRIMARY KEY, tiny TINYINT, small SMALLINT UNSIGNED, medium MEDIUMINT, i INT,
    price DECIMAL(12,4), ratio DOUBLE, f FLOAT, day DATE, at DATETIME(6), stamp TIMESTAMP(3) NULL, clock TIME(2),
    y YEAR, flags BIT(10), colour ENUM('red','green','blue'), marks SET('a','b','c','d'), code CHAR(8),
    name VARCHAR(60), body TEXT, raw VARBINARY(32))"""
_TWENTY_ROW = """seq, seq % 200 - 100, seq % 60000, seq % 8000000 - 4000000, -seq, seq * 1.2345 - 5000, seq / 7.0,
    seq / 3, '1970-01-01' + INTERVAL seq % 20000 DAY, '2000-01-01' + INTERVAL seq * 1234567 MICROSECOND,
    FROM_UNIXTIME(86400 + seq), SEC_TO_TIME(seq % 86400), 1901 + seq % 250, seq % 1024, 1 + seq % 3, seq % 16,
    HEX(seq % 65536), CONCAT('name ', seq), IF(seq % 10, CONCAT('body of ', SHA1(seq)), NULL), UNHEX(MD5(seq))"""


@dataclass(frozen=True)
class Log:
    """A database whose log holds `rows` changes of one table."""

    kind: str
    database: Database
    rows: int


@contextmanager
def filled_log(kind: str, rows: int) -> Iterator[Log]:
    """A server that has done the work; column names are in its log, since a rival needs them."""
    with MariaDB("--binlog-row-metadata=FULL", buffer_pool="512M") as server:
        database = server.create_database("shop")
        {BULK: _fill_bulk, TYPES: _fill_types, SINGLE: _fill_single}[kind](database, rows)
        yield Log(kind, database, rows)


def _fill_bulk(database: Database, rows: int) -> None:
    database.execute(f"CREATE TABLE t {_SYSBENCH}")
    _insert(database, _SYSBENCH_ROW, rows)


def _fill_types(database: Database, rows: int) -> None:
    database.execute(f"CREATE TABLE t {_TWENTY}")
    _insert(database, _TWENTY_ROW, rows)


def _insert(database: Database, row: str, rows: int) -> None:
    for first in range(1, rows + 1, _STATEMENT_ROWS):
        last = min(first + _STATEMENT_ROWS - 1, rows)
        signed = f"(SELECT CAST(seq AS SIGNED) AS seq FROM seq_{first}_to_{last}) AS numbers"
        database.execute(f"INSERT INTO t SELECT {row} FROM {signed}")


def _fill_single(database: Database, rows: int) -> None:
    """A transaction per row, made inside the server: a client would take minutes."""
    database.execute(f"CREATE TABLE t {_SYSBENCH}")
    database.execute(
        "CREATE PROCEDURE fill(n INT) BEGIN DECLARE seq INT DEFAULT 1; WHILE seq <= n DO"
        f" INSERT INTO t VALUES ({_SYSBENCH_ROW}); SET seq = seq + 1; END WHILE; END"
    )
    database.execute(f"CALL fill({rows})")
