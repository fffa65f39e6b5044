"""SQLite as a source: its rows that changed are judged like any other's, and rows that are left are counted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from truecopy.transfer.proof.inline import InlineVerifier
from truecopy.transfer.proof.verifier import NotProven, Outcome
from truecopy.transfer.run import Listener, Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def settings(tmp_path: Path, postgres_db: Database) -> Settings:
    file = tmp_path / "old.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, price INTEGER NOT NULL)")
        connection.executemany("INSERT INTO items VALUES (?, ?)", [(n, n) for n in range(20)])
    return Settings("file", f"sqlite:///{file}", postgres_db.url, verify=("inline",))


def change(settings: Settings) -> None:
    path = settings.source.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
        connection.execute("UPDATE items SET price = price + 100 WHERE id < 5")


def test_a_changed_row_that_arrives_wrong_is_judged(
    spark: SparkSession, settings: Settings, postgres_db: Database
) -> None:
    Transfer(settings).run(until_caught_up=True)
    postgres_db.execute(
        "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF NEW.id = 3 THEN NEW.price := 0; END IF; RETURN NEW; END'"
    )
    postgres_db.execute(
        "CREATE TRIGGER spoil BEFORE INSERT OR UPDATE ON items FOR EACH ROW EXECUTE FUNCTION spoil()"
    )
    postgres_db.execute("ALTER TABLE items ENABLE ALWAYS TRIGGER spoil")
    change(settings)
    with pytest.raises(NotProven, match="id=3 of items differs in price"):
        Transfer(settings).run(until_caught_up=True)


def test_changed_rows_that_are_equal_leave_nothing(spark: SparkSession, settings: Settings) -> None:
    Transfer(settings).run(until_caught_up=True)
    change(settings)
    assert Transfer(settings).run(until_caught_up=True).rows_waiting == 0


def test_rows_that_are_left_are_told_and_counted(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    Transfer(settings).run(until_caught_up=True)
    change(settings)
    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(InlineVerifier, "work", lambda _: Outcome("inline", tables=1))
        report = Transfer(settings, Listener(said=said.append)).run(until_caught_up=True)
    assert report.rows_waiting == 5
    assert "5 rows are still to be verified again: the next run goes on with that" in said
    assert Transfer(settings).run(until_caught_up=True).rows_waiting == 0
