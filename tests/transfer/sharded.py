"""What the tests of keyspaces share: two tables that are sharded differently, writers, and who should hold what."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.servers import Database, Server
from truecopy.model.keyspace import keyspace_id, parse_key_range
from truecopy.tasks.file import load_task
from truecopy.tasks.legs import transfer_legs
from truecopy.transfer.settings import Settings

ACCOUNTS = (
    "CREATE TABLE account (id INT NOT NULL PRIMARY KEY, code VARCHAR(20) NOT NULL, UNIQUE (code))"
)
ORDERS = (
    "CREATE TABLE orders (id INT NOT NULL PRIMARY KEY, owner BIGINT NOT NULL, note VARCHAR(40))"
)
SHARDING = {
    "account": {"column": "id", "function": "hash"},
    "orders": {"column": "owner", "function": "hash"},
}
TWO = "-80", "80-"
COLUMNS = {"account": "id, code", "orders": "id, owner, note"}

Rows = dict[str, list[tuple[Any, ...]]]


@contextmanager
def shards_of(server: Server) -> Iterator[dict[str, Database]]:
    """Two databases for two shards."""
    name = f"bank_{secrets.token_hex(4)}"
    made = {shard: server.create_database(f"{name}_{place}") for place, shard in enumerate(TWO)}
    yield made
    for database in made.values():
        server.drop_database(database.name)


def is_in(shard: str, number: int) -> bool:
    return parse_key_range(shard).contains(keyspace_id("hash", str(number)))


def make_tables(database: Database) -> None:
    database.execute(ACCOUNTS)
    database.execute(ORDERS)


def fill(database: Database, shard: str = "-", rows: int = 200) -> None:
    """Those of the rows that belong to a shard."""
    make_tables(database)
    numbers = range(1, rows + 1)
    accounts = [(n, f"c{n}") for n in numbers if is_in(shard, n)]
    database.executemany("INSERT INTO account VALUES (%s, %s)", accounts)
    orders = [(n, n % 50, f"note {n}") for n in numbers if is_in(shard, n % 50)]
    database.executemany("INSERT INTO orders VALUES (%s, %s, %s)", orders)


def write(database: Database, shard: str = "-", seed: int = 1, times: int = 120) -> None:
    """Changes of all kinds to a shard's rows, by which some get other owners in the same shard."""
    chance = random.Random(seed)
    here = [n for n in range(1, 400) if is_in(shard, n)]
    for _ in range(times):
        one, other = chance.choice(here), chance.choice(here)
        match chance.randrange(5):
            case 0:
                database.execute("DELETE FROM orders WHERE id = %s", (one,))
            case 1:
                database.execute("UPDATE orders SET owner = %s WHERE id = %s", (other, one))
            case 2:
                database.execute(
                    "INSERT INTO orders VALUES (%s, %s, 'new') ON DUPLICATE KEY UPDATE note = 'again'",
                    (1000 + one, other),  # a key of this shard alone: shards do not share keys
                )
            case 3:
                database.execute("UPDATE account SET code = %s WHERE id = %s", (f"n{one}", one))
            case _:
                database.execute("DELETE FROM account WHERE id = %s", (other,))


def held(database: Database, shard: str = "-") -> Rows:
    """The rows of a database that belong to a shard, read without any help of the product."""
    found = {}
    for table, columns in COLUMNS.items():
        names = columns.split(", ")
        place = names.index(SHARDING[table]["column"])
        rows = database.execute(f"SELECT {columns} FROM {table} ORDER BY 1")
        found[table] = [tuple(row) for row in rows if is_in(shard, row[place])]
    return found


def together(databases: Sequence[Database]) -> Rows:
    """The rows of several databases, each of which must be in one of them only."""
    found: Rows = {table: [] for table in COLUMNS}
    for database in databases:
        for table, rows in held(database).items():
            found[table] += rows
    return {table: sorted(rows) for table, rows in found.items()}


def keyspace(shards: Mapping[str, Database]) -> dict[str, Any]:
    """As one end of a task."""
    return {
        "keyspace": "bank",
        "shards": {name: {"servers": [database.url]} for name, database in shards.items()},
        "sharding": SHARDING,
    }


def keyspace_file(folder: Path, shards: Mapping[str, Database], serving: Sequence[str]) -> Path:
    """The file that streams of the keyspace read, put into its place in one step."""
    document = keyspace(shards)
    for name, shard in document["shards"].items():
        shard["serving"] = name in serving
    draft = folder / "bank.new"
    draft.write_text(yaml.safe_dump(document))
    return draft.rename(folder / "bank.yaml")


def task_file(folder: Path, source: object, target: object, **more: Any) -> Path:
    path = folder / "task.yaml"
    document = {"task": "reshard", "source": source, "target": target, **more}
    path.write_text(yaml.safe_dump(document))
    return path


def legs_of(path: Path) -> tuple[Settings, ...]:
    return transfer_legs(load_task(path))
