"""A log as a table of a database, with its progress in the same transactions."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.program import start
from tests.servers import Database
from tests.transfer.load import fill, writing
from tests.transfer.test_killed import kill
from truecopy.changelog.table_log import CHANGES, TableRecording
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
    hostile = "tab\\t, \"quote\", 'single', \\\\, Ä, 😀, new\nline"
    mariadb_db.execute("INSERT INTO item VALUES (1, %s), (2, NULL)", (hostile,))
    mariadb_db.execute("UPDATE item SET name = 'two' WHERE id = 2")
    assert TableRecording(wanted, url).run("current").events == 3
    mariadb_db.execute("DELETE FROM item WHERE id = 1")
    assert TableRecording(wanted, url).run("current").events == 1
    rows = asked(url, f"SELECT * FROM {CHANGES} ORDER BY batch, commit_order, seq")
    assert [row["kind"] for row in rows] == ["insert", "insert", "update", "delete"]
    assert json.loads(rows[0]["after_row"]) == ["1", hostile]
    assert json.loads(rows[1]["after_row"]) == ["2", None]
    assert json.loads(rows[3]["row_key"]) == ["1"]
    (definition,) = asked(url, "SELECT document FROM truecopy_definition")
    assert Definition.from_json(definition["document"]).names == ("id", "name")
    with pytest.raises(UsageError, match="not of"):
        TableRecording(Request(mariadb_db.url, tables=("item",)), url).run("current")


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
