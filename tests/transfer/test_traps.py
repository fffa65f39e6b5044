"""What broke others: each trap by its name, in one transfer from MariaDB to each target, with changes after the copy.

One table, `stale`, is held up on the target after its rows were read, and changed on the source meanwhile. Traps that
need a run of their own are in `test_traps_alone`.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import truecopy
from tests.servers import Database, Server
from tests.transfer.minus_zero import is_minus_zero, make_minus_zero
from tests.transfer.traps import MINUS_ZERO, TRAPS, WHILE_STALE
from truecopy.engines import pool
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
class Side:
    """A target: what it has no place for, and how to tell that a write of `stale` waits."""

    lacks: tuple[str, ...]
    lock: str
    waiting: str


SIDES = {
    "mariadb": Side(
        (),
        "LOCK TABLES stale WRITE",
        "SELECT 1 FROM information_schema.processlist"
        " WHERE state LIKE 'Waiting for table%' AND info LIKE '%LOAD DATA%`stale`%'",
    ),
    "postgresql": Side(
        ("zero_dates",),
        "BEGIN; LOCK TABLE stale IN EXCLUSIVE MODE",
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%stale%'",
    ),
}


class Carried(NamedTuple):
    source: Database
    target: Database


@pytest.fixture(scope="module")
def to_mariadb(
    spark: SparkSession, mariadb_server: Server, second_mariadb_server: Server
) -> Iterator[Carried]:
    with _carried(mariadb_server, second_mariadb_server, "mariadb") as found:
        yield found


@pytest.fixture(scope="module")
def to_postgresql(
    spark: SparkSession, mariadb_server: Server, postgres_server: Server
) -> Iterator[Carried]:
    with _carried(mariadb_server, postgres_server, "postgresql") as found:
        yield found


@pytest.fixture
def carried(request: pytest.FixtureRequest, engine: str) -> Carried:
    """To the engine that the test is parametrised with."""
    found: Carried = request.getfixturevalue(f"to_{engine}")
    return found


@contextmanager
def _carried(mariadb_server: Server, server: Server, engine: str) -> Iterator[Carried]:
    side = SIDES[engine]
    name = f"traps_{secrets.token_hex(4)}"
    source, target = mariadb_server.create_database(name), server.create_database(name)
    _execute(source, "SET sql_mode = ''", *_filled())
    for row in MINUS_ZERO["copied"]:
        make_minus_zero(source, "float_minus_0", row)
    asked = Settings(
        f"traps {engine}", source.url, target.url, exclude=side.lacks, verify=("inline",)
    )
    _copy_held_up(asked, source, target, side)
    source.execute("FLUSH BINARY LOGS")  # the log is another one when the run goes on
    _execute(source, "SET sql_mode = ''", *_changes())
    for row in MINUS_ZERO["replicated"]:
        make_minus_zero(source, "float_minus_0", row)
    report = Transfer(asked).run(until_caught_up=True)
    assert report.rows_waiting == 0
    yield Carried(source, target)
    pool.close_idle()
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


def _copy_held_up(asked: Settings, source: Database, target: Database, side: Side) -> None:
    """Keeps the rows of one table from being written that were read already, and changes them meanwhile."""
    holder = target.connect()
    run = HeldUp(asked, partial(holder.cursor().execute, side.lock))
    with ThreadPoolExecutor(1) as beside:
        copying = beside.submit(run.run, snapshot_only=True)
        try:
            _wait_for_rows_to_write(target, side)
            _execute(source, *WHILE_STALE)
        finally:
            holder.close()
        copying.result(timeout=120)
    rows = target.execute("SELECT COUNT(*), MAX(v), MAX(id) FROM stale")
    assert rows == [(300, 0, 300)], "what was read before the changes was written after them"


def _wait_for_rows_to_write(target: Database, side: Side) -> None:
    deadline = time.monotonic() + 60
    while not target.execute(side.waiting):
        assert time.monotonic() < deadline, "no chunk waits to be written"
        time.sleep(0.1)


def _columns(database: Database, table: str) -> list[tuple[str, str]]:
    """The names and types, in order."""
    schema = "public" if database.server.scheme == "postgresql" else database.name
    return database.execute(
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        (schema, table),
    )


def _dump(database: Database, table: str) -> list[tuple[Any, ...]]:
    """Every value of MariaDB as the server shows it, letter by letter."""
    names = (name for name, _ in _columns(database, table))
    shown = ", ".join(f"HEX(CAST(`{name}` AS BINARY))" for name in names)
    return sorted(database.execute(f"SELECT {shown} FROM {table}"), key=repr)


_EXACT = {
    "float": "CAST({} AS DOUBLE)",  # MariaDB shows six digits of it
    "real": "{}::float8",
    "jsonb": "{}::text",
}


def _values(database: Database, table: str) -> list[list[Any]]:
    """What the drivers make of the rows, in the order of their keys; documents by their meaning."""
    columns = _columns(database, table)
    shown = ", ".join(_EXACT.get(kind, "{}").format(name) for name, kind in columns)
    rows = [
        [
            json.loads(value, parse_float=Decimal, parse_int=Decimal)
            if name == "doc" and value is not None
            else value
            for (name, _), value in zip(columns, row, strict=True)
        ]
        for row in database.execute(f"SELECT {shown} FROM {table}")
    ]
    return sorted(rows, key=lambda row: repr(row[0]))


SPRUNG = [(side, table) for side in SIDES for table in TRAPS if table not in SIDES[side].lacks]
on_each = pytest.mark.parametrize("engine", SIDES)


@pytest.mark.parametrize(("engine", "table"), SPRUNG)
def test_trap(carried: Carried, engine: str, table: str) -> None:
    source, target = carried
    if engine == "mariadb":
        assert _dump(target, table) == _dump(source, table)
    rows = _values(source, table)
    assert rows
    assert _values(target, table) == rows
    report = truecopy.verify(source.url, target.url, tables=(table,))
    assert report.verdict == "equal"
    assert [one.rows_compared for one in report.tables] == [len(rows)]


def test_json_compared_as_string(to_postgresql: Carried) -> None:
    """PostgreSQL writes them otherwise: `test_trap` has found them equal all the same."""
    source, target = to_postgresql
    shown = "SELECT id, {} FROM json_compared_as_string WHERE id IN (1, 5) ORDER BY id"
    here, there = source.execute(shown.format("doc")), target.execute(shown.format("doc::text"))
    assert [id_ for id_, _ in here] == [id_ for id_, _ in there] == [1, 5]
    assert not set(here) & set(there)


def test_json_compared_as_string_where_both_are_text(to_mariadb: Carried) -> None:
    """Somebody wrote the same document in other words; and then another one that looks much alike."""
    source, target = to_mariadb
    table = "json_compared_as_string"
    ((before,),) = target.execute(f"SELECT doc FROM {table} WHERE id = 5")

    def verdict(doc: str) -> str:
        target.execute(f"UPDATE {table} SET doc = %s WHERE id = 5", (doc,))
        return str(truecopy.verify(source.url, target.url, tables=(table,)).verdict)

    try:
        assert verdict('{"b":{"x":15e-1,"y":"\u00e9"},"long":1.0}') == "equal"
        assert verdict('{"b":{"x":15e-1,"y":"\u00e9"},"long":"1"}') == "different"
        assert verdict('{"b":{"x":15e-2,"y":"\u00e9"},"long":1.0}') == "different"
    finally:
        assert verdict(before) == "equal"


@on_each
def test_float_minus_0(carried: Carried) -> None:
    """`test_trap` has found it equal to what the target holds; here, that it was one."""
    source, target = carried
    held = {row[0]: row[1:] for row in _values(target, "float_minus_0")}
    for row in (number for rows in MINUS_ZERO.values() for number in rows):
        assert is_minus_zero(source, "float_minus_0", row)
        assert held[row] == [0.0, 0.0]


@on_each
def test_stale_snapshot_row_written_after_the_newer_change(carried: Carried) -> None:
    asked = "SELECT COUNT(*) FROM stale WHERE id <= 100 AND v = 1"
    assert carried.target.execute(asked) == [(100,)]


@on_each
def test_delete_applied_before_the_stale_snapshot_row(carried: Carried) -> None:
    asked = "SELECT id, v FROM stale WHERE id BETWEEN 101 AND 150"
    assert carried.target.execute(asked) == [(102, 8)]


@on_each
def test_max_key_deleted_after_it_was_read(carried: Carried) -> None:
    assert carried.target.execute("SELECT id FROM stale WHERE id >= 300") == [(301,)]
