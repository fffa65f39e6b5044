"""Twenty kinds of damage to a row on the target, written so that MariaDB and PostgreSQL both understand them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.servers import Database

TABLE = """CREATE TABLE wide (
    id INT NOT NULL PRIMARY KEY, n INT, big BIGINT, amount DECIMAL(14,4), ratio DOUBLE, name VARCHAR(60), note TEXT,
    raw VARBINARY(20), doc JSON, seen DATETIME(6), made DATETIME, day DATE, flag TINYINT, a INT, b INT, empty_one TEXT,
    gone VARCHAR(20))"""
_COLUMNS = 17
_INSERT = f"INSERT INTO wide VALUES ({', '.join(['%s'] * _COLUMNS)})"


def row_of(number: int) -> tuple[object, ...]:
    return (
        number,
        number,
        (1 << 53) + number,
        f"{number}.1234",
        number / 7,
        f"Name {number}",
        f"a note of row {number}, ünïcödé",
        bytes([number % 256, 0, 255]),
        f'{{"a": {number}, "b": [1, 2]}}',
        "2024-02-29 12:34:56.123456",
        "2024-01-31 01:02:03",
        "1999-12-31",
        number % 2,
        number,
        number + 1,
        "",
        None,
    )


def insert(database: Database, numbers: range) -> None:
    database.executemany(_INSERT, [row_of(number) for number in numbers])


@dataclass(frozen=True)
class Damage:
    """What is done to a row on the target, once its change has arrived.

    Attributes:
        columns: Those that an error should name.
        source: What happens to the row on the source before; an update that leaves most of it as it is.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    spoil: Callable[[Database, int], None]
    source: str = "UPDATE wide SET n = n + 1000 WHERE id = %s"


def _set(what: str, *values: object) -> Callable[[Database, int], None]:
    def spoil(target: Database, number: int) -> None:
        target.execute(f"UPDATE wide SET {what} WHERE id = %s", (*values, number))

    return spoil


def _delete(target: Database, number: int) -> None:
    target.execute("DELETE FROM wide WHERE id = %s", (number,))


def _insert(target: Database, number: int) -> None:
    target.executemany(_INSERT, [row_of(number)])


def _differs(name: str, column: str, what: str, *values: object) -> Damage:
    return Damage(name, "differs", (column,), _set(what, *values))


KINDS = (
    Damage("row lost", "missing", (), _delete),
    Damage("row not deleted", "extra", (), _insert, "DELETE FROM wide WHERE id = %s"),
    Damage("old key left", "extra", (), _insert, "UPDATE wide SET id = -id WHERE id = %s"),
    _differs("old value", "n", "n = n - 1000"),
    _differs("number off by one", "n", "n = n + 1"),
    _differs("number beyond a double", "big", "big = big + 1"),
    _differs("last digit", "amount", "amount = amount + 0.0001"),
    _differs("float by little", "ratio", "ratio = ratio + 0.000000001"),
    _differs("case of a letter", "name", "name = UPPER(name)"),
    _differs("space at the end", "name", "name = CONCAT(name, ' ')"),
    _differs("cut short", "note", "note = SUBSTRING(note, 1, 10)"),
    _differs("letter that looks alike", "note", "note = REPLACE(note, 'a', %s)", "\u0430"),
    _differs("NULL for a value", "note", "note = NULL"),
    _differs("value for NULL", "gone", "gone = ''"),
    _differs("NULL for nothing", "empty_one", "empty_one = NULL"),
    _differs("a byte", "raw", "raw = %s", b"\x00\x01\xff"),
    _differs("inside a document", "doc", "doc = %s", '{"a": -1, "b": [1, 2]}'),
    _differs("a microsecond", "seen", "seen = '2024-02-29 12:34:56.123457'"),
    _differs("a day", "day", "day = '2000-01-01'"),
    Damage("two columns swapped", "differs", ("a", "b"), _set("a = id + 1, b = id")),
)
