"""Every key of a task file gets to where it has an effect."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.load import fill
from truecopy.model.errors import UsageError
from truecopy.tasks.file import parse_task
from truecopy.tasks.transfer import transfer_settings
from truecopy.transfer.cutover.back import way_back
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings, chunk_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDS = {"task": "keys", "source": "mariadb://u@h/shop", "target": "mariadb://u@h/other"}


def settings(**more: Any) -> Settings:
    return transfer_settings(parse_task({**ENDS, **more}))


def test_how_changes_are_read() -> None:
    how = {"shard": "one", "max-bytes": "8m", "parts": 3, "skew": "5s", "max-lag": "9s"}
    asked = settings(stream={**how, "settings": {"slot": "mine"}})
    request = asked.request
    assert (request.shard, request.max_bytes, request.parts) == ("one", 8 << 20, 3)
    assert (request.skew, request.max_lag, request.settings) == (5.0, 9.0, {"slot": "mine"})
    back = way_back(asked, {}).request
    assert (back.max_bytes, back.shard) == (8 << 20, "")
    assert back.settings.keys() == {"slot"}
    assert back.settings["slot"] != "mine", "of the other end"
    for wrong, said in (
        ({"slto": "x"}, "settings.slto: unknown; did you mean slot"),
        ({"cascades": "target"}, "write cascades: beside stream"),
    ):
        with pytest.raises(UsageError, match=said.replace(".", r"\.")):
            settings(stream={"settings": wrong})


def test_the_size_of_a_chunk() -> None:
    assert chunk_rows(settings(), 200) == 20_000
    assert chunk_rows(settings(), 1 << 20) == 16, "rows of a megabyte must fit into memory"
    assert chunk_rows(settings(chunks={"bytes": "64m"}), 200) == (64 << 20) // 200
    assert chunk_rows(settings(chunks={"bytes": "1k"}), 1 << 20) == 1
    assert chunk_rows(settings(chunks={"rows": 7, "bytes": "64m"}), 200) == 7


def test_who_cascades() -> None:
    assert "cascades" not in settings().request.settings
    asked = settings(cascades="target")
    for one in (asked, way_back(asked, {})):
        assert one.request.settings["cascades"] == "target"


@pytest.mark.slow
def test_a_run_of_all_keys(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    """As a program: the session and the metastore are chosen before they are begun."""
    fill(mariadb_db, 400)
    (tmp_path / "events").mkdir()
    file = tmp_path / "keys.yaml"
    file.write_text(
        f"""
task: keys
source: {mariadb_db.url}
target: {second_mariadb_db.url}
chunks: {{bytes: 4k}}
stream: {{shard: first, parts: 1}}
metastore: "sqlite:///{tmp_path}/meta.db"
spark: {{settings: {{spark.eventLog.enabled: "true", spark.eventLog.dir: "file://{tmp_path}/events"}}}}
""",
        encoding="utf-8",
    )
    ended = program("run", str(file), "--snapshot-only")
    assert ended.code == 0, ended.err
    mariadb_db.execute("UPDATE items SET price = 5 WHERE id = 1")
    ended = program("run", str(file), "--until-caught-up")
    assert ended.code == 0, ended.err
    ((chunks,),) = second_mariadb_db.execute("SELECT COUNT(*) FROM truecopy_chunk")
    assert chunks > 1, "400 rows are one chunk, unless chunks are small"
    parts = [part for (part,) in second_mariadb_db.execute("SELECT part FROM truecopy_progress")]
    assert all(part.split("/")[0] == "first" for part in parts), parts
    with sqlite3.connect(tmp_path / "meta.db") as kept:
        assert kept.execute("SELECT COUNT(*) FROM definition").fetchone()[0]
    assert list((tmp_path / "events").iterdir()), "Spark has written its events"


def test_the_slot_is_the_one_that_was_named(
    spark: SparkSession, postgres_db: Database, second_mariadb_db: Database
) -> None:
    fill(postgres_db, 5)
    asked = settings(
        source=postgres_db.url, target=second_mariadb_db.url, stream={"settings": {"slot": "named"}}
    )
    try:
        Transfer(asked).run(snapshot_only=True)
        assert ("named",) in postgres_db.execute("SELECT slot_name FROM pg_replication_slots")
    finally:
        postgres_db.execute("SELECT pg_drop_replication_slot('named')")


@pytest.mark.long
def test_a_key_that_is_not_the_sources(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """A plain table otherwise: its changes come by the source's key, and go by the one that was named."""
    fill(mariadb_db, 30)
    mariadb_db.execute("CREATE TABLE words (word VARCHAR(20) NOT NULL, number INT)")
    mariadb_db.execute("INSERT INTO words VALUES ('one', 1), ('two', 2)")
    rules = {"items": {"key": ["code"]}, "words": {"key": ["word"]}}
    asked = settings(source=mariadb_db.url, target=second_mariadb_db.url, tables={"rules": rules})
    Transfer(asked).run(until_caught_up=True)
    key = "SELECT column_name FROM information_schema.key_column_usage WHERE constraint_name = 'PRIMARY'"
    of_table = " AND table_schema = DATABASE() AND table_name = "
    assert second_mariadb_db.execute(f"{key}{of_table}'items'") == [("code",)]
    assert second_mariadb_db.execute(f"{key}{of_table}'words'") == [("word",)]
    mariadb_db.execute("UPDATE items SET id = 1000 WHERE id = 7")
    mariadb_db.execute("UPDATE items SET code = 'new' WHERE id = 8")
    mariadb_db.execute("DELETE FROM items WHERE id = 9")
    mariadb_db.execute("UPDATE words SET number = 3 WHERE word = 'two'")
    mariadb_db.execute("DELETE FROM words WHERE word = 'one'")
    Transfer(asked).run(until_caught_up=True)
    rows = "SELECT * FROM items ORDER BY id"
    assert second_mariadb_db.execute(rows) == mariadb_db.execute(rows)
    assert second_mariadb_db.execute("SELECT * FROM words") == [("two", 3)]
