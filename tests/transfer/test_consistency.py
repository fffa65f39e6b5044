"""What whoever reads the target sees, all the time.

With `consistency: transaction` it is a state that the source had. With `consistency: table` a table is in one that the
source's table had.

That is promised from the moment on at which the task's phase is `replicate`: until the replay has passed the end
of the copy, rows go back in time. The reader asks in one snapshot for the phase, for the version of the table and for
all of its rows; the writer notes, after each of its transactions, what the table held.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
import pymysql
import pytest

from tests.servers import Database, PostgreSQLServer
from tests.transfer.beside import beside
from tests.transfer.cutting import cut_over
from tests.transfer.load import fill, writing
from truecopy.transfer.cutover.settings import COMMAND, Commands, How
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import TABLE, TRANSACTION, Settings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS, VERSIONS = 100, 8
"""Rows at the start, and versions of the table that must have been read at the end."""
CONTENT = "SELECT id, code, name, price, note FROM items"


@dataclass
class History:
    """What the source's table held: its states, and the least version that a target has which shows each."""

    numbers: list[int] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    ended: int = 0

    def note(self, cursor: Any) -> None:
        cursor.execute("SELECT @@last_gtid")
        ((gtid,),) = cursor.fetchall()
        if gtid:  # else nothing was changed so far
            self.numbers.append(number_of(gtid))
            self.states.append(content(cursor))

    def note_lsn(self, cursor: Any) -> None:
        """A transaction is logged after the one before it has ended."""
        self.numbers.append(self.ended + 1)
        self.states.append(content(cursor))
        cursor.execute("SELECT pg_current_wal_insert_lsn()")
        ((lsn,),) = cursor.fetchall()
        self.ended = number_of(lsn)

    def at(self, number: int) -> int | None:
        """The state after a transaction; None for the time before the first one."""
        place = bisect_right(self.numbers, number)
        return self.states[place - 1] if place else None


@dataclass
class Reader:
    """Reads the target's table from before it is there until the test ends."""

    target: Database
    unfinished: int = 0
    seen: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, stop: threading.Event) -> None:
        is_postgresql = isinstance(self.target.server, PostgreSQLServer)
        kind = "ISOLATION LEVEL REPEATABLE READ" if is_postgresql else "WITH CONSISTENT SNAPSHOT"
        with closing(self.target.connect()) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                cursor.execute(f"START TRANSACTION {kind}")
                try:
                    self._look(cursor)
                except (psycopg.ProgrammingError, pymysql.ProgrammingError):
                    self.unfinished += 1  # there is no such table yet
                except pymysql.OperationalError as error:
                    if error.args[0] != 1412:  # its definition has changed since the snapshot
                        raise
                cursor.execute("ROLLBACK")
                time.sleep(0.02)

    def _look(self, cursor: Any) -> None:
        cursor.execute("SELECT phase FROM truecopy_task")
        phases = cursor.fetchall()
        cursor.execute("SELECT position FROM truecopy_progress WHERE part LIKE '%%/t/%%'", ())
        versions = cursor.fetchall()
        state = content(cursor)
        if [phase for (phase,) in phases] == ["replicate"]:
            ((version,),) = versions
            self.seen.append((number_of(version), state))
        else:
            self.unfinished += 1


@dataclass
class Accounts:
    """Two tables between which money goes: each transaction of the source leaves the sum as it was."""

    database: Database
    seen: list[tuple[int, int]] = field(default_factory=list)

    def make(self) -> None:
        for table in ("one", "other"):
            self.database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, money INT NOT NULL)")
            self.database.execute(f"INSERT INTO {table} SELECT seq, 100 FROM seq_1_to_{ROWS}")

    def write(self, stop: threading.Event) -> None:
        number = 0
        with closing(self.database.connect()) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                number += 1
                cursor.execute("BEGIN")
                for table, sign in (("one", "-"), ("other", "+")):
                    cursor.execute(
                        f"UPDATE {table} SET money = money {sign} 1 WHERE id %% 7 = %s",
                        (number % 7,),
                    )
                cursor.execute("COMMIT")
                time.sleep(0.02)

    def read(self, stop: threading.Event) -> None:
        """Both tables in one snapshot."""
        is_postgresql = isinstance(self.database.server, PostgreSQLServer)
        kind = "ISOLATION LEVEL REPEATABLE READ" if is_postgresql else "WITH CONSISTENT SNAPSHOT"
        asked = "SELECT SUM(money) FROM one UNION ALL SELECT SUM(money) FROM other"
        with closing(self.database.connect()) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                cursor.execute(f"START TRANSACTION {kind}")
                cursor.execute(asked)
                one, other = (int(total) for (total,) in cursor.fetchall())
                self.seen.append((one, other))
                cursor.execute("ROLLBACK")
                time.sleep(0.01)


@pytest.mark.long
@pytest.mark.parametrize("onto", ["second_mariadb_db", "postgres_db"])
def test_a_reader_sees_only_whole_transactions(
    spark: SparkSession, mariadb_db: Database, onto: str, request: pytest.FixtureRequest
) -> None:
    target: Database = request.getfixturevalue(onto)
    source, there = Accounts(mariadb_db), Accounts(target)
    source.make()
    asked = Settings("move", mariadb_db.url, target.url, consistency=TRANSACTION)
    Transfer(asked).run(until_caught_up=True)
    transfer = Transfer(asked)
    with beside(there.read), beside(lambda _: transfer.run()):
        try:
            with beside(source.write):
                wait_for(lambda: len(set(there.seen)) >= VERSIONS)
        finally:
            transfer.stop()
    assert {one + other for one, other in there.seen} == {2 * 100 * ROWS}


def content(cursor: Any) -> int:
    cursor.execute(CONTENT)
    return hash(frozenset(cursor.fetchall()))


def number_of(version: str) -> int:
    """Of a GTID its sequence, and of an LSN the place in the log."""
    if "/" in version:
        high, _, low = version.partition("/")
        return (int(high, 16) << 32) + int(low, 16)
    return int(version.rpartition("-")[2])


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "onto"),
    [
        ("mariadb_db", "second_mariadb_db"),
        ("mariadb_db", "postgres_db"),
        ("postgres_db", "mariadb_db"),
    ],
)
def test_a_reader_sees_only_states_that_the_source_had(
    spark: SparkSession, source: str, onto: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """From before the copy until the target has taken over."""
    old: Database = request.getfixturevalue(source)
    new: Database = request.getfixturevalue(onto)
    fill(old, ROWS)
    asked = Settings("move", old.url, new.url, consistency=TABLE, chunk_rows=40)
    transfer, history, reader = Transfer(asked), History(), Reader(new)
    note = history.note_lsn if source == "postgres_db" else history.note
    hold, held = tmp_path / "hold", tmp_path / "held"
    waits = f"touch {hold}; while [ ! -e {held} ]; do sleep 0.02; done"
    commands = Commands(hold=waits, release="true", switch="true")
    with beside(reader), ThreadPoolExecutor(1) as aside:
        with writing(old, ROWS, pause=0.04, note=note):
            with beside(lambda _: transfer.run()):
                try:
                    wait_for(lambda: len({version for version, _ in reader.seen}) >= VERSIONS)
                finally:
                    transfer.stop()
            how = How(lock=COMMAND, commands=commands, max_lag=30.0, reverse=False)
            cutover = aside.submit(cut_over, asked, how)
            wait_for(lambda: hold.exists() or cutover.done())
        held.touch()
        assert cutover.result(120).state == "switched"
        wait_for(lambda: reader.seen[-1][1] == history.states[-1])
    assert reader.unfinished, "it began too late"
    numbers = [number for number, _ in reader.seen]
    assert numbers == sorted(numbers), "the table went back"
    wrong = [number for number, state in reader.seen if state != history.at(number)]
    assert not wrong, f"{len(wrong)} of {len(reader.seen)} reads"


def wait_for(condition: Callable[[], bool], seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)
