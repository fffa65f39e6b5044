"""`truecopy verify --task`: a task verified from outside, while it runs under a write load and while it stands."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.beside import beside
from tests.transfer.load import fill
from tests.verify.test_wrong_input import one_line
from truecopy.tasks.file import load_task
from truecopy.tasks.transfer import transfer_settings
from truecopy.transfer.deletion import delete_task
from truecopy.transfer.proof.alone import verify_task
from truecopy.transfer.proof.verifier import NotProven
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.status import read_status
from truecopy.verify.options import Options
from truecopy.verify.report import Report, TableReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAPPED = """
tables: {rules: {people: {filter: "id % 2 = 0"}}}
routes: {people: {table: persons, columns: {mail: address}}}
transformers: {people: {mask: [mail]}, tokens: {mask: [id]}}
mask-key: a key that nobody knows
verify: {inline: false}
"""
QUICK = Options(delay=1.0, settle_time=120.0)


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_a_running_task_is_equal_under_load_and_rogue_writes_are_found(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    """Plain, routed, filtered, masked, with a masked key, without a key: all of them, in flight and damaged."""
    file, target = task_file(tmp_path, mariadb_db, second_mariadb_db, MAPPED), second_mariadb_db
    fill_all(mariadb_db)
    settings = transfer_settings(load_task(file))
    with running(spark, settings), writing(mariadb_db):
        found = verify_task(settings, ("iterative",), options=QUICK)
        assert found.verdict == "equal", found.to_dict()
        assert by_table(found)["people"].rows_compared == 100
        assert by_table(found)["people"].target == f"{target.name}.persons"
        assert all(table.rows_compared for table in found.tables)
        target.execute("UPDATE items SET name = 'rogue' WHERE id = 5")
        target.execute("UPDATE persons SET address = 'rogue' WHERE id = 4")
        target.execute("DELETE FROM persons WHERE id = 2")
        target.execute("DELETE FROM tokens WHERE name = 'token 3'")
        target.execute("INSERT INTO `lines` VALUES ('rogue', 1)")
        found = verify_task(settings, ("checksum",), options=QUICK)
    assert (found.verdict, found.exit_code) == ("different", 1)
    tables = by_table(found)
    assert (tables["items"].differing, tables["people"].differing) == (1, 1)
    assert (tables["people"].missing, tables["tokens"].missing, tables["lines"].extra) == (1, 1, 1)
    shown = [found.describe(tables["people"], one) for one in found.differences(tables["people"])]
    (damaged,) = [one for one in shown if one["kind"] == "differs"]
    assert (damaged["key"], damaged["target"]) == ({"id": "4"}, {"address": "rogue"})
    assert json.loads(Path(found.certificate).read_text("utf-8"))["task"] == settings.task


@pytest.mark.long
def test_a_task_that_stands(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    more = "verify: {inline: true, target: true}\n"
    file = task_file(tmp_path, mariadb_db, second_mariadb_db, more)
    fill(mariadb_db, 100)
    mariadb_db.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    mariadb_db.execute("INSERT INTO other VALUES (1)")
    settings = transfer_settings(load_task(file))
    Transfer(settings).run(until_caught_up=True)
    before = second_mariadb_db.execute("SELECT * FROM truecopy_task")
    ended = program("verify", "--task", file, "--json")
    assert ended.code == 0, ended
    assert {table["rows_compared"] for table in ended.document["tables"]} == {100, 1}
    # Not told from a change that is on its way, since that table has one.
    mariadb_db.execute("UPDATE items SET name = 'later' WHERE id = 7")
    second_mariadb_db.execute("INSERT INTO other VALUES (9)")
    found = verify_task(settings, ("iterative",), options=QUICK)
    items, other = by_table(found)["items"], by_table(found)["other"]
    assert (items.verdict, items.unsettled) == ("not_compared", 1)
    assert "does not run" in (items.reason or "")
    assert (other.verdict, other.extra) == ("different", 1)
    ended = program("verify", "--task", file, "--json", "--delay", "1", "--verifier", "target")
    assert ended.code == 1, ended
    (table,) = [one for one in ended.document["tables"] if one["source"].endswith("other")]
    assert [one["kind"] for one in table["structure"]] == ["rogue"]
    assert "id=9" in table["structure"][0]["message"]
    again = program("verify", "--task", file, "--json", "--delay", "1", "--verifier", "target")
    assert again.code == 1, "asking does not move the task's own verifier"
    assert second_mariadb_db.execute("SELECT * FROM truecopy_task") == before


@pytest.mark.long
def test_wrong_input_is_one_line(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    file = task_file(tmp_path, mariadb_db, second_mariadb_db)
    fill(mariadb_db, 5)
    one_line(program("verify"), 2, "SOURCE and TARGET", "--task")
    one_line(program("verify", "--task", str(tmp_path / "none.yaml")), 2, "none.yaml")
    one_line(program("verify", "--task", file), 2, "has not begun")
    one_line(program("verify", "--task", file, "--verifier", "all"), 2, "no verifier all")
    one_line(program("verify", "--task", file, "--where", "1"), 2, "--where does not go with")
    one_line(program("verify", mariadb_db.url, "--task", file), 2, "SOURCE does not go with")
    one_line(program("verify", mariadb_db.url, mariadb_db.url, "--verifier", "target"), 2, "--task")
    assert not second_mariadb_db.execute("SHOW TABLES"), "asking leaves nothing behind"


def test_a_task_that_copies_is_refused(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    file = task_file(tmp_path, mariadb_db, second_mariadb_db)
    fill(mariadb_db, 5)
    settings = transfer_settings(load_task(file))
    Transfer(settings).run(snapshot_only=True)
    second_mariadb_db.execute("UPDATE truecopy_task SET phase = 'snapshot'")
    one_line(program("verify", "--task", file), 2, "still copying")


@pytest.mark.long
def test_where_the_log_is_handed_out_once(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database, tmp_path: Path
) -> None:
    more = "verify: {inline: true, target: true}\n"
    file = task_file(tmp_path, mariadb_db, postgres_db, more)
    fill(mariadb_db, 5)
    settings = transfer_settings(load_task(file))
    Transfer(settings).run(until_caught_up=True)
    try:
        by_target = "verify", "--task", file, "--json", "--delay", "1", "--verifier", "target"
        assert program(*by_target).code == 0
        postgres_db.execute("UPDATE items SET price = price WHERE id = 3")
        for _ in range(2):  # asking does not move the task's own verifier
            ended = program(*by_target)
            assert ended.code == 1, ended
            (items,) = ended.document["tables"]
            assert (items["differing"], [one["kind"] for one in items["structure"]]) == (
                0,
                ["rogue"],
            )
        with pytest.raises(NotProven, match="id=3") as raised:
            Transfer(settings).run(until_caught_up=True)
        raised.value.told()
        assert program(*by_target).code == 0, "it was told of"
        with running(spark, settings):  # whose own verifier reads the same log
            mariadb_db.execute("UPDATE items SET name = 'ours' WHERE id = 4")
            assert program(*by_target).code == 0
    finally:
        delete_task(settings)


def task_file(folder: Path, source: Database, target: Database, more: str = "") -> str:
    file = folder / "alone.yaml"
    head = f"task: alone\nsource: {source.url}\ntarget: {target.url}\n"
    file.write_text(head + more, encoding="utf-8")
    return str(file)


def by_table(report: Report) -> dict[str, TableReport]:
    return {table.source.rpartition(".")[2]: table for table in report.tables}


def fill_all(database: Database) -> None:
    fill(database, 200)
    database.execute(
        "CREATE TABLE people (id INT PRIMARY KEY, mail VARCHAR(40), age INT);"
        "CREATE TABLE tokens (id INT PRIMARY KEY, name VARCHAR(40));"
        "CREATE TABLE `lines` (word VARCHAR(20), number INT)"
    )
    numbers = range(200)
    database.executemany(
        "INSERT INTO people VALUES (%s, %s, %s)", [(n, f"p{n}@example.org", 0) for n in numbers]
    )
    database.executemany("INSERT INTO tokens VALUES (%s, %s)", [(n, f"token {n}") for n in numbers])
    database.executemany("INSERT INTO `lines` VALUES (%s, %s)", [("word", n) for n in numbers])


@contextmanager
def writing(database: Database) -> Iterator[None]:
    """Goes through the rows, so that some are on their way at any time, and leaves the first ten alone."""

    def write(stop: threading.Event) -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            number = 0
            while not stop.wait(0.4):
                number += 1
                row = 10 + number % 190
                cursor.execute("UPDATE items SET price = %s WHERE id = %s", (number, row))
                cursor.execute("UPDATE people SET age = %s WHERE id = %s", (number, row))
                cursor.execute("UPDATE tokens SET name = %s WHERE id = %s", (f"n{number}", row))
                cursor.execute("INSERT INTO `lines` VALUES ('more', %s)", (number,))
                connection.commit()

    with beside(write):
        yield


@contextmanager
def running(spark: SparkSession, settings: Settings) -> Iterator[None]:
    """The task replicates beside the block."""
    with ThreadPoolExecutor(1) as beside:
        run = beside.submit(Transfer(settings).run)
        deadline = time.monotonic() + 120
        while read_status(settings).progress.phase != "replicate":
            assert not run.done(), run.result()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        try:
            yield
        finally:
            while not run.done():
                for query in spark.streams.active:
                    query.stop()
                time.sleep(0.2)
        run.result()
