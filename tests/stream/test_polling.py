"""Polling by a cursor column: rows as they are now, in ranges that lose nothing that settled."""

from __future__ import annotations

import pickle
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from truecopy.metastore.definitions import Definitions
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.position import contains, parse_position
from truecopy.stream.log import ChangeLog, Level, Mark, Wanted, open_log
from truecopy.stream.polling import PollingLog

EVERYTHING = 1 << 40
Execute = Callable[[str], Any]


@dataclass(frozen=True)
class Polled:
    """A database of any engine that can be polled."""

    url: str
    execute: Execute
    prefix: str
    """What the stream puts before a table's name."""

    def open(
        self, cursor: str, *tables: str, settle: str = "0", keys_only: bool = False
    ) -> PollingLog:
        settings = {"cursor": cursor, "settle": settle}
        log = open_log(parse_endpoint(self.url), Wanted("shop", tables, keys_only, settings))
        assert isinstance(log, PollingLog)
        assert isinstance(log, ChangeLog)
        return log


@pytest.fixture(params=["sqlite", "duckdb", "mariadb", "postgresql"])
def polled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Polled]:
    match request.param:
        case "sqlite":
            with closing(sqlite3.connect(tmp_path / "p.db", isolation_level=None)) as connection:
                yield Polled(f"sqlite:///{tmp_path}/p.db", connection.execute, "")
        case "duckdb":

            def execute(sql: str) -> None:
                with duckdb.connect(str(tmp_path / "p.duckdb")) as connection:
                    connection.execute(sql)

            yield Polled(f"duckdb:///{tmp_path}/p.duckdb", execute, "")
        case "mariadb":
            database = request.getfixturevalue("mariadb_db")
            yield Polled(database.url, database.execute, f"{database.name}.")
        case _:
            database = request.getfixturevalue("postgres_db")
            yield Polled(database.url, database.execute, "public.")


def changes(log: ChangeLog, start: Mark, end: Mark, parts: int = 1) -> list[dict[str, Any]]:
    return [
        row
        for part in log.split(start, end, parts)
        for batch in pickle.loads(pickle.dumps(part)).read()
        for row in batch.to_pylist()
    ]


def stamped(polled: Polled) -> None:
    polled.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20), updated_at TIMESTAMP(6) NULL)"
        if polled.prefix.startswith("test_")
        else "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20), updated_at TIMESTAMP)"
    )


def test_brings_rows_whose_cursor_has_grown(polled: Polled) -> None:
    stamped(polled)
    polled.execute(
        "INSERT INTO orders VALUES (1, 'a', '2026-01-01 10:00:00'), (2, 'b', '2026-01-01 10:00:00'),"
        " (3, NULL, '2026-01-01 10:00:00.5'), (4, 'never', NULL)"
    )
    with polled.open("updated_at") as log:
        assert log.level is Level.ROW
        assert log.missing() == []
        start = log.oldest()
        end = log.advance(start, EVERYTHING, 0)
        rows = changes(log, start, end)
        assert [(row["kind"], row["key"], row["before"]) for row in rows] == [
            ("update", ["1"], None),
            ("update", ["2"], None),
            ("update", ["3"], None),
        ]
        assert rows[2]["table"] == f"{polled.prefix}orders"
        assert rows[2]["after"][:2] == ["3", None]
        assert Definitions().find(rows[0]["schema_id"]).names == ("id", "note", "updated_at")
        assert log.advance(end, EVERYTHING, 0) == end
        assert log.current().position == end.position
        assert any("deleted" in line for line in log.warnings)
        assert any("1 rows" in line and "updated_at" in line for line in log.warnings)

        polled.execute(
            "UPDATE orders SET note = 'c', updated_at = '2026-01-02 00:00:00' WHERE id = 1"
        )
        polled.execute("DELETE FROM orders WHERE id = 2")
        assert log.lag(end).bytes > 0
        later = log.advance(end, EVERYTHING, 0)
        assert [row["after"][:2] for row in changes(log, end, later)] == [["1", "c"]]
        # A row that was read before has moved: a range read again is not what it was.
        assert [row["key"] for row in changes(log, start, end)] == [["3"]]
        assert contains(parse_position(later.position), parse_position(end.position))


def test_a_range_reads_the_same_however_it_is_cut(polled: Polled) -> None:
    polled.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    polled.execute("CREATE TABLE u (a INT, b INT, c VARCHAR(9), PRIMARY KEY (b, a))")
    values = ", ".join(f"({i}, {i % 7})" for i in range(50))
    polled.execute(f"INSERT INTO t VALUES {values}")
    polled.execute("INSERT INTO u SELECT id, v, 'x' FROM t WHERE id < 20")
    with polled.open("t=v,u=a") as log:
        start, end = log.oldest(), log.current()
        once = changes(log, start, end)
        assert len(once) == 70
        assert len(log.split(start, end, 7)) > 4
        for parts in (1, 2, 7):
            assert changes(log, start, end, parts) == once
    with polled.open("t=v,u=a") as fresh:
        again = changes(fresh, fresh.seek(""), fresh.seek(end.position), 3)
        assert again == once
    u = [row for row in once if row["table"].endswith("u")]
    assert u[3]["key"] == ["3", "3"]
    assert u[8]["key"] == ["1", "8"]


def test_advances_by_bytes_and_never_between_equal_values(polled: Polled) -> None:
    polled.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    polled.execute("CREATE TABLE u (id INT PRIMARY KEY, v INT)")
    values = ", ".join(f"({i}, {i // 10})" for i in range(100))
    polled.execute(f"INSERT INTO t VALUES {values}")
    polled.execute(f"INSERT INTO u VALUES {values}")
    with polled.open("v") as log:
        mark, seen, steps = log.oldest(), [], 0
        while (end := log.advance(mark, 60, 0)) != mark:
            assert end.written > mark.written
            rows = changes(log, mark, end)
            assert len(rows) % 10 == 0
            seen += [(row["table"], row["key"][0]) for row in rows]
            mark, steps = end, steps + 1
        assert steps > 4
        assert len(seen) == len(set(seen)) == 200
        assert changes(log, log.oldest(), log.advance(log.oldest(), 1, 0), 1)


def test_waits_until_values_have_settled(polled: Polled) -> None:
    polled.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    polled.execute("INSERT INTO t VALUES (1, 1)")
    with polled.open("v", settle="0.5") as log:
        start = log.oldest()
        assert log.advance(start, EVERYTHING, 0) == start
        polled.execute("INSERT INTO t VALUES (3, 3)")
        assert log.advance(start, EVERYTHING, 0) == start
        polled.execute("INSERT INTO t VALUES (2, 2)")  # a transaction that took its value earlier
        mark = start
        deadline = time.monotonic() + 10
        keys: list[str] = []
        while len(keys) < 3 and time.monotonic() < deadline:
            end = log.advance(mark, EVERYTHING, 0.1)
            keys += [row["key"][0] for row in changes(log, mark, end)]
            mark = end
        assert keys == ["1", "2", "3"]


def test_seeks_by_time(polled: Polled) -> None:
    stamped(polled)
    polled.execute(
        "INSERT INTO orders VALUES (1, 'a', '2026-01-01 10:00:00'), (2, 'b', '2026-01-03 10:00:00')"
    )
    with polled.open("updated_at", "orders") as log:
        mark = log.seek_time(1_767_398_400_000_000)  # 2026-01-03
        rows = changes(log, mark, log.advance(mark, EVERYTHING, 0))
        assert [row["key"] for row in rows] == [["2"]]
    with polled.open("id", "orders") as log:  # a number says nothing about times
        assert log.seek_time(1_767_398_400_000_000) == log.oldest()


def test_chooses_tables_and_columns(polled: Polled) -> None:
    stamped(polled)
    polled.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    polled.execute("INSERT INTO other VALUES (7)")
    with polled.open("updated_at") as log:
        assert any("other" in line for line in log.warnings)
    with pytest.raises(UsageError, match="other has no column updated_at"):
        polled.open("updated_at", "other")
    with pytest.raises(UsageError, match="no table absent"):
        polled.open("absent=id")
    with pytest.raises(UsageError, match="write a column"):
        polled.open("orders=id,updated_at")
    with polled.open("other=id", keys_only=True) as log:
        rows = changes(log, log.oldest(), log.current())
        assert [(row["key"], row["after"]) for row in rows] == [(["7"], None)]
        with pytest.raises(UsageError, match="no position of polled tables"):
            log.seek("17")


@pytest.mark.parametrize(
    "stored", ["2026-01-01T10:00:00Z", "2026-01-01 10:00", "1767261600", "x'00'", "plain"]
)
def test_sqlite_compares_what_is_stored(tmp_path: Path, stored: str) -> None:
    path = tmp_path / "p.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, at DATETIME)")
        connection.execute("INSERT INTO t (at) VALUES (?)", (stored,))
    with Polled(f"sqlite:///{path}", print, "").open("at") as log:
        end = log.advance(log.oldest(), EVERYTHING, 0)
        assert len(changes(log, log.oldest(), end)) == 1
        assert log.advance(end, EVERYTHING, 0) == end
