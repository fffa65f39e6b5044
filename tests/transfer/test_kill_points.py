"""SIGKILL between two steps that must not be taken for one: the same command goes on, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import truecopy
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.killing import await_death, started_to_die, wait_until
from tests.transfer.load import fill
from tests.transfer.sharded import fill as fill_shard
from tests.transfer.sharded import held, keyspace, task_file, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def written_task(folder: Path, source: Database, target: Database) -> str:
    file = folder / "move.yaml"
    file.write_text(
        f"task: move\nsource: {source.url}\ntarget: {target.url}\nchunks: {{rows: 500}}\n"
    )
    return str(file)


def go_on(file: str) -> None:
    ended = program("run", file, "--until-caught-up")
    assert ended.code == 0, ended.err


def rows(database: Database, table: str) -> list[tuple[Any, ...]]:
    return sorted(database.execute(f"SELECT * FROM {table}"))


def test_between_the_claim_and_the_first_plan(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    """Where changes begin is decided, and what is to be copied is not."""
    fill(mariadb_db, 2000)
    file = written_task(tmp_path, mariadb_db, second_mariadb_db)
    await_death(started_to_die("truecopy.transfer.ledger:Ledger.claim", "run", file))
    assert second_mariadb_db.execute("SELECT phase FROM truecopy_task") == [("snapshot",)]
    assert not second_mariadb_db.execute("SELECT * FROM truecopy_chunk")
    mariadb_db.execute("DELETE FROM items WHERE id % 7 = 0")
    mariadb_db.execute("UPDATE items SET id = -id WHERE id % 5 = 0")
    go_on(file)
    assert rows(second_mariadb_db, "items") == rows(mariadb_db, "items")


def test_between_a_new_column_and_the_first_change_that_has_it(
    mariadb_db: Database, postgres_db: Database, tmp_path: Path
) -> None:
    mariadb_db.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20))")
    mariadb_db.execute("INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    file = written_task(tmp_path, mariadb_db, postgres_db)
    go_on(file)
    run = started_to_die("truecopy.transfer.carried:run_all", "run", file)

    def carries() -> bool:
        mariadb_db.execute("UPDATE items SET name = CONCAT('x', id) WHERE id = 1")
        return postgres_db.execute("SELECT name FROM items WHERE id = 1") == [("x1",)]

    wait_until(carries, run)
    mariadb_db.execute(
        "ALTER TABLE items ADD COLUMN note VARCHAR(30);"
        "INSERT INTO items VALUES (3, 'c', 'first'); UPDATE items SET note = 'second' WHERE id = 2"
    )
    await_death(run)
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'items'"
    assert ("note",) in postgres_db.execute(columns)
    assert not postgres_db.execute("SELECT * FROM items WHERE note IS NOT NULL")
    go_on(file)
    assert rows(postgres_db, "items") == rows(mariadb_db, "items")
    assert truecopy.verify(mariadb_db.url, postgres_db.url, tables=("items",)).verdict == "equal"


def test_between_the_origin_and_the_first_part(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    """A shard has recorded what feeds it, and the ledger does not know yet from where on."""
    fill_shard(mariadb_db)
    file = str(task_file(tmp_path, mariadb_db.url, keyspace({"-": second_mariadb_db})))
    await_death(started_to_die("truecopy.transfer.origins:Origins.begin", "run", file))
    assert len(second_mariadb_db.execute("SELECT * FROM truecopy_origin")) == 1
    assert not second_mariadb_db.execute("SELECT * FROM truecopy_progress")
    write(mariadb_db)
    go_on(file)
    assert held(second_mariadb_db) == held(mariadb_db)
    write(mariadb_db, seed=2)
    go_on(file)
    assert held(second_mariadb_db) == held(mariadb_db)
    assert len(second_mariadb_db.execute("SELECT * FROM truecopy_origin")) == 1
