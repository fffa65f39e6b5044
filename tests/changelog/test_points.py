"""Tables restored at random points equal what a transaction saw there."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.changelog.recorded import Seen, record, recording, seen_now, wait_until_ready
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.load import fill, writing
from truecopy.changelog.restore import restore
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "SELECT HEX(CONCAT_WS('|', id, code, name, price, made, note)) FROM {} ORDER BY id"


def seen_at_random(database: Database, points: int, dice: random.Random) -> list[Seen]:
    found = []
    for _ in range(points):
        time.sleep(dice.uniform(0.05, 0.6))
        found.append(seen_now(database, ROWS.format("items")))
    return found


@pytest.mark.long
@pytest.mark.parametrize("points", [5, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_a_table_restored_at_random_points(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    tmp_path: Path,
    points: int,
    record_property: Callable[[str, object], None],
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    record_property("seed", seed)
    fill(mariadb_db, 2000)
    log, request = tmp_path / "log", Request(mariadb_db.url, wait=0.1)
    with writing(mariadb_db, 2000, seed=seed % 1000), recording(request, log):
        wait_until_ready(log)
        seen = seen_at_random(mariadb_db, points, random.Random(seed))
    for number, one in enumerate(seen):
        report = restore(log, "items", one.token, second_mariadb_db.url, name=f"items_{number}")
        assert second_mariadb_db.execute(ROWS.format(f"items_{number}")) == one.rows
        assert report.rows == len(one.rows)


@pytest.mark.long
def test_times_and_what_cannot_be(
    spark: SparkSession, mariadb_db: Database, tmp_path: Path
) -> None:
    """By the program, as a user does it, and onto another engine."""
    mariadb_db.execute(
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(10,2))"
    )
    mariadb_db.execute("INSERT INTO item VALUES (1, 'one', 1.10), (2, 'two', 2.20)")
    early = seen_now(mariadb_db, "SELECT 1").token
    log, request = tmp_path / "log", Request(mariadb_db.url, wait=0.1)
    mariadb_db.execute("INSERT INTO item VALUES (3, 'three', 3.30)")
    record(request, log)
    time.sleep(1.5)
    mariadb_db.execute("UPDATE item SET price = 9 WHERE id = 1; DELETE FROM item WHERE id = 2")
    time.sleep(1.5)
    between = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    time.sleep(1.5)
    mariadb_db.execute("INSERT INTO item VALUES (4, NULL, NULL)")
    mariadb_db.execute("TRUNCATE item; INSERT INTO item VALUES (5, 'five', 5.50)")
    record(request, log)
    target = f"sqlite:///{tmp_path / 'then.db'}"
    (tmp_path / "then.db").touch()
    ended = program(
        "changelog",
        "restore",
        str(log),
        "--table",
        "item",
        "--at",
        between,
        "--to",
        target,
        "--json",
    )
    assert ended.code == 0, ended.err
    assert ended.document["rows"] == 2
    ended = program(
        *(
            "changelog",
            "diff",
            str(log),
            "--table",
            "item",
            "--at",
            between,
            "--and",
            "current",
            "--json",
        )
    )
    assert ended.code == 1, ended.err
    assert sorted(line.split('"')[3] for line in ended.out.splitlines()) == [
        "delete",
        "delete",
        "insert",
    ]
    with pytest.raises(UsageError, match="before its base was complete"):
        restore(log, "item", early, target, name="early")
    with pytest.raises(UsageError, match="is not empty"):
        restore(log, "item", "current", target)
    with pytest.raises(CannotFinish, match="has come to"):
        restore(log, "item", "2999-01-01T00:00:00Z", target, name="late")
    with pytest.raises(UsageError, match="there are item"):
        restore(log, "nothing", "current", target)
    with pytest.raises(UsageError, match="before its base was complete"):
        restore(log, "item", "2020-01-01", target, name="by_time")
