"""A log as a table of a database, with its progress in the same transactions."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.changelog.recorded import seen_now
from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.killing import kill
from tests.transfer.load import fill, writing
from truecopy.changelog.diff import diff
from truecopy.changelog.restore import restore
from truecopy.changelog.table_log import TableRecording
from truecopy.changelog.table_store import CHANGES
from truecopy.engines import connect
from truecopy.engines.protocols import RunsQueries
from truecopy.model.change import Definition
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.token import parse_keyspace_position
from truecopy.stream.follow import Following
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HOSTILE = "tab\\t, \"quote\", 'single', \\\\, Ä, 😀, new\nline"


def target_url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if engine in ("sqlite", "duckdb"):
        path = tmp_path / f"log.{engine}"
        if engine == "sqlite":
            path.touch()
        else:
            import duckdb

            duckdb.connect(str(path)).close()
        return f"{engine}:///{path}"
    database: Database = request.getfixturevalue(engine)
    return database.url


def asked(url: str, sql: str) -> list[dict[str, Any]]:
    with connect(parse_endpoint(url)) as session:
        assert isinstance(session, RunsQueries)
        found: list[dict[str, Any]] = session.query(sql).to_pylist()
        return found


@pytest.mark.long
@pytest.mark.parametrize("engine", ["second_mariadb_db", "postgres_db", "sqlite", "duckdb"])
def test_every_target(
    spark: SparkSession,
    mariadb_db: Database,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    engine: str,
) -> None:
    mariadb_db.execute("CREATE TABLE item (id INT PRIMARY KEY, name TEXT)")
    url = target_url(engine, request, tmp_path)
    wanted = Request(mariadb_db.url, wait=0.1)
    assert TableRecording(wanted, url).run("current").events == 0
    mariadb_db.execute("INSERT INTO item VALUES (1, %s), (2, NULL)", (HOSTILE,))
    mariadb_db.execute("UPDATE item SET name = 'two' WHERE id = 2")
    assert TableRecording(wanted, url).run("current").events == 3
    mariadb_db.execute("DELETE FROM item WHERE id = 1")
    assert TableRecording(wanted, url).run("current").events == 1
    rows = asked(url, f"SELECT * FROM {CHANGES} ORDER BY batch, commit_order, seq")
    assert [row["kind"] for row in rows] == ["insert", "insert", "update", "delete"]
    assert json.loads(rows[0]["after_row"]) == ["1", HOSTILE]
    assert json.loads(rows[1]["after_row"]) == ["2", None]
    assert json.loads(rows[3]["row_key"]) == ["1"]
    for definition in asked(url, "SELECT document FROM truecopy_definition"):
        assert Definition.from_json(definition["document"]).names == ("id", "name")
    with pytest.raises(UsageError, match="not of"):
        TableRecording(Request(mariadb_db.url, tables=("item",)), url).run("current")


@pytest.mark.long
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("second_mariadb_db", marks=pytest.mark.slow),
        "postgres_db",
        pytest.param("sqlite", marks=pytest.mark.slow),
        pytest.param("duckdb", marks=pytest.mark.slow),
    ],
)
def test_restored_from_a_database(
    spark: SparkSession,
    mariadb_db: Database,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    engine: str,
) -> None:
    mariadb_db.execute("CREATE TABLE item (id INT PRIMARY KEY, name TEXT, price DECIMAL(10,2))")
    mariadb_db.execute("INSERT INTO item VALUES (1, 'one', 1.10), (2, %s, NULL)", (HOSTILE,))
    url = target_url(engine, request, tmp_path)
    wanted = Request(mariadb_db.url, wait=0.1)
    assert TableRecording(wanted, url, log="shop").run("current").rows_copied == 2
    mariadb_db.execute("UPDATE item SET price = 7 WHERE id = 1")
    TableRecording(wanted, url, log="shop").run("current")
    then = seen_now(mariadb_db, "SELECT id, name, price FROM item ORDER BY id")
    mariadb_db.execute("DELETE FROM item WHERE id = 2; INSERT INTO item VALUES (3, NULL, 3)")
    TableRecording(wanted, url, log="shop").run("current")
    for point, rows in (
        (then.token, then.rows),
        ("current", mariadb_db.execute("SELECT id, name, price FROM item ORDER BY id")),
    ):
        path = tmp_path / f"{point[-8:]}.db"
        path.touch()
        report = restore(url, "item", point, f"sqlite:///{path}", log="shop")
        assert report.rows == len(rows)
        found = asked(f"sqlite:///{path}", "SELECT id, name, price FROM item ORDER BY id")
        assert [(int(r["id"]), r["name"], as_price(r["price"])) for r in found] == rows
    kinds = {(d.kind, d.key["id"]) for d in diff(url, "item", then.token, "current", log="shop")}
    assert kinds == {("delete", "2"), ("insert", "3")}
    listed = program("changelog", "ls", url, "--log", "shop", "--json").document
    assert [(one["table"], one["base_rows"], one["changes"]) for one in listed["tables"]] == [
        ("item", 2, 3)
    ]
    assert listed["restorable_from"] is not None
    time.sleep(1.1)
    url_of_log, keep = (url, "--log", "shop"), ("--keep", "0s", "--json")
    ended = program("changelog", "compact", *url_of_log, *keep)
    assert ended.code == 0, ended.err
    assert ended.document["events_removed"] == 3
    mariadb_db.execute("UPDATE item SET price = 9 WHERE id = 3")
    TableRecording(wanted, url, log="shop").run("current")
    path = tmp_path / "kept.db"
    path.touch()
    assert restore(url, "item", "current", f"sqlite:///{path}", log="shop").rows == 2
    found = asked(f"sqlite:///{path}", "SELECT id, price FROM item ORDER BY id")
    assert [(int(r["id"]), as_price(r["price"])) for r in found] == [
        (1, Decimal("7.00")),
        (3, Decimal("9.00")),
    ]
    assert asked(url, f"SELECT count(*) AS n FROM {CHANGES}")[0]["n"] in (1, "1")


def test_what_a_log_in_a_database_cannot_do(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database, tmp_path: Path
) -> None:
    mariadb_db.execute("CREATE TABLE item (id INT PRIMARY KEY, name TEXT)")
    wanted = Request(mariadb_db.url, wait=0.1)
    assert TableRecording(wanted, postgres_db.url, start="current").run("current").rows_copied == 0
    mariadb_db.execute("INSERT INTO item VALUES (1, 'one')")
    assert TableRecording(wanted, postgres_db.url).run("current").events == 1
    assert postgres_db.execute("SELECT id, name FROM truecopy_changes_item_history") == [(1, "one")]
    ((current,),) = postgres_db.execute("SELECT to_regclass('truecopy_changes_item_current')")
    assert current is None
    (tmp_path / "x.db").touch()
    with pytest.raises(UsageError, match="begun without a base"):
        restore(postgres_db.url, "item", "current", f"sqlite:///{tmp_path / 'x.db'}")
    with pytest.raises(UsageError, match="has no change log other"):
        restore(postgres_db.url, "item", "current", f"sqlite:///{tmp_path / 'x.db'}", log="other")
    ended = program("changelog", "compact", postgres_db.url)
    assert ended.code == 2
    assert "no files to merge" in ended.err


@pytest.mark.long
def test_started_by_a_task_file(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database, tmp_path: Path
) -> None:
    mariadb_db.execute("CREATE TABLE item (id INT PRIMARY KEY, name TEXT)")
    mariadb_db.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    mariadb_db.execute("INSERT INTO item VALUES (1, 'one')")
    task = tmp_path / "archive.yaml"
    lines = [f"task: archive\nsource: {mariadb_db.url}", "tables: {include: [item]}"]
    task.write_text("\n".join([*lines, f"target: {postgres_db.url}"]))
    ended = program("changelog", "start", str(task), "--until", "current", "--json")
    assert ended.code == 0, ended.err
    assert ended.document["rows_copied"] == 1
    listed = program("changelog", "ls", postgres_db.url, "--log", "archive", "--json").document
    assert [one["table"] for one in listed["tables"]] == ["item"]
    folder = tmp_path / "log"
    task.write_text("\n".join([*lines, f"target: lake://{folder}"]))
    ended = program("changelog", "start", str(task), "--until", "current", "--json")
    assert ended.code == 0, ended.err
    assert program("changelog", "ls", str(folder), "--json").document["restorable_from"]
    task.write_text("\n".join([*lines, f"target: lake://{folder}", "routes: {item: thing}"]))
    ended = program("changelog", "start", str(task), "--until", "current")
    assert ended.code == 2
    assert "routes: a change log keeps rows as they came" in ended.err


def as_price(value: object) -> Decimal | None:
    return None if value is None else Decimal(str(value)).quantize(Decimal("0.01"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_random_instants(
    spark: SparkSession,
    mariadb_db: Database,
    postgres_db: Database,
    record_property: Callable[[str, object], None],
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    record_property("seed", seed)
    dice = random.Random(seed)
    fill(mariadb_db, 1000)
    wanted = Request(mariadb_db.url, wait=0.1)
    first = TableRecording(wanted, postgres_db.url).run("current").token
    with writing(mariadb_db, 1000, seed=seed % 1000):
        for _ in range(6):
            run = start(
                *(
                    "changelog",
                    "start",
                    mariadb_db.url,
                    "--to",
                    postgres_db.url,
                    "--interval",
                    "0.1",
                )
            )
            time.sleep(dice.uniform(5, 14))
            with suppress(ProcessLookupError):
                kill(run, dice)
    TableRecording(wanted, postgres_db.url).run("current")
    rows = postgres_db.execute(f"SELECT position, seq FROM {CHANGES}")
    with Following(wanted, parse_keyspace_position(first), "current") as following:
        told = [(change["position"], change["seq"]) for change in following.changes()]
    assert sorted(rows) == sorted(told)
