"""A browser without a window, and a small shop that is moved while it looks on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.server.support import Caller, wait_until

PATIENCE = 180_000
"""Milliseconds to wait for what a slow machine does in its own time."""
ROWS = 240
SHOP = """\
task: shop
source: sqlite:///{folder}/source.db
target: sqlite:///{folder}/target.db
chunks: {{rows: 20}}
throttle: {{rate: {rate}}}
spark: {{master: "local[1]"}}
verify:
  inline: false
  continuous: {{validate-interval: 2s, row-error-delay: 1s, initial-delay: 1s}}
cutover: {{lock: none, reverse: false}}
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's own Chromium."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    assert program is not None, "the tests of pages need Chromium: make servers installs it"
    with sync_playwright() as playwright:
        # Containers have no sandbox, and often no memory that is shared.
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


def make_goods(folder: Path, rows: int = ROWS) -> None:
    """A source with a table of goods, and an empty target."""
    goods = [(n, f"Lamp No. {n}", f"{n}.50", f"2026-0{n % 9 + 1}-11") for n in range(1, rows + 1)]
    do(
        folder / "source.db",
        "CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price DECIMAL(10,2), day DATE)",
    )
    with closing(sqlite3.connect(folder / "source.db")) as source, source:
        source.executemany("INSERT INTO goods VALUES (?, ?, ?, ?)", goods)
    sqlite3.connect(folder / "target.db").close()


def do(file: Path, statement: str) -> list[tuple[object, ...]]:
    """Has a file of SQLite do something, beside whoever else uses it."""
    with closing(sqlite3.connect(file, timeout=60)) as connection, connection:
        return connection.execute(statement).fetchall()


def spoil_a_change(folder: Path, key: int, right: str, wrong: str, ask: Caller) -> None:
    """A change of the source that arrives, and is spoiled on the target before validation looks at it.

    Now and then validation is faster, and then has seen the row right: so it is tried again.
    """

    def arrived() -> bool:
        return do(folder / "target.db", f"SELECT name FROM goods WHERE id = {key}") == [(right,)]

    def found() -> bool:
        return bool(ask("GET", "/api/tasks/shop/errors?status=new").document["counts"]["new"])

    for attempt in range(20):
        price = f"price = {attempt + 1}"
        do(folder / "source.db", f"UPDATE goods SET name = '{right}', {price} WHERE id = {key}")
        wait_until(arrived, 300)
        do(folder / "target.db", f"UPDATE goods SET name = '{wrong}' WHERE id = {key}")
        with suppress(AssertionError):
            wait_until(found, 30)
            return
    raise AssertionError("validation saw the row right each time")
