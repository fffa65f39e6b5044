"""A table that is emptied and filled again in one transaction, however large: in steps, and all or nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Database
from truecopy.transfer.apply import Applying
from truecopy.transfer.replicate import Replication
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("step_bytes", [1, 64 << 20])
def test_emptied_and_filled_again(
    spark: SparkSession,
    postgres_db: Database,
    mariadb_db: Database,
    monkeypatch: pytest.MonkeyPatch,
    step_bytes: int,
) -> None:
    work_of = Replication._work

    def in_steps(self: Replication, *given: Any) -> Applying:
        return replace(work_of(self, *given), step_bytes=step_bytes)

    monkeypatch.setattr(Replication, "_work", in_steps)
    for table in ("items", "others"):
        postgres_db.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, code INT UNIQUE, v TEXT)")
        postgres_db.execute(f"INSERT INTO {table} SELECT g, g, 'old' FROM generate_series(1, 50) g")
    asked = Settings("move", postgres_db.url, mariadb_db.url)
    Transfer(asked).run(until_caught_up=True)
    with closing(postgres_db.connect()) as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO items VALUES (60, 60, 'gone again')")
        connection.execute("UPDATE others SET code = -code, v = 'new' WHERE id < 10")
        connection.execute("TRUNCATE items")
        connection.execute(
            "INSERT INTO items SELECT g, 500 - g, 'new' FROM generate_series(30, 400) g"
        )
        connection.execute("DELETE FROM items WHERE id = 40")
        connection.execute("COMMIT")
    report = Transfer(asked).run(until_caught_up=True)
    for table in ("items", "others"):
        query = f"SELECT * FROM {table} ORDER BY id"
        assert mariadb_db.execute(query) == postgres_db.execute(query)
    applied = {name.rpartition(".")[2]: one.changes_applied for name, one in report.tables.items()}
    assert applied == {"items": 373, "others": 9}
