"""What `truecopy run` looks at before it begins, and what it does not look at again when it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.checking import check, found
from tests.transfer.load import fill
from tests.verify.test_wrong_input import one_line
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.finding import Level, Subject
from truecopy.model.relation import WHOLE
from truecopy.transfer.ledger import Ledger
from truecopy.transfer.preflight.check import before_a_run
from truecopy.transfer.settings import Settings


def test_what_must_be_mended_ends_it_before_anything_is_written(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    fill(mariadb_db, 5)
    fill(second_mariadb_db, 1)
    file = tmp_path / "first.yaml"
    ends = f"task: first\nsource: {mariadb_db.url}\ntarget: {second_mariadb_db.url}\n"
    file.write_text(ends, encoding="utf-8")
    one_line(program("run", str(file)), 2, "items on the target is not empty", "DELETE FROM")
    second_mariadb_db.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    second_mariadb_db.execute("INSERT INTO other VALUES (1)")
    mariadb_db.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    one_line(program("run", str(file)), 2, f"(1 more: truecopy check {file})")
    assert [name for (name,) in second_mariadb_db.execute("SHOW TABLES")] == ["items", "other"]


def test_warnings_are_told_once(mariadb_db: Database, second_mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE bare (word VARCHAR(20))")
    fill(mariadb_db, 5)
    settings = Settings("first", mariadb_db.url, second_mariadb_db.url)
    told = before_a_run(settings)
    assert {one.level for one in told} == {Level.WARNING}
    assert any("it has no key" in str(one) for one in told)
    began(settings, f"{mariadb_db.name}.bare", f"{mariadb_db.name}.items")
    assert before_a_run(settings) == []


def test_a_run_that_goes_on_does_not_ask_for_empty_tables(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 5)
    fill(second_mariadb_db, 5)
    settings = Settings("first", mariadb_db.url, second_mariadb_db.url)
    (refused,) = before_a_run(settings)
    assert "not empty" in str(refused)
    began(settings, f"{mariadb_db.name}.items")
    assert before_a_run(settings) == []
    ((image,),) = mariadb_db.execute("SELECT @@GLOBAL.binlog_row_image")
    mariadb_db.execute("SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        (refused,) = before_a_run(settings)
    finally:
        mariadb_db.execute(f"SET GLOBAL binlog_row_image = '{image}'")
    assert (refused.level, refused.subject) == (Level.ERROR, Subject.LOG)


def test_a_table_whose_rows_are_of_no_known_moment(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """Such a run would copy nothing of it and end; the check says so before."""
    mariadb_db.execute("CREATE TABLE bare (word VARCHAR(20)) ENGINE = MyISAM")
    refused = found(check(mariadb_db, second_mariadb_db), Subject.KEYS, "no snapshots")
    assert (refused.level, refused.table) == (Level.ERROR, f"{mariadb_db.name}.bare")
    assert "give it a key" in refused.remedy


def began(settings: Settings, *tables: str) -> None:
    """As a first run leaves it."""
    with connect(parse_endpoint(settings.target)) as session:
        ledger = Ledger(cast(Any, session), settings.task)
        ledger.create()
        epoch = ledger.claim({}).epoch
        for table in tables:
            ledger.plan(table, [WHOLE], epoch)
