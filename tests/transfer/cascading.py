"""What the tests of `cascades: target` share: tables that foreign keys tie together, and who writes to them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql

from tests.servers import Database
from tests.transfer.beside import beside

TABLES = {
    "parents": "CREATE TABLE parents (id INT PRIMARY KEY, code VARCHAR(20) NOT NULL UNIQUE, total INT)",
    "children": (
        "CREATE TABLE children (id INT PRIMARY KEY, parent INT, body VARCHAR(40),"
        " FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    "toys": (
        "CREATE TABLE toys (id INT PRIMARY KEY, child INT, code VARCHAR(20),"
        " FOREIGN KEY (child) REFERENCES children (id) ON DELETE SET NULL ON UPDATE CASCADE,"
        " FOREIGN KEY (code) REFERENCES parents (code) ON DELETE SET NULL ON UPDATE CASCADE)"
    ),
    "tree": (
        "CREATE TABLE tree (id INT PRIMARY KEY, up INT,"
        " FOREIGN KEY (up) REFERENCES tree (id) ON DELETE CASCADE)"
    ),
    "alone": "CREATE TABLE alone (id INT PRIMARY KEY, body VARCHAR(40))",
}
ROWS = 600


def fill(database: Database) -> None:
    for table in TABLES.values():
        database.execute(table)
    numbers = range(1, ROWS + 1)
    database.executemany(
        "INSERT INTO parents VALUES (%s, %s, %s)", [(n, f"c{n}", n % 97) for n in numbers]
    )
    database.executemany(
        "INSERT INTO children VALUES (%s, %s, %s)", [(n, 1 + n // 3, f"body {n}") for n in numbers]
    )
    database.executemany(
        "INSERT INTO toys VALUES (%s, %s, %s)", [(n, n, f"c{1 + n // 2}") for n in numbers]
    )
    database.executemany("INSERT INTO tree VALUES (%s, %s)", [(n, n // 3 or None) for n in numbers])
    database.executemany("INSERT INTO alone VALUES (%s, %s)", [(n, f"b{n}") for n in numbers])


def dump(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """All rows, without anything of ours between."""
    return {table: sorted(database.execute(f"SELECT * FROM {table}"), key=str) for table in TABLES}


@contextmanager
def writing(database: Database, seed: int = 1) -> Iterator[None]:
    """Writes at random until the block ends; what the source's foreign keys refuse is rolled back."""

    def write(stop: threading.Event) -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            chance, new = random.Random(seed), 10 * ROWS
            while not stop.is_set():
                new += 1
                cursor.execute("BEGIN")
                try:
                    for _ in range(chance.randrange(1, 4)):
                        write_once(cursor, chance, new)
                except pymysql.IntegrityError:
                    cursor.execute("ROLLBACK")
                cursor.execute("ROLLBACK" if chance.random() < 0.05 else "COMMIT")
                time.sleep(0.005)

    with beside(write):
        yield


def write_once(cursor: Any, chance: random.Random, new: int) -> None:
    one, other = chance.randrange(1, ROWS), chance.randrange(1, ROWS)
    match chance.randrange(13):
        case 0:
            cursor.execute("DELETE FROM parents WHERE id IN (%s, %s)", (one, other))
        case 1:
            cursor.execute("UPDATE parents SET id = %s WHERE id = %s", (new, one))
        case 2:
            cursor.execute("UPDATE parents SET code = %s WHERE id = %s", (f"n{new}", one))
        case 3:
            cursor.execute("UPDATE parents SET total = total + 1 WHERE id < %s", (one,))
        case 4:
            cursor.execute("REPLACE INTO parents VALUES (%s, %s, 0)", (one, f"r{new}"))
        case 5:
            # Gone and there again: the parent is as it was, and its children are not.
            cursor.execute("SELECT code FROM parents WHERE id = %s", (one,))
            for (code,) in cursor.fetchall():
                cursor.execute("DELETE FROM parents WHERE id = %s", (one,))
                cursor.execute("INSERT INTO parents VALUES (%s, %s, 1)", (one, code))
                cursor.execute("INSERT IGNORE INTO children VALUES (%s, %s, 'again')", (new, one))
        case 6:
            cursor.execute("UPDATE children SET id = %s WHERE id = %s", (-new, one))
        case 7:
            cursor.execute("DELETE FROM children WHERE id = %s", (one,))
        case 8:
            cursor.execute("INSERT IGNORE INTO children VALUES (%s, %s, 'new')", (one, other))
        case 9:
            cursor.execute("INSERT IGNORE INTO toys VALUES (%s, %s, NULL)", (new, one))
        case 10:
            cursor.execute("DELETE FROM tree WHERE id = %s", (one,))
            cursor.execute("INSERT IGNORE INTO tree VALUES (%s, %s)", (one, one // 3 or None))
        case 11:
            cursor.execute("SET foreign_key_checks = 0")
            cursor.execute("DELETE FROM parents WHERE id = %s", (one,))
            cursor.execute("SET foreign_key_checks = 1")
        case _:
            cursor.execute("UPDATE alone SET body = %s WHERE id = %s", (f"b{new}", one))
