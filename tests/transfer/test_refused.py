"""Indexes and foreign keys that the target does not take: told, and no reason to throw a whole copy away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.checking import check, warnings
from truecopy.model.errors import CannotFinish
from truecopy.transfer.run import Listener, Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ways = dict[str, tuple[Database, Database]]
OTHER_TYPE = (
    "CREATE TABLE parent (id BIGINT PRIMARY KEY);"
    "CREATE TABLE child (id INT PRIMARY KEY, up INT REFERENCES parent (id));"
    "INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1, 1)"
)
NOT_UNIQUE = (
    "CREATE TABLE parent (id INT PRIMARY KEY, k INT, KEY (k));"
    "CREATE TABLE child (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES parent (k));"
    "INSERT INTO parent VALUES (1, 1), (2, 1); INSERT INTO child VALUES (1, 1)"
)
ORPHAN = (
    "CREATE TABLE parent (id INT PRIMARY KEY);"
    "CREATE TABLE child (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES parent (id));"
    "SET foreign_key_checks = 0; INSERT INTO child VALUES (1, 1); SET foreign_key_checks = 1"
)
TOO_LONG = (
    "CREATE TABLE child (id INT PRIMARY KEY, b VARBINARY(3000), {0} long_one (b));"
    "INSERT INTO child VALUES (1, (SELECT GROUP_CONCAT(UNHEX(SHA2(seq, 512)) SEPARATOR '')"
    " FROM seq_1_to_46))"
)


@pytest.fixture
def ways(mariadb_db: Database, second_mariadb_db: Database, postgres_db: Database) -> Ways:
    return {
        "mariadb to postgresql": (mariadb_db, postgres_db),
        "postgresql to mariadb": (postgres_db, mariadb_db),
    }


@pytest.mark.parametrize(
    ("way", "made", "statement", "reason", "foreseen"),
    [
        ("postgresql to mariadb", OTHER_TYPE, "ADD FOREIGN KEY (`up`)", "FOREIGN KEY", "up is int"),
        ("mariadb to postgresql", NOT_UNIQUE, 'REFERENCES "public"."parent"', "unique", "k of "),
        ("mariadb to postgresql", ORPHAN, 'REFERENCES "public"."parent"', "violates", ""),
        ("mariadb to postgresql", TOO_LONG.format("KEY"), "CREATE INDEX", "index row size", ""),
    ],
)
def test_what_the_target_does_not_take_is_told_and_left_out(
    spark: SparkSession, ways: Ways, way: str, made: str, statement: str, reason: str, foreseen: str
) -> None:
    source, target = ways[way]
    source.execute(made)
    foretold = [line for line in warnings(check(source, target)) if "will not be made" in line]
    assert [foreseen in line for line in foretold] == ([True] if foreseen else [])
    said: list[str] = []
    settings = Settings("move", source.url, target.url)
    report = Transfer(settings, Listener(said.append)).run(until_caught_up=True)
    assert report.state == "replicate"
    assert report.refused == 1
    (line,) = [line for line in said if "not carried" in line]
    assert statement in line
    assert reason in line
    assert target.execute("SELECT id FROM child") == [(1,)]
    assert Transfer(settings).run(until_caught_up=True).refused == 0


def test_a_unique_index_that_the_target_does_not_take_stops_the_run(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    mariadb_db.execute(TOO_LONG.format("UNIQUE KEY"))
    settings = Settings("move", mariadb_db.url, postgres_db.url)
    for _ in range(2):
        with pytest.raises(CannotFinish, match=r"CREATE UNIQUE INDEX .*index row size"):
            Transfer(settings).run(until_caught_up=True)
    assert read_status(settings).plain()["phase"] == "replay"


def test_a_foreign_key_that_has_to_act_stops_the_run(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    mariadb_db.execute(
        "CREATE TABLE parent (id INT PRIMARY KEY); CREATE TABLE child (id INT PRIMARY KEY, up INT,"
        " FOREIGN KEY (up) REFERENCES parent (id) ON DELETE CASCADE)"
    )
    second_mariadb_db.execute(
        "CREATE TABLE parent (id BIGINT PRIMARY KEY); CREATE TABLE child (id INT PRIMARY KEY, up INT)"
    )
    settings = Settings("move", mariadb_db.url, second_mariadb_db.url, cascades="target")
    with pytest.raises(CannotFinish, match=r"has to act there: ALTER TABLE .*FOREIGN KEY"):
        Transfer(settings).run(until_caught_up=True)
