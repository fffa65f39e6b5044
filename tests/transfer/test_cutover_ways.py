"""The ways to hold writers off: an address, commands, locks on tables, rights that are taken back."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

import truecopy
from tests.servers import Database
from tests.transfer.cutting import (
    HOW,
    application,
    cut_over,
    dump,
    fill,
    is_equal,
    slots,
    started,
    switch_back,
)
from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret
from truecopy.transfer.cutover.settings import Callback, Commands
from truecopy.transfer.cutover.standing import standing
from truecopy.transfer.cutover.state import HELD
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@contextmanager
def orchestra(fail: str = "") -> Iterator[tuple[str, list[str]]]:
    """Somebody's service that moves writers when it is told to, at the second try."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            step = f"{body['direction']} {body['step']}"
            answer = 503 if step not in heard or body["step"] == fail else 200
            heard.append(step)
            self.send_response(answer)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", heard
        finally:
            server.shutdown()
            thread.join()


def test_an_address_holds_writers_off_and_switches(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    with orchestra(fail="switch") as (url, heard):
        how = replace(HOW, lock="callback", callback=Callback(Secret(url), attempts=2))
        report = cut_over(settings, how)
        assert report.state == "rolled-back"
        assert "switch: it answered 503" in report.reason
        assert heard[-1] == "forth release"
    with orchestra() as (url, heard):
        how = replace(HOW, lock="callback", callback=Callback(Secret(url), attempts=3))
        assert cut_over(settings, how).state == "switched"
        assert list(dict.fromkeys(heard)) == ["forth hold", "forth switch"]
        second_mariadb_db.execute("DELETE FROM notes WHERE id = 1")
        assert switch_back(settings, how).state == "switched"
        assert list(dict.fromkeys(heard))[2:] == ["back hold", "back switch"]
    assert is_equal(mariadb_db, second_mariadb_db)


def test_commands_hold_writers_off_and_switch(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    note = f"echo $TRUECOPY_DIRECTION $TRUECOPY_TASK $TRUECOPY_STEP >> {tmp_path}/heard"
    commands = Commands(note, note, f"{note}; echo no way >&2; exit 4", attempts=2)
    failed = cut_over(settings, replace(HOW, lock="command", commands=commands))
    assert failed.state == "rolled-back"
    assert failed.reason == "cutover.commands.switch ended with 4: no way"
    done = cut_over(settings, replace(HOW, lock="tables", commands=replace(commands, switch=note)))
    assert done.state == "switched", done.reason
    heard = (tmp_path / "heard").read_text().split("\n")
    steps = ("hold", "switch", "switch", "release", "switch")
    assert heard == [f"forth cut {step}" for step in steps] + [""]


def test_a_downtime_that_is_too_long_is_given_up(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    with application(mariadb_db) as app:
        slow = replace(HOW, max_downtime=1.0, commands=Commands(switch="true"), lock="tables")
        reader = mariadb_db.connect()
        cursor = reader.cursor()
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO notes VALUES (1000, 'not committed')")
        report = cut_over(settings, slow)  # the lock waits for the transaction
        cursor.execute("ROLLBACK")
        reader.close()
        assert report.state == "rolled-back"
        assert report.downtime_seconds < 10
        assert app.can_write()


def test_postgresql_gives_rights_back_after_a_rollback(
    spark: SparkSession, postgres_db: Database, mariadb_db: Database
) -> None:
    fill(postgres_db, 50)
    rights = (
        "SELECT relname, relacl::text FROM pg_class WHERE relname IN ('orders', 'notes') ORDER BY 1"
    )
    with application(postgres_db) as app, application(mariadb_db):
        before = [(n, sorted(acl.strip("{}").split(","))) for n, acl in postgres_db.execute(rights)]
        settings = started(postgres_db, mariadb_db)

        def spoil(line: str) -> None:
            if HELD in line:
                assert not app.can_write()
                mariadb_db.execute("UPDATE notes SET body = 'rogue' WHERE id = 3")

        report = cut_over(settings, said=spoil)
        assert report.state == "rolled-back", report
        assert app.can_write()
        after = [(n, sorted(acl.strip("{}").split(","))) for n, acl in postgres_db.execute(rights)]
        assert after == before
        mariadb_db.execute("UPDATE notes SET body = 'note 3' WHERE id = 3")
        report = cut_over(settings)
        assert report.state == "switched", report.reason
        assert not app.can_write()
        assert dump(postgres_db) == dump(mariadb_db)
        assert not slots(postgres_db)
        mariadb_db.execute("INSERT INTO orders (code, total) VALUES ('new', 3)")
        returned = switch_back(settings)
        assert returned.state == "switched", returned.reason
        assert dump(postgres_db) == dump(mariadb_db)
        assert app.can_write()
        app.execute("INSERT INTO orders (code, total) VALUES ('next', 3)")
        Transfer(standing(settings)).run(until_caught_up=True)
        assert dump(postgres_db) == dump(mariadb_db)


def test_by_hand_from_a_file_to_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """SQLite cannot hold writers off, and DuckDB cannot tell its changes: both is said, and can be done without."""
    source, target = tmp_path / "old.db", tmp_path / "new.duckdb"
    with sqlite3.connect(source) as old:
        old.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        old.executemany("INSERT INTO notes VALUES (?, ?)", [(n, f"note {n}") for n in range(1, 51)])
    duckdb.connect(str(target)).close()
    settings = Settings("files", f"sqlite:///{source}", f"duckdb:///{target}", consistency="table")
    Transfer(settings).run(until_caught_up=True)
    with sqlite3.connect(source) as old:
        old.execute("DELETE FROM notes WHERE id > 40")
    old.close()
    with pytest.raises(UsageError, match="cannot hold writers off"):
        cut_over(settings)
    with pytest.raises(UsageError, match="no way back"):
        cut_over(settings, replace(HOW, lock="none"))
    report = cut_over(settings, replace(HOW, lock="none", reverse=False))
    assert report.state == "switched", report.reason
    assert any("by hand" in line for line in report.said)
    certificate = json.loads(Path(report.certificate).read_text(encoding="utf-8"))
    assert "(by hand)" in certificate["cutover"]["Writers"]
    assert any("40 rows of 1 table compared" in one for one in certificate["cutover"]["Verifiers"])
    assert truecopy.verify(settings.source, settings.target, tables=("notes",)).verdict == "equal"
    with pytest.raises(UsageError, match="without a way back"):
        standing(settings)
