"""The shop of the demo: realistic rows, made the same way every time, and damage to its copy."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

CUSTOMERS, ORDERS = 5_000, 20_000

_SCHEMA = """
CREATE TABLE customers (
    id INTEGER PRIMARY KEY, email VARCHAR(120) NOT NULL UNIQUE, name TEXT NOT NULL, city TEXT,
    note TEXT, balance DECIMAL(12,2) NOT NULL, created_at DATETIME NOT NULL);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id),
    status VARCHAR(20) NOT NULL, total DECIMAL(12,2) NOT NULL, placed_at DATETIME NOT NULL);
CREATE TABLE order_lines (
    id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES orders (id), sku VARCHAR(20) NOT NULL,
    quantity INTEGER NOT NULL, price DECIMAL(12,2) NOT NULL);
"""
_FIRST = [
    "Ada",
    "Björn",
    "Chloé",
    "Dmitri",
    "Élise",
    "Fatima",
    "Grace",
    "Hiroshi",
    "Ines",
    "João",
    "Kwame",
    "Łucja",
    "Mia",
    "Noor",
    "Olga",
    "Priya",
    "Søren",
]
_LAST = [
    "Andersson",
    "Brown",
    "Chen",
    "Diaz",
    "Eriksen",
    "Fischer",
    "García",
    "Haddad",
    "Ivanova",
    "Jansen",
    "Kim",
    "Lefèvre",
    "Müller",
    "Novák",
]
_CITIES = [
    "Malmö",
    "Kraków",
    "Porto",
    "Nairobi",
    "Kyoto",
    "São Paulo",
    "Lyon",
    "Wrocław",
    "Tromsø",
    None,
]
_NOTES = ["", "", "", "prefers e-mail", "gift wrap 🎁", "call before delivery", None]
_STATES = ["placed", "paid", "shipped", "delivered", "returned"]


@dataclass(frozen=True)
class Damage:
    """One planted damage: what was done, and what must be found."""

    story: str
    table: str
    key: str
    kind: str


def create(path: Path) -> int:
    """Makes the shop; gives its number of rows."""
    path.unlink(missing_ok=True)
    dice = random.Random(20)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_SCHEMA)
        connection.executemany(
            "INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?, ?)", _customers(dice)
        )
        orders = list(_orders(dice))
        connection.executemany(
            "INSERT INTO orders VALUES (?, ?, ?, ?, ?)", [order for order, _ in orders]
        )
        lines = [line for _, lines in orders for line in lines]
        connection.executemany("INSERT INTO order_lines VALUES (?, ?, ?, ?, ?)", lines)
    return CUSTOMERS + ORDERS + len(lines)


def damage(path: Path) -> list[Damage]:
    """Damages the copy; gives what was done."""
    with closing(sqlite3.connect(path)) as connection, connection:
        run = connection.execute
        ((first, a), (second, b)) = run(
            "SELECT id, balance FROM customers WHERE id IN (1204, 3310) ORDER BY id"
        )
        run("UPDATE customers SET balance = ? WHERE id = ?", (b, first))
        run("UPDATE customers SET balance = ? WHERE id = ?", (a, second))
        run("UPDATE customers SET name = name || ' ' WHERE id = 2718")
        (blank,) = run("SELECT id FROM customers WHERE note = '' AND id > 4000 LIMIT 1").fetchone()
        run("UPDATE customers SET note = NULL WHERE id = ?", (blank,))
        run("UPDATE orders SET placed_at = datetime(placed_at, '-1 second') WHERE id = 15001")
        run("DELETE FROM order_lines WHERE id = 7770")
        run(
            "INSERT INTO orders SELECT 20001, customer_id, status, total, placed_at FROM orders WHERE id = 20000"
        )
    return [
        Damage(
            f"two customers exchanged their balances ({a:.2f} and {b:.2f})",
            "customers",
            str(first),
            "differs",
        ),
        Damage("(the other of the two)", "customers", str(second), "differs"),
        Damage("a space at the end of a name", "customers", "2718", "differs"),
        Damage("NULL in place of an empty note", "customers", str(blank), "differs"),
        Damage("one order placed a second earlier", "orders", "15001", "differs"),
        Damage("one order line is missing", "order_lines", "7770", "missing"),
        Damage("one order came twice, under a new number", "orders", "20001", "extra"),
    ]


def naive_checks(source: Path, target: Path) -> Iterator[str]:
    """What a quick look at totals would have said."""
    questions = {
        "customers, rows": "SELECT COUNT(*) FROM customers",
        "customers, sum of balances": "SELECT printf('%.2f', SUM(balance)) FROM customers",
        "customers, distinct names (trimmed)": "SELECT COUNT(DISTINCT TRIM(name)) FROM customers",
    }
    for name, question in questions.items():
        answers = [_ask(path, question) for path in (source, target)]
        yield f"{name}: {answers[0]} and {answers[1]}: " + (
            "the same" if answers[0] == answers[1] else "not the same"
        )


def _ask(path: Path, question: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchone()[0]


def _customers(dice: random.Random) -> Iterator[tuple[object, ...]]:
    start = datetime(2019, 3, 1, 8, 0, 0)
    for number in range(1, CUSTOMERS + 1):
        first, last = dice.choice(_FIRST), dice.choice(_LAST)
        joined = start + timedelta(seconds=dice.randrange(5 * 365 * 86400))
        yield (
            number,
            f"{first}.{last}.{number}@example.com".lower(),
            f"{first} {last}",
            dice.choice(_CITIES),
            dice.choice(_NOTES),
            dice.randrange(-5_000, 500_000) / 100,
            joined.isoformat(sep=" "),
        )


def _orders(dice: random.Random) -> Iterator[tuple[tuple[object, ...], list[tuple[object, ...]]]]:
    start = datetime(2021, 1, 1)
    for number in range(1, ORDERS + 1):
        lines: list[tuple[object, ...]] = []
        total = 0
        for _ in range(dice.choice((2, 2, 3, 4))):
            quantity, cents = dice.randrange(1, 5), dice.randrange(199, 25_000)
            total += quantity * cents
            sku = f"SKU-{dice.randrange(10_000):05d}"
            lines.append((None, number, sku, quantity, cents / 100))
        placed = start + timedelta(seconds=number * 4217 + dice.randrange(4000))
        customer = dice.randrange(1, CUSTOMERS + 1)
        yield (
            (number, customer, dice.choice(_STATES), total / 100, placed.isoformat(sep=" ")),
            lines,
        )
