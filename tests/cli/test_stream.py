"""`truecopy stream` and `truecopy token now` as a user runs them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.program import Ended, start, truecopy
from tests.servers import Database


@pytest.fixture
def shop(logged_db: Database) -> Database:
    logged_db.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(8,2), weight DOUBLE)"
    )
    logged_db.execute("INSERT INTO orders VALUES (1, 'Ann', 12.5, 0.1), (2, NULL, 3, 2e30)")
    logged_db.execute("UPDATE orders SET price = 13 WHERE id = 1")
    logged_db.execute("DELETE FROM orders WHERE id = 2")
    return logged_db


def lines(ended: Ended) -> list[dict[str, Any]]:
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def test_json_lines(shop: Database) -> None:
    found = lines(truecopy("stream", shop.url, "--from", "start", "--until", "current", "--json"))
    assert [change["kind"] for change in found] == ["insert", "insert", "update", "delete"]
    first, second, update, _ = found
    assert first["table"] == f"{shop.name}.orders"
    assert first["key"] == {"id": "1"}
    assert first["before"] is None
    assert first["after"] == {"id": "1", "name": "Ann", "price": "12.50", "weight": "0.1"}
    assert second["after"]["name"] is None
    assert update["before"]["price"] == "12.50"
    assert update["after"]["price"] == "13.00"
    assert first["txn"] == second["txn"] != update["txn"]
    assert (first["seq"], second["seq"]) == (0, 1)
    for change in found:
        assert change["token"].startswith("tc1.")
        assert change["committed_at"].endswith("Z")


def test_from_and_until_a_token(shop: Database) -> None:
    everything = lines(
        truecopy("stream", shop.url, "--from", "start", "--until", "current", "--json")
    )
    token = everything[1]["token"]
    later = lines(truecopy("stream", shop.url, "--from", token, "--until", "current", "--json"))
    assert [change["kind"] for change in later] == ["update", "delete"]
    earlier = lines(truecopy("stream", shop.url, "--from", "start", "--until", token, "--json"))
    assert [change["kind"] for change in earlier] == ["insert", "insert"]


def test_tokens_of_now_are_ordered(shop: Database) -> None:
    before = truecopy("token", "now", shop.url).out.strip()
    shop.execute("INSERT INTO orders VALUES (9, 'Zoe', 1, 1)")
    after = truecopy("token", "now", shop.url).out.strip()
    assert truecopy("token", "compare", before, after).out.strip() == "OLDER"
    found = lines(truecopy("stream", shop.url, "--from", before, "--until", after, "--json"))
    assert [change["key"] for change in found] == [{"id": "9"}]


def test_a_readable_log(shop: Database) -> None:
    ended = truecopy("stream", shop.url, "--from", "start", "--until", "current")
    assert ended.code == 0, ended.err
    assert "insert" in ended.out
    assert "price: 12.50 → 13.00" in ended.out


def test_keys_only_and_tables(shop: Database) -> None:
    shop.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    shop.execute("INSERT INTO other VALUES (5)")
    found = lines(
        truecopy(
            *("stream", shop.url, "--from", "start", "--until", "current", "--json"),
            *("--tables", "oth*", "--keys-only"),
        )
    )
    assert [(change["key"], change["after"]) for change in found] == [({"id": "5"}, None)]


@pytest.mark.long
def test_parquet_goes_on_where_it_stopped(shop: Database, tmp_path: Path) -> None:
    folder = tmp_path / "changes"
    command = (
        "stream",
        shop.url,
        "--from",
        "start",
        "--until",
        "current",
        "--parquet",
        str(folder),
    )
    assert truecopy(*command).code == 0
    shop.execute("INSERT INTO orders VALUES (10, 'Kim', 1, 1)")
    assert truecopy(*command).code == 0
    files = [str(file) for file in folder.rglob("*.parquet")]
    rows = ds.dataset(files).to_table().to_pylist()
    assert sorted(row["kind"] for row in rows) == ["delete", "insert", "insert", "insert", "update"]


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_says_how_to_go_on(shop: Database, how: signal.Signals) -> None:
    process = start("stream", shop.url, "--from", "start", "--json")
    assert process.stdout is not None
    for _ in range(4):
        json.loads(process.stdout.readline())
    time.sleep(1)
    process.send_signal(how)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 3
    token = errors.split("--from ")[1].split()[0]
    shop.execute("INSERT INTO orders VALUES (11, 'Lee', 1, 1)")
    later = lines(truecopy("stream", shop.url, "--from", token, "--until", "current", "--json"))
    assert [change["key"] for change in later] == [{"id": "11"}]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--from", "yesterday"), 2, "yesterday"),
        (("--from", "tc1.garbage"), 2, "token"),
        (("--key-range", "zz"), 2, "key range"),
        (("--set", "slots=1"), 2, "NAME=VALUE"),
    ],
)
def test_wrong_input_is_one_line(
    shop: Database, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = truecopy("stream", shop.url, "--until", "current", *arguments)
    assert ended.code == code
    assert len(ended.err.strip().splitlines()) == 1, ended.err
    assert said in ended.err
    assert shop.server.password not in ended.err


def test_missing_rights_are_named_with_the_grant(shop: Database) -> None:
    shop.execute(
        f"CREATE USER weak IDENTIFIED BY 'w-secret'; GRANT SELECT ON {shop.name}.* TO weak"
    )
    try:
        url = f"mariadb://weak:w-secret@{shop.server.host}:{shop.server.port}/{shop.name}"
        ended = truecopy("stream", url, "--from", "start", "--until", "current")
    finally:
        shop.execute("DROP USER weak")
    assert ended.code == 3
    assert len(ended.err.strip().splitlines()) == 1, ended.err
    assert "GRANT REPLICATION SLAVE ON *.* TO 'weak'@'%'" in ended.err
    assert "w-secret" not in ended.err


def test_sqlite_streams_through_triggers_that_can_be_dropped(tmp_path: Path) -> None:
    import sqlite3

    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)")
    url = f"sqlite:///{file}"
    assert truecopy("stream", url, "--from", "current", "--until", "current").code == 0
    with sqlite3.connect(file) as connection:
        connection.execute("INSERT INTO items VALUES (1, 'a')")
        connection.execute("INSERT OR REPLACE INTO items VALUES (1, 'b')")
    found = lines(truecopy("stream", url, "--from", "start", "--until", "current", "--json"))
    assert [change["kind"] for change in found][-2:] == ["delete", "insert"]
    assert truecopy("stream", url, "--drop").code == 0
    with sqlite3.connect(file) as connection:
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert not [name for (name,) in names if "truecopy" in name]
