"""What broke others: each trap by its name, in one transfer from MariaDB to MariaDB with changes after the copy.

One table, `stale`, is held up on the target after its rows were read, and changed on the source meanwhile.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import truecopy
from tests.servers import Database, Server
from truecopy.engines.protocols import Session
from truecopy.transfer.copying import Copying
from truecopy.transfer.ledger import TaskLine
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.snapshot import CopyTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Trap:
    """A table, its rows before the copy, and what happens to them afterwards."""

    columns: str
    rows: tuple[str, ...]
    changes: tuple[str, ...]


TRAPS = {
    "json_compared_as_string": Trap(
        "id INT PRIMARY KEY, doc JSON",
        ("""(1, '{"b": 1, "a": [1.0, 1e2]}'), (2, '[]'), (3, NULL), (4, '"text"')""",),
        ("""UPDATE {t} SET doc = '{"z":1,  "y": {"x": 18446744073709551615}}' WHERE id = 1""",),
    ),
    "binary_padding": Trap(
        "id BINARY(4) PRIMARY KEY, fixed BINARY(8), free VARBINARY(8)",
        (r"('a', 'x', 'x'), ('a\0b', 'x\0', 'x\0'), ('', '', ''), (' ', ' ', ' ')",),
        (
            r"UPDATE {t} SET fixed = 'y ', free = 'y ' WHERE id = 'a\0\0\0'",
            r"DELETE FROM {t} WHERE id = '\0\0\0\0'",
        ),
    ),
    "generated_columns_in_where": Trap(
        "id INT PRIMARY KEY, a INT, twice INT AS (a * 2) STORED, thrice INT AS (a * 3) VIRTUAL",
        ("(1, 1, DEFAULT, DEFAULT), (2, 2, DEFAULT, DEFAULT), (3, NULL, DEFAULT, DEFAULT)",),
        ("UPDATE {t} SET a = a + 10", "DELETE FROM {t} WHERE twice = 24"),
    ),
    "enum_index_or_label": Trap(
        "id INT PRIMARY KEY, e ENUM('2', '1', 'b,c'), s SET('x', 'y')",
        ("(1, '2', 'x'), (2, '1', 'x,y'), (3, 'b,c', ''), (4, NULL, NULL)",),
        ("UPDATE {t} SET e = '2' WHERE id = 2", "UPDATE {t} SET s = 'y' WHERE id = 3"),
    ),
    "unsigned_bigint_keys_above_2_63": Trap(
        "id BIGINT UNSIGNED PRIMARY KEY, v BIGINT UNSIGNED",
        (
            "(0, 0), (9223372036854775807, 1), (9223372036854775808, 2), (18446744073709551615, 18446744073709551615)",
        ),
        (
            "UPDATE {t} SET v = v - 1 WHERE id > 9223372036854775807",
            "DELETE FROM {t} WHERE id = 9223372036854775808",
            "INSERT INTO {t} VALUES (18446744073709551614, 5)",
        ),
    ),
    "null_before_images_in_where": Trap(
        "id INT PRIMARY KEY, a INT, b VARCHAR(10)",
        ("(1, NULL, NULL), (2, NULL, ''), (3, 0, 'NULL')",),
        ("UPDATE {t} SET a = 1 WHERE a IS NULL", "DELETE FROM {t} WHERE b IS NULL"),
    ),
    "keys_at_or_below_0": Trap(
        "id INT PRIMARY KEY, v INT",
        ("(-2147483648, 1), (-1, 2), (0, 3), (1, 4)",),
        ("UPDATE {t} SET v = -v WHERE id <= 0", "DELETE FROM {t} WHERE id = -2147483648"),
    ),
    "zero_dates": Trap(
        "id INT PRIMARY KEY, d DATE, dt DATETIME(3), ts TIMESTAMP NULL, y YEAR, tm TIME(2)",
        (
            "(1, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00', 0, '-838:59:59')",
            "(2, '2024-00-00', '2024-02-00 12:00:00.123', NULL, 2155, '00:00:00.01')",
        ),
        (
            "UPDATE {t} SET d = '0000-00-00', tm = '838:59:58.99' WHERE id = 2",
            "UPDATE {t} SET d = '1000-01-01' WHERE id = 1",
        ),
    ),
    "decimal_18_14": Trap(
        "id DECIMAL(18,14) PRIMARY KEY, v DECIMAL(65,30)",
        (
            "(0, 0), (-0.00000000000001, 1.5), (9999.99999999999999, -99999999999999999999999999999999999)",
        ),
        ("UPDATE {t} SET v = v / 3", "DELETE FROM {t} WHERE id = -0.00000000000001"),
    ),
    "utf8mb3_and_utf8mb4": Trap(
        "id VARCHAR(20) CHARACTER SET utf8mb3 PRIMARY KEY, v VARCHAR(20) CHARACTER SET utf8mb4,"
        " w VARCHAR(20) CHARACTER SET latin1",
        ("('ä', '💡', 'ÿ'), ('ß', 'é', 'é'), ('', '', '')",),
        ("UPDATE {t} SET v = CONCAT(v, '𝄞') WHERE id <> ''", "DELETE FROM {t} WHERE id = 'ß'"),
    ),
    "float_minus_0": Trap(
        "id INT PRIMARY KEY, f FLOAT, d DOUBLE",
        (
            "(1, -0.0, -0.0), (2, 0.1, 0.1), (3, 3.4e38, 1.7976931348623157e308), (4, 1e-45, 5e-324)",
        ),
        ("UPDATE {t} SET f = -0e0, d = -0e0 WHERE id = 2", "UPDATE {t} SET d = d / 3 WHERE id = 3"),
    ),
    "hex_encoded_binary_keys": Trap(
        "id VARBINARY(16) PRIMARY KEY, v INT",
        (r"(x'00', 1), (x'ff00ff', 2), ('0xff', 3), (x'27', 4)",),
        (
            "UPDATE {t} SET v = v + 1 WHERE id = x'ff00ff'",
            "DELETE FROM {t} WHERE id = x'27'",
            "INSERT INTO {t} VALUES ('ff00ff', 9)",
        ),
    ),
    "update_that_changes_the_key": Trap(
        "id INT PRIMARY KEY, v VARCHAR(10) UNIQUE",
        ("(1, 'a'), (2, 'b'), (3, 'c')",),
        (
            "UPDATE {t} SET id = id + 100",
            "UPDATE {t} SET id = 1 WHERE id = 103",
            "UPDATE {t} SET v = NULL WHERE id = 1",
            "UPDATE {t} SET v = 'c' WHERE id = 101",
        ),
    ),
    "stale": Trap(
        "id INT PRIMARY KEY, v INT",
        (", ".join(f"({n}, 0)" for n in range(1, 301)),),
        (),
    ),
}
WHILE_STALE = (
    "UPDATE stale SET v = 1 WHERE id <= 100",  # newer than the rows that wait to be written
    "DELETE FROM stale WHERE id BETWEEN 101 AND 150",
    "DELETE FROM stale WHERE id = 300",  # the largest key
    "INSERT INTO stale VALUES (301, 7), (102, 8)",
)


@dataclass(frozen=True)
class Carried:
    source: Database
    target: Database


@pytest.fixture(scope="module")
def carried(
    spark: SparkSession, mariadb_server: Server, second_mariadb_server: Server
) -> Iterator[Carried]:
    name = f"traps_{secrets.token_hex(4)}"
    source, target = (
        server.create_database(name) for server in (mariadb_server, second_mariadb_server)
    )
    _execute(source, "SET sql_mode = ''", *_filled())
    asked = Settings("traps", source.url, target.url)
    _copy_held_up(asked, source, target)
    source.execute("FLUSH BINARY LOGS")  # the log is another one when the run goes on
    _execute(source, "SET sql_mode = ''", *_changes())
    Transfer(asked).run(until_caught_up=True)
    yield Carried(source, target)
    for database in (source, target):
        database.server.drop_database(name)


def _filled() -> Iterator[str]:
    for name, trap in TRAPS.items():
        yield f"CREATE TABLE {name} ({trap.columns}) CHARACTER SET utf8mb4"
        for rows in trap.rows:
            yield f"INSERT INTO {name} VALUES {rows}"


def _changes() -> Iterator[str]:
    for name, trap in TRAPS.items():
        for change in trap.changes:
            yield change.replace("{t}", name)


def _execute(database: Database, *statements: str) -> None:
    """All in one session."""
    connection = database.connect()
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()


class HeldUp(Transfer):
    """Its chunks are planned, then somebody locks a table of the target: rows can be read, and not be written."""

    def __init__(self, asked: Settings, lock: Callable[[], object]) -> None:
        super().__init__(asked)
        self._lock = lock

    def copying(self, plans: Mapping[str, TablePlan], line: TaskLine) -> Copying:
        lock = self._lock

        class Locked(Copying):
            def _planned(self, source: Session, target: Session) -> list[CopyTask]:
                tasks = super()._planned(source, target)
                lock()
                return tasks

        return Locked(self._settings, plans, line)


def _copy_held_up(asked: Settings, source: Database, target: Database) -> None:
    """Keeps the rows of one table from being written that were read already, and changes them meanwhile."""
    holder = target.connect()
    run = HeldUp(asked, partial(holder.cursor().execute, "LOCK TABLES stale WRITE"))
    with ThreadPoolExecutor(1) as beside:
        copying = beside.submit(run.run, snapshot_only=True)
        try:
            _wait_for_rows_to_write(target)
            _execute(source, *WHILE_STALE)
        finally:
            holder.close()
        copying.result(timeout=120)
    rows = target.execute("SELECT COUNT(*), MAX(v), MAX(id) FROM stale")
    assert rows == [(300, 0, 300)], "what was read before the changes was written after them"


def _wait_for_rows_to_write(target: Database) -> None:
    deadline = time.monotonic() + 60
    waiting = (
        "SELECT 1 FROM information_schema.processlist"
        " WHERE state LIKE 'Waiting for table%' AND info LIKE '%LOAD DATA%`stale`%'"
    )
    while not target.execute(waiting):
        assert time.monotonic() < deadline, "no chunk waits to be written"
        time.sleep(0.1)


def _dump(database: Database, table: str) -> list[tuple[Any, ...]]:
    """Every value to the bit, by the server's own functions."""
    columns = database.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
        " ORDER BY ordinal_position",
        (database.name, table),
    )
    shown = ", ".join(f"HEX(CAST(`{name}` AS BINARY))" for (name,) in columns)
    return sorted(database.execute(f"SELECT {shown} FROM {table}"), key=repr)


@pytest.mark.parametrize("table", TRAPS)
def test_trap(carried: Carried, table: str) -> None:
    assert _dump(carried.target, table) == _dump(carried.source, table)
    report = truecopy.verify(carried.source.url, carried.target.url, tables=(table,))
    assert report.verdict == "equal"


def test_stale_snapshot_row_written_after_the_newer_change(carried: Carried) -> None:
    found = carried.target.execute("SELECT COUNT(*) FROM stale WHERE id <= 100 AND v = 1")
    assert found == [(100,)]


def test_delete_applied_before_the_stale_snapshot_row(carried: Carried) -> None:
    found = carried.target.execute("SELECT id, v FROM stale WHERE id BETWEEN 101 AND 150")
    assert found == [(102, 8)]


def test_max_key_deleted_while_copying(carried: Carried) -> None:
    assert carried.target.execute("SELECT id FROM stale WHERE id >= 300") == [(301,)]
