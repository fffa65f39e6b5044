"""The Spark source `truecopy.changes`: offsets, restarts, limits, available-now, a cluster, secrets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import truecopy
from tests.servers import Database
from truecopy.model.endpoint import parse_endpoint
from truecopy.stream.log import Wanted
from truecopy.stream.postgresql import drop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Rows = list[dict[str, Any]]


@pytest.fixture
def items(logged_db: Database) -> Database:
    logged_db.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20))")
    return logged_db


def insert(database: Database, first: int, last: int) -> None:
    database.execute(f"INSERT INTO items SELECT seq, CONCAT('n', seq) FROM seq_{first}_to_{last}")


def drain(changes: DataFrame, checkpoint: Path) -> tuple[Rows, list[dict[str, Any]]]:
    """Everything there is now, and the progress of each batch."""
    rows: Rows = []

    def take(batch: DataFrame, _: int) -> None:
        rows.extend(row.asDict() for row in batch.collect())

    writer = changes.writeStream.foreachBatch(take).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination(120)
    return rows, [json.loads(progress.json) for progress in query.recentProgress]


def wait_until(condition: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def test_available_now_then_a_restart_from_the_checkpoint(
    spark: SparkSession, items: Database, tmp_path: Path
) -> None:
    insert(items, 1, 500)
    changes = truecopy.read_changes(spark, items.url, start="start")
    first, _ = drain(changes, tmp_path)
    assert [row["key"][0] for row in first] == [str(n) for n in range(1, 501)]
    assert {(row["kind"], row["table"], row["shard"]) for row in first} == {
        ("insert", f"{items.name}.items", items.name)
    }
    insert(items, 501, 510)
    items.execute("UPDATE items SET name = 'x' WHERE id = 7")
    second, _ = drain(changes, tmp_path)
    assert [row["key"][0] for row in second] == [*(str(n) for n in range(501, 511)), "7"]
    assert second[-1]["before"] == ["7", "n7"]
    assert second[-1]["after"] == ["7", "x"]
    nothing, _ = drain(changes, tmp_path)
    assert nothing == []


def test_available_now_of_a_postgresql_that_logs_without_changes(
    spark: SparkSession, db: Database, tmp_path: Path
) -> None:
    """Its log ends behind the last change, where no change will ever be."""
    db.execute("CREATE TABLE items (id INT PRIMARY KEY, name TEXT)")
    settings = {"slot": f"s_{db.name}", "work": str(tmp_path / "spool")}
    changes = truecopy.read_changes(spark, db.url, start="current", **settings)
    try:
        assert drain(changes, tmp_path / "checkpoint")[0] == []
        db.execute("INSERT INTO items VALUES (1, 'a'), (2, 'b')")
        db.execute("CREATE TABLE others (id INT PRIMARY KEY)")
        rows, _ = drain(changes, tmp_path / "checkpoint")
        assert [row["key"][0] for row in rows] == ["1", "2"]
    finally:
        drop(parse_endpoint(db.url), Wanted(shard="", settings=settings))


def test_what_is_committed_later_is_left_for_the_next_run(
    spark: SparkSession, items: Database, tmp_path: Path
) -> None:
    """Available-now ends where the log ended when it began, however fast it grows."""
    insert(items, 1, 100)
    seen: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        seen.append(batch.count())
        first = 1000 * len(seen)
        insert(items, first, first + 9)

    changes = truecopy.read_changes(spark, items.url, start="start")
    writer = changes.writeStream.foreachBatch(take).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(120)
    assert sum(seen) == 100


def test_admission_by_bytes_whose_atom_is_a_transaction(
    spark: SparkSession, items: Database, tmp_path: Path
) -> None:
    for number in range(40):
        insert(items, number * 100 + 1, number * 100 + 100)
    changes = truecopy.read_changes(spark, items.url, start="start", max_bytes=4000)
    rows, progress = drain(changes, tmp_path)
    assert len(rows) == 4000
    sizes = [batch["numInputRows"] for batch in progress if batch["numInputRows"]]
    assert len(sizes) > 10
    assert all(size % 100 == 0 for size in sizes)
    assert [int(row["key"][0]) for row in rows] == list(range(1, 4001))


@pytest.mark.long
def test_partitions_give_the_rows_that_one_gives(
    spark: SparkSession, items: Database, tmp_path: Path
) -> None:
    for number in range(100):
        insert(items, number * 150 + 1, number * 150 + 150)
    found = []
    for parts in (1, 2, 7):
        changes = truecopy.read_changes(spark, items.url, start="start", parts=parts)
        rows, _ = drain(changes, tmp_path / str(parts))
        found.append(sorted(rows, key=lambda row: (row["position"], row["seq"])))
    assert len(found[0]) == 15_000
    keys = ("position", "txn", "seq", "kind", "key", "before", "after", "schema_id", "committed_at")
    plain = [[tuple(str(row[key]) for key in keys) for row in rows] for rows in found]
    assert plain[0] == plain[1] == plain[2]


def test_live_changes_arrive_and_progress_tells_the_lag(
    spark: SparkSession, items: Database, tmp_path: Path
) -> None:
    rows: Rows = []

    def take(batch: DataFrame, _: int) -> None:
        rows.extend(row.asDict() for row in batch.collect())

    changes = truecopy.read_changes(spark, items.url)
    writer = changes.writeStream.foreachBatch(take)
    query: StreamingQuery = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        wait_until(lambda: query.lastProgress is not None)
        insert(items, 1, 3)
        wait_until(lambda: len(rows) == 3)
        wait_until(lambda: _reported(query) is not None)
        assert set(_reported(query) or {}) == {"lag_bytes", "lag_ms"}
    finally:
        query.stop()


def _reported(query: StreamingQuery) -> dict[str, int] | None:
    progress = query.lastProgress
    found: dict[str, int] | None = (
        progress and json.loads(progress.json)["sources"][0]["latestOffset"]
    )
    return found


def test_as_a_table(spark: SparkSession, items: Database) -> None:
    """The same source, read once from one point to another."""
    truecopy.read_changes(spark, items.url)  # makes the format known to the session
    insert(items, 1, 20)
    reader = spark.read.format("truecopy.changes").option("endpoint", items.url)
    assert reader.option("from", "start").load().count() == 20


def test_an_unknown_option_is_refused(spark: SparkSession, items: Database, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"no option max_byte.*did you mean max_bytes"):
        drain(truecopy.read_changes(spark, items.url, max_byte=1), tmp_path)


def test_no_password_in_plans_and_progress(
    spark: SparkSession, items: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    insert(items, 1, 3)
    changes = truecopy.read_changes(spark, items.url, start="start")
    changes.explain(extended=True)
    _, progress = drain(changes, tmp_path)
    texts = [capfd.readouterr().out, json.dumps(progress)]
    texts += [file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file()]
    assert len(texts) > 3
    assert not any(items.server.password in text for text in texts)
