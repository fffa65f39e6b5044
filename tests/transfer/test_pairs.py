"""From before the first row is read until the cutover the source is written to, for every pair of ends."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import truecopy
from tests.servers import Database
from tests.transfer.cutting import cut_over
from tests.transfer.lakes import rows, url
from truecopy.transfer.cutover.settings import COMMAND, Commands, How
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    "parents": "CREATE TABLE parents (id INT NOT NULL PRIMARY KEY, code VARCHAR(20) NOT NULL UNIQUE, total INT)",
    "children": (
        "CREATE TABLE children (id INT NOT NULL PRIMARY KEY, parent INT NOT NULL, body VARCHAR(200),"
        " FOREIGN KEY (parent) REFERENCES parents (id))"
    ),
}
ROWS = 2000
Rows = dict[str, list[tuple[Any, ...]]]


class Application:
    """Writes to a source at random until it is told to stop, by a file: it answers with another one."""

    def __init__(self, connect: Callable[[], Any], folder: Path, mark: str) -> None:
        self._connect = connect
        self._mark = mark
        self._stop, self._stopped = folder / "stop", folder / "stopped"
        self._failures: list[BaseException] = []
        self.written = 0

    @property
    def hold(self) -> str:
        """The command that keeps it from writing."""
        return f"touch {self._stop}; while [ ! -e {self._stopped} ]; do sleep 0.02; done"

    def fill(self) -> None:
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            for table in TABLES.values():
                cursor.execute(table)
            numbers = range(1, ROWS + 1)
            parents = [(n, f"c{n}", n % 97) for n in numbers]
            cursor.executemany(self._sql("INSERT INTO parents VALUES (?, ?, ?)"), parents)
            children = [(n, 1 + n // 3, f"body {n}") for n in numbers]
            cursor.executemany(self._sql("INSERT INTO children VALUES (?, ?, ?)"), children)
            connection.commit()

    @contextmanager
    def writing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self._stop.touch()
            thread.join()
        assert not self._failures, self._failures

    def _sql(self, statement: str) -> str:
        return statement.replace("?", self._mark)

    def _write(self) -> None:
        try:
            with closing(self._connect()) as connection:
                chance, cursor = random.Random(5), connection.cursor()
                while not self._stop.exists():
                    self._write_once(cursor, chance, ROWS + 1 + self.written)
                    connection.rollback() if chance.random() < 0.05 else connection.commit()
                    self.written += 1
                    time.sleep(0.005)
            self._stopped.touch()
        except BaseException as error:  # noqa: BLE001 - told to the test
            self._failures.append(error)

    def _write_once(self, cursor: Any, chance: random.Random, new: int) -> None:
        def run(statement: str, *values: object) -> None:
            cursor.execute(self._sql(statement), values)

        def move(table: str, one: int, other: int) -> None:
            """A row takes the key of another one, which goes: so keys come back, and with other rows."""
            if one != other:
                run(f"DELETE FROM {table} WHERE id = ?", other)
                run(f"UPDATE {table} SET id = ? WHERE id = ?", other, one)

        one, other = chance.randrange(1, new), chance.randrange(1, new)
        match chance.randrange(9):
            case 0:
                run("DELETE FROM children WHERE parent = ?", one)
                run("DELETE FROM parents WHERE id = ?", one)
            case 1:
                run("UPDATE parents SET total = total + 1 WHERE id IN (?, ?)", one, one + 1)
            case 2:
                move("children", *chance.choice([(one, -one), (-one, one), (one, other)]))
            case 3:
                run("UPDATE children SET body = ? WHERE parent = ?", f"b{new}", one)
            case 4:
                self._swap_codes(cursor, one, one + 1)
            case 5:
                run("DELETE FROM children WHERE parent IN (?, ?)", one, other)
                move("parents", one, other)
            case 6:
                run("DELETE FROM children WHERE parent = ?", one)
                run("DELETE FROM parents WHERE id = ?", one)
                run("INSERT INTO parents VALUES (?, ?, ?)", one, f"again {new}", 1)
            case _:
                run("INSERT INTO parents VALUES (?, ?, ?)", new, f"c{new}", 0)
                run("INSERT INTO children VALUES (?, ?, ?)", new, new, "of a new one")

    def _swap_codes(self, cursor: Any, one: int, other: int) -> None:
        cursor.execute(self._sql("SELECT id, code FROM parents WHERE id IN (?, ?)"), (one, other))
        found = cursor.fetchall()
        if len(found) == 2:
            (a, code_a), (b, code_b) = found
            change = self._sql("UPDATE parents SET code = ? WHERE id = ?")
            for code, id_ in (("swap", a), (code_a, b), (code_b, a)):
                cursor.execute(change, (code, id_))


def of_database(database: Database) -> Rows:
    return {table: sorted(database.execute(f"SELECT * FROM {table}")) for table in TABLES}


def of_file(connect: Callable[[], Any]) -> Rows:
    with closing(connect()) as connection:
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall())
            for table in TABLES
        }


def transfer(asked: Settings, app: Application) -> None:
    """Copies, replicates and cuts over while the application writes."""
    app.fill()
    with app.writing():
        Transfer(asked).run(until_caught_up=True)
        Transfer(asked).run(until_caught_up=True)
        commands = Commands(hold=app.hold, release="true", switch="true")
        how = How(lock=COMMAND, commands=commands, max_lag=30.0, reverse=False)
        report = cut_over(asked, how)
        assert report.state == "switched", report.reason
    assert app.written > 50
    proof = truecopy.verify(asked.source, asked.target, tables=tuple(TABLES))
    assert proof.verdict == "equal"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("mariadb_db", "second_mariadb_db"),
        ("mariadb_db", "postgres_db"),
        ("postgres_db", "mariadb_db"),
    ],
)
def test_servers(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, source: str, target: str
) -> None:
    old: Database = request.getfixturevalue(source)
    new: Database = request.getfixturevalue(target)

    def connect() -> Any:
        connection = old.connect()
        if source == "mariadb_db":
            connection.autocommit(False)
        else:
            connection.autocommit = False
        return connection

    asked = Settings("pair", old.url, new.url, delivery="exactly-once", chunk_rows=500)
    transfer(asked, Application(connect, tmp_path, "%s"))
    assert of_database(new) == of_database(old)


@pytest.mark.slow
def test_sqlite_to_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    def connect() -> Any:
        return sqlite3.connect(tmp_path / "old.db", timeout=30)

    duckdb.connect(tmp_path / "new").close()
    asked = Settings(
        "pair", f"sqlite:///{tmp_path}/old.db", f"duckdb:///{tmp_path}/new", chunk_rows=500
    )
    transfer(asked, Application(connect, tmp_path, "?"))
    assert of_file(lambda: duckdb.connect(tmp_path / "new")) == of_file(connect)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_mariadb_to_a_lake(
    spark: SparkSession, mariadb_db: Database, tmp_path: Path, form: str
) -> None:
    def connect() -> Any:
        connection = mariadb_db.connect()
        connection.autocommit(False)
        return connection

    lake = tmp_path / "lake"
    lake.mkdir()
    asked = Settings("pair", mariadb_db.url, url(lake, form), consistency="table", chunk_rows=500)
    transfer(asked, Application(connect, tmp_path, "%s"))
    for table, expected in of_database(mariadb_db).items():
        assert sorted(rows(lake, form, table, "id").elements()) == expected
