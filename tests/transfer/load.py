"""A random write load on a source: inserts, updates, deletes, key changes, swaps of unique values.

Keys come back: those that were deleted are inserted again, and others' rows take them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from tests.servers import Database
from tests.transfer.beside import beside

TABLE = """CREATE TABLE items (
    id INT NOT NULL PRIMARY KEY, code VARCHAR(20) NOT NULL UNIQUE, name VARCHAR(40), price DECIMAL(10,2),
    made TIMESTAMP NULL, note TEXT)"""


def fill(database: Database, rows: int) -> None:
    """Some rows to start from; written so that MariaDB and PostgreSQL both understand it."""
    database.execute(TABLE)
    database.executemany(
        "INSERT INTO items VALUES (%s, %s, %s, %s, %s, %s)",
        [
            (
                n,
                f"c{n}",
                f"name {n}",
                n / 7,
                "2024-01-31 12:00:00",
                None if n % 3 else f"note\t{n}\\",
            )
            for n in range(1, rows + 1)
        ],
    )


@contextmanager
def writing(
    database: Database,
    rows: int,
    seed: int = 1,
    pause: float = 0.005,
    note: Callable[[Any], object] = lambda _: None,
) -> Iterator[None]:
    """Writes until the block ends; after each transaction, its cursor is noted."""

    def write(stop: threading.Event) -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            chance, new = random.Random(seed), rows
            while not stop.is_set():
                new += 1
                _write_once(cursor, chance, new)
                note(cursor)
                time.sleep(pause)

    with beside(write):
        yield


def _write_once(cursor: Any, chance: random.Random, new: int) -> None:
    cursor.execute("BEGIN")
    one, other = chance.randrange(1, new), chance.randrange(1, new)
    match chance.randrange(7):
        case 0:
            cursor.execute("DELETE FROM items WHERE id = %s", (one,))
        case 1:
            cursor.execute("UPDATE items SET price = price + 1 WHERE id IN (%s, %s)", (one, other))
        case 2:
            _move(cursor, *chance.choice([(one, -one), (-one, one)]))
        case 3:
            _move(cursor, one, other)
        case 4:
            cursor.execute("DELETE FROM items WHERE id = %s", (one,))
            _insert(cursor, one, new)
        case 5:
            _swap_codes(cursor, one, other)
        case _:
            _insert(cursor, new, new)
    cursor.execute("ROLLBACK" if chance.random() < 0.05 else "COMMIT")


def _insert(cursor: Any, id_: int, new: int) -> None:
    row = (id_, f"c{new}", "new", 1, "2025-02-28 00:00:00", "")
    cursor.execute("INSERT INTO items VALUES (%s, %s, %s, %s, %s, %s)", row)


def _move(cursor: Any, one: int, other: int) -> None:
    """A row takes the key of another one, which goes."""
    if one != other:
        cursor.execute("DELETE FROM items WHERE id = %s", (other,))
        cursor.execute("UPDATE items SET id = %s WHERE id = %s", (other, one))


def _swap_codes(cursor: Any, one: int, other: int) -> None:
    cursor.execute("SELECT id, code FROM items WHERE id IN (%s, %s)", (one, other))
    found = cursor.fetchall()
    if len(found) == 2:
        (a, code_a), (b, code_b) = found
        cursor.execute("UPDATE items SET code = 'swap' WHERE id = %s", (a,))
        cursor.execute("UPDATE items SET code = %s WHERE id = %s", (code_a, b))
        cursor.execute("UPDATE items SET code = %s WHERE id = %s", (code_b, a))
