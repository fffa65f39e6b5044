"""What broke others, continued from `test_traps`: each trap by its name, in a run of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

import truecopy
from tests.servers import Database
from truecopy.engines.protocols import Session
from truecopy.model.endpoint import parse_endpoint
from truecopy.transfer.copying import Copying
from truecopy.transfer.deletion import delete_task
from truecopy.transfer.ledger import TaskLine
from truecopy.transfer.packing import Packed
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof.store import open_store
from truecopy.transfer.proof.verifier import DIFFERS, EXTRA, MISSING, NotProven
from truecopy.transfer.replicate import Replication
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.snapshot import CopyTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

on_each_target = pytest.mark.parametrize("target", ["second_mariadb_db", "postgres_db"])


class Interfered(Transfer):
    """Something happens at certain points of a run: when chunks are planned, when they are in, when changes are."""

    def __init__(
        self,
        asked: Settings,
        planned: Callable[[list[CopyTask]], object] = lambda _: None,
        copied: Callable[[], object] = lambda: None,
        applied: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(asked)
        self._planned, self._copied, self._applied_all = planned, copied, applied

    def copying(self, plans: Mapping[str, TablePlan], line: TaskLine) -> Copying:
        planned, copied = self._planned, self._copied

        class Watched(Copying):
            def _planned(self, source: Session, target: Session) -> list[CopyTask]:
                tasks = super()._planned(source, target)
                planned(tasks)
                return tasks

            def copy(self, *given: Any) -> None:
                super().copy(*given)
                copied()

        return Watched(self._settings, plans, line)

    def replication(self, plans: Mapping[str, TablePlan], line: TaskLine) -> Replication:
        made, applied = super().replication(plans, line), self._applied_all
        apply = made.apply

        def and_then(changes: Packed, _: int) -> None:
            apply(changes, _)
            applied()

        made.apply = and_then  # type: ignore[method-assign]
        return made


@on_each_target
def test_max_key_deleted_while_copying(
    spark: SparkSession, mariadb_db: Database, request: pytest.FixtureRequest, target: str
) -> None:
    """The largest key has bounded the chunks when it goes; of `whole`, everything that the last one would have held."""
    there: Database = request.getfixturevalue(target)
    for table in ("one", "whole"):
        mariadb_db.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
        mariadb_db.execute(f"INSERT INTO {table} SELECT seq, seq FROM seq_1_to_300")
    seen = list[CopyTask]()

    def delete(tasks: list[CopyTask]) -> None:
        seen.extend(tasks)
        mariadb_db.execute("DELETE FROM one WHERE id = 300; DELETE FROM whole WHERE id > 250")

    asked = Settings("max", mariadb_db.url, there.url, verify=("inline",), chunk_rows=50)
    report = Interfered(asked, planned=delete).run(until_caught_up=True)
    lows = [task.chunk.low for task in seen if task.plan.source_name.endswith("whole")]
    assert lows == [None, ("51",), ("101",), ("151",), ("201",), ("251",)]
    assert sorted(one.rows_copied for one in report.tables.values()) == [250, 299]
    assert report.rows_waiting == 0
    for table in ("one", "whole"):
        rows = f"SELECT id, v FROM {table} ORDER BY id"
        assert there.execute(rows) == mariadb_db.execute(rows)
    found = truecopy.verify(mariadb_db.url, there.url, tables=("one", "whole"))
    assert (found.verdict, [one.rows_compared for one in found.tables]) == ("equal", [299, 250])


KEYS = {
    "free": ("VARBINARY(16)", ("00", "ff00ff", "27", "30786666", "5c78", "666630306666", "2c", "")),
    "padded": ("BINARY(4)", ("00000000", "61000000", "61006200", "20202020", "ffffffff")),
}
"""By table. Among them what looks as if it were written in hex already: `0xff`, `\\x`, `ff00ff`."""


@on_each_target
def test_hex_encoded_binary_keys(
    spark: SparkSession, mariadb_db: Database, request: pytest.FixtureRequest, target: str
) -> None:
    there: Database = request.getfixturevalue(target)
    asked = Settings("hex", mariadb_db.url, there.url, verify=("inline",))
    with_binary_keys(mariadb_db)
    report = Interfered(asked, copied=lambda: change(mariadb_db)).run(until_caught_up=True)
    assert report.rows_waiting == 0
    with open_store(asked.task, parse_endpoint(there.url).identity) as store:
        assert store.verified == sum(len(keys) for _, keys in KEYS.values())
    for table in KEYS:
        rows = f"SELECT id, v FROM {table} ORDER BY id"
        assert there.execute(rows) == mariadb_db.execute(rows)
    assert truecopy.verify(mariadb_db.url, there.url, tables=tuple(KEYS)).verdict == "equal"


@on_each_target
def test_hex_encoded_binary_keys_of_rows_that_differ(
    spark: SparkSession, mariadb_db: Database, request: pytest.FixtureRequest, target: str
) -> None:
    """Rows are damaged after their change was applied, and only its key in the log leads to them."""
    there: Database = request.getfixturevalue(target)
    asked = Settings("hex", mariadb_db.url, there.url, verify=("inline",))
    with_binary_keys(mariadb_db)

    def damage() -> None:
        for table, (_, (extra, missing, *_)) in KEYS.items():
            there.execute(f"UPDATE {table} SET v = 9")
            there.execute(f"DELETE FROM {table} WHERE id = %s", (bytes.fromhex(missing),))
            there.execute(f"DELETE FROM {table} WHERE id = %s", (bytes.fromhex(extra),))
            there.execute(f"INSERT INTO {table} VALUES (%s, 2)", (bytes.fromhex(extra),))

    run = Interfered(asked, copied=lambda: change(mariadb_db), applied=damage)
    with pytest.raises(NotProven, match="the row id=") as raised:
        run.run(until_caught_up=True)
    found = {
        (one.table.rpartition(".")[2], *one.key): one.kind
        for one in raised.value.outcome.mismatches
    }
    assert found == {
        (table, key): {0: EXTRA, 1: MISSING}.get(number, DIFFERS)
        for table, (_, keys) in KEYS.items()
        for number, key in enumerate(keys)
    }


def with_binary_keys(database: Database) -> None:
    for table, (native, keys) in KEYS.items():
        database.execute(f"CREATE TABLE {table} (id {native} PRIMARY KEY, v INT)")
        rows = [(bytes.fromhex(key),) for key in keys]
        database.executemany(f"INSERT INTO {table} VALUES (%s, 1)", rows)


def change(database: Database) -> None:
    """Every row: the first one of a table goes, the others get another number."""
    for table, (_, (going, *_)) in KEYS.items():
        database.execute(f"UPDATE {table} SET v = 2")
        database.execute(f"DELETE FROM {table} WHERE id = %s", (bytes.fromhex(going),))


def test_float_minus_0_of_postgresql(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    """Where statements can store one."""
    postgres_db.execute("CREATE TABLE t (id int PRIMARY KEY, f real, d double precision)")
    postgres_db.execute("INSERT INTO t VALUES (1, '-0', '-0'), (2, 0.5, 0.5), (3, 0, 0)")
    asked = Settings("minus", postgres_db.url, mariadb_db.url, verify=("inline",))

    def write() -> None:
        postgres_db.execute("UPDATE t SET f = '-0', d = '-0' WHERE id IN (2, 3)")
        postgres_db.execute("INSERT INTO t VALUES (4, '-0', '-0')")

    try:
        report = Interfered(asked, copied=write).run(until_caught_up=True)
    finally:
        delete_task(asked)  # with its slot
    assert report.rows_waiting == 0
    rows = "SELECT id, f::text, d::text FROM t ORDER BY id"
    assert postgres_db.execute(rows) == [(number, "-0", "-0") for number in range(1, 5)]
    held = mariadb_db.execute("SELECT id, f, d FROM t ORDER BY id")
    assert held == [(number, 0.0, 0.0) for number in range(1, 5)]
    found = truecopy.verify(postgres_db.url, mariadb_db.url, tables=("t",))
    assert (found.verdict, [one.rows_compared for one in found.tables]) == ("equal", [4])
