"""Repairs: applied, they make the target equal, whatever constraints stand in the way."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

import truecopy
from tests.conftest import fresh_database
from tests.program import truecopy as program
from tests.servers import Database, Server
from truecopy.engines import connect
from truecopy.engines.protocols import Writes
from truecopy.model.errors import CannotFinish
from truecopy.verify.repair import apply_repair, unrepaired, write_repair

SCHEMA = """
CREATE TABLE parents (id INT PRIMARY KEY, email VARCHAR(50) UNIQUE, name VARCHAR(50));
CREATE TABLE children (id INT PRIMARY KEY, parent_id INT NOT NULL REFERENCES parents (id), note VARCHAR(50));
INSERT INTO parents VALUES (1, 'a@x', 'Ann'), (2, 'b@x', 'Bob'), (3, 'c@x', 'it''s \\ % é'), (4, 'd@x', NULL);
INSERT INTO children VALUES (1, 1, 'one'), (2, 2, ''), (3, 3, NULL), (4, 4, 'four');
"""
DAMAGE = """
UPDATE parents SET email = 'tmp' WHERE id = 1;
UPDATE parents SET email = 'a@x' WHERE id = 2;
UPDATE parents SET email = 'b@x' WHERE id = 1;
UPDATE parents SET name = 'changed' WHERE id = 3;
DELETE FROM children WHERE id = 4;
DELETE FROM parents WHERE id = 4;
INSERT INTO parents VALUES (9, 'd@x', 'extra');
INSERT INTO children VALUES (9, 9, 'extra');
UPDATE children SET note = NULL WHERE id = 2;
"""


def run(database: Database, script: str) -> None:
    if database.server.scheme == "mariadb":
        script = script.replace("REFERENCES parents (id)", "").replace("\\", "\\\\")
    database.execute(script)
    if database.server.scheme == "mariadb" and "CREATE TABLE" in script:
        database.execute("ALTER TABLE children ADD FOREIGN KEY (parent_id) REFERENCES parents (id)")


PAIRS = [
    ("mariadb_db", "second_mariadb_db"),
    ("mariadb_db", "postgres_db"),
    ("postgres_db", "mariadb_db"),
]


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_applied_repair_makes_equal(left: str, right: str, request: pytest.FixtureRequest) -> None:
    source, target = request.getfixturevalue(left), request.getfixturevalue(right)
    for database in (source, target):
        run(database, SCHEMA)
    run(target, DAMAGE)
    report = truecopy.verify(source.url, target.url)
    assert report.verdict == "different"
    with closing(connect(report.target)) as session:
        assert isinstance(session, Writes)
        assert apply_repair(report, session) > 0
    assert truecopy.verify(source.url, target.url).verdict == "equal"


@pytest.mark.parametrize("right", ["second_mariadb_db", "postgres_db"])
def test_written_repair_runs_in_the_servers_own_client(
    right: str, mariadb_db: Database, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    target: Database = request.getfixturevalue(right)
    for database in (mariadb_db, target):
        run(database, SCHEMA)
    run(target, DAMAGE)
    report = truecopy.verify(mariadb_db.url, target.url)
    script = tmp_path / "repair.sql"
    with closing(connect(report.target)) as session:
        assert isinstance(session, Writes)
        write_repair(report, session, script)
    server = target.server
    if right == "postgres_db":
        command = ["psql", "-v", "ON_ERROR_STOP=1", "-q", target.url, "-f", str(script)]
    else:
        login = [f"-h{server.host}", f"-P{server.port}", f"-u{server.user}", f"-p{server.password}"]
        command = [
            "mariadb",
            *login,
            "--default-character-set=utf8mb4",
            target.name,
            "-e",
            f"source {script}",
        ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert truecopy.verify(mariadb_db.url, target.url).verdict == "equal"


def test_program_asks_applies_and_verifies_again(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    for database in (mariadb_db, second_mariadb_db):
        run(database, SCHEMA)
    run(second_mariadb_db, DAMAGE)
    command = ["verify", mariadb_db.url, second_mariadb_db.url, "--json", "--apply-repair"]
    refused = program(*command)
    assert refused.code == 2
    assert "--yes" in refused.err
    done = program(*command, "--yes", "--repair", str(tmp_path / "repair.sql"))
    assert done.code == 0, done.err
    assert done.document["verdict"] == "equal"


def test_target_written_meanwhile_rolls_back(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    for database in (mariadb_db, second_mariadb_db):
        run(database, SCHEMA)
    second_mariadb_db.execute("UPDATE children SET note = 'x' WHERE id IN (1, 2)")
    report = truecopy.verify(mariadb_db.url, second_mariadb_db.url)
    second_mariadb_db.execute("DELETE FROM children WHERE id = 2")
    with closing(connect(report.target)) as session:
        assert isinstance(session, Writes)
        with pytest.raises(CannotFinish, match="verify again"):
            apply_repair(report, session)
    assert second_mariadb_db.execute("SELECT note FROM children WHERE id = 1") == [("x",)]


def test_rows_of_children_are_compared_and_repaired_where_they_are(
    postgres_db: Database, postgres_server: Server
) -> None:
    """A table of PostgreSQL is read with those that inherit from it."""
    with fresh_database(postgres_server) as target:
        for database in (postgres_db, target):
            database.execute(
                "CREATE TABLE log (id int PRIMARY KEY, v int);"
                "CREATE TABLE log_2024 (PRIMARY KEY (id)) INHERITS (log);"
                "INSERT INTO log VALUES (1, 1); INSERT INTO log_2024 VALUES (2, 2), (1, 7)"
            )
        report = truecopy.verify(postgres_db.url, target.url)
        assert report.verdict == "equal"
        (told, _) = report.tables[0].structure
        assert told.message == (
            "public.log is read with the rows of its children by inheritance (public.log_2024)"
        )
        target.execute("DELETE FROM log_2024 WHERE id = 2")
        report = truecopy.verify(postgres_db.url, target.url)
        (left,) = unrepaired(report)
        assert left.startswith("public.log has children by inheritance")
        with closing(connect(report.target)) as session:
            assert isinstance(session, Writes)
            assert apply_repair(report, session) == 1
        assert truecopy.verify(postgres_db.url, target.url).verdict == "equal"
