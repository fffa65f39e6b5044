"""Keyspaces as sources and targets: rows by key range, origins in the same transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.program import truecopy
from tests.servers import Database, Server
from tests.transfer.sharded import (
    TWO,
    fill,
    held,
    is_in,
    keyspace,
    keyspace_file,
    legs_of,
    shards_of,
    task_file,
    together,
    write,
)
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.stream.follow import Following
from truecopy.stream.request import Request
from truecopy.transfer.equal import begin_equal
from truecopy.transfer.fleet import Fleet
from truecopy.transfer.proof.alone import verify_task
from truecopy.transfer.run import RunReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def targets(second_mariadb_server: Server) -> Iterator[dict[str, Database]]:
    with shards_of(second_mariadb_server) as made:
        yield made


@pytest.mark.long
def test_a_database_is_split_into_two_shards(
    spark: SparkSession, mariadb_db: Database, targets: dict[str, Database], tmp_path: Path
) -> None:
    fill(mariadb_db)
    shards = {"-": mariadb_db, **targets}
    file = keyspace_file(tmp_path, shards, serving=["-"])
    with Following(Request(str(file)), "current", "current") as following:
        start = following.offset.token()
    legs = legs_of(task_file(tmp_path, mariadb_db.url, keyspace(targets)))
    assert [leg.task for leg in legs] == ["reshard:-80", "reshard:80-"]
    first = Fleet(legs).run(snapshot_only=True)
    assert first.state == "snapshot"
    assert first.tables[f"{mariadb_db.name}.account"].rows_copied == 200
    write(mariadb_db)
    mariadb_db.execute("INSERT INTO account VALUES (500, 'last')")
    assert Fleet(legs).run(until_caught_up=True).state == "replicate"
    for shard, database in targets.items():
        assert held(database) == held(mariadb_db, shard)
        ((name, position, at),) = database.execute("SELECT * FROM truecopy_origin")
        assert (name, bool(position), at > 0) == ("-", True, True)
        assert len(database.execute("SHOW INDEX FROM account")) == 2, "the unique key as well"
    assert together(list(targets.values())) == held(mariadb_db)
    assert [verify_task(leg).verdict for leg in legs] == ["equal"] * 2

    # The stream of the keyspace steps over to the shards, past all that was copied and replicated.
    keyspace_file(tmp_path, shards, serving=TWO)
    for shard, number in {"-80": 501, "80-": 504}.items():
        assert is_in(shard, number)
        targets[shard].execute("INSERT INTO account VALUES (%s, 'new')", (number,))
    with Following(Request(str(file)), start, "current") as following:
        changes = [change for change in following.changes() if change["key"]]
    assert {change["shard"] for change in changes[-2:]} == set(TWO)
    new = [
        int(c["key"]["id"]) for c in changes if c["kind"] == "insert" and "account" in c["table"]
    ]
    assert sorted(new) == [500, 501, 504], "each once"
    assert not [c for c in changes if "truecopy" in c["table"]]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("target", ["mariadb_db", "postgres_db"])
def test_two_shards_are_merged(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    targets: dict[str, Database],
    tmp_path: Path,
    target: str,
) -> None:
    merged: Database = request.getfixturevalue(target)
    for shard, database in targets.items():
        fill(database, shard)
    legs = legs_of(task_file(tmp_path, keyspace(targets), merged.url))
    Fleet(legs).run(until_caught_up=True)
    assert held(merged) == together(list(targets.values()))
    for seed, (shard, database) in enumerate(targets.items()):
        write(database, shard, seed)
    targets["80-"].execute("TRUNCATE TABLE account")
    Fleet(legs).run(until_caught_up=True)
    assert held(merged) == together(list(targets.values()))
    assert held(merged, "-80")["account"]
    assert [verify_task(leg).verdict for leg in legs] == ["equal"] * 2
    merged.execute("DELETE FROM orders WHERE id = %s", (held(merged)["orders"][-1][0],))
    assert sorted(verify_task(leg).verdict for leg in legs) == ["different", "equal"]


@pytest.mark.long
def test_check_and_status_show_each_leg(
    mariadb_db: Database, targets: dict[str, Database], tmp_path: Path
) -> None:
    fill(mariadb_db, rows=20)
    mariadb_db.execute("CREATE TABLE settings (name VARCHAR(20) NOT NULL PRIMARY KEY)")
    task = str(task_file(tmp_path, mariadb_db.url, keyspace(targets)))
    found = truecopy("check", task, "--json")
    assert found.code == 1, found.err
    assert [leg["task"] for leg in found.document["legs"]] == ["reshard:-80", "reshard:80-"]
    for leg in found.document["legs"]:
        assert "consistent by transaction" in leg["guarantee"]["effective"]["text"]
        errors = [one["message"] for one in leg["findings"] if one["level"] == "error"]
        assert len(errors) == 1
        assert "nothing says how" in errors[0]
        told = [one["message"] for one in leg["findings"] if one["subject"] == "tables"]
        assert any("of shard -, and truecopy_origin on" in line for line in told)
    mariadb_db.execute("DROP TABLE settings")
    mariadb_db.execute("ALTER TABLE orders MODIFY owner BIGINT NULL")
    mariadb_db.execute("UPDATE orders SET owner = NULL WHERE id = 7")
    found = truecopy("check", task, "--json")
    assert "belong to no shard" in found.out
    mariadb_db.execute("DELETE FROM orders WHERE id = 7")
    assert truecopy("check", task, "--json").document["verdict"] == "ready"
    status = truecopy("status", task, "--json").document
    assert [leg["state"] for leg in status["legs"]] == ["not begun"] * 2
    paused = truecopy("pause", task)
    assert paused.out == "reshard:-80: paused\nreshard:80-: paused\n"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"delivery": "at-most-once", "consistency": "row"}, "cannot be had on a shard"),
        ({"target": {"-80": "", "40-": ""}}, "-80 and 40- overlap"),
        (
            {"source": {"-": ""}, "sharding": {"orders": {"column": "id"}}},
            "sharding.orders.function: missing",
        ),
    ],
)
def test_what_a_keyspace_cannot_be(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    url = "mariadb://nobody@nowhere/shop"
    sharding = more.pop("sharding", {})

    def end(shards: dict[str, str] | str) -> object:
        if isinstance(shards, str):
            return shards
        servers = {name: {"servers": [url]} for name in shards}
        return {"keyspace": "shop", "shards": servers, "sharding": sharding}

    ends = {"source": url, "target": {"-80": ""}} | more
    path = task_file(tmp_path, end(ends.pop("source")), end(ends.pop("target")), **ends)
    with pytest.raises(UsageError, match=message):
        legs_of(path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_replication_in_both_directions(
    spark: SparkSession, mariadb_db: Database, targets: dict[str, Database], tmp_path: Path
) -> None:
    """What comes back is left out, and does not go round."""
    fill(mariadb_db)
    forth = legs_of(task_file(tmp_path, keyspace({"-": mariadb_db}), keyspace(targets)))
    Fleet(forth).run(until_caught_up=True)
    (tmp_path / "back").mkdir()
    back = legs_of(
        task_file(tmp_path / "back", keyspace(targets), keyspace({"-": mariadb_db}), task="back")
    )
    for leg in back:
        begin_equal(leg)
    Fleet(back).run(until_caught_up=True)
    for seed, (shard, database) in enumerate(targets.items()):
        write(database, shard, seed, times=40)
    assert changes_of(Fleet(back).run(until_caught_up=True)) > 0
    assert held(mariadb_db) == together(list(targets.values()))
    assert changes_of(Fleet(forth).run(until_caught_up=True)) == 0
    mariadb_db.execute("INSERT INTO account VALUES (900, 'late')")
    assert changes_of(Fleet(forth).run(until_caught_up=True)) == 1
    assert changes_of(Fleet(back).run(until_caught_up=True)) == 0
    assert held(mariadb_db) == together(list(targets.values()))
    names = [name for (name,) in mariadb_db.execute("SELECT shard FROM truecopy_origin ORDER BY 1")]
    assert names == ["-80", "80-"]


def changes_of(report: RunReport) -> int:
    return sum(table.changes_applied for table in report.tables.values())


def test_a_leg_reads_from_the_first_server_that_answers(
    mariadb_db: Database, tmp_path: Path
) -> None:
    gone = "mariadb://root@127.0.0.1:1/shop"
    source = keyspace({"-": mariadb_db})
    source["shards"]["-"]["servers"].insert(0, gone)
    (leg,) = legs_of(task_file(tmp_path, source, mariadb_db.url))
    assert leg.source == mariadb_db.url
    source["shards"]["-"]["servers"] = [gone, gone]
    with pytest.raises(CannotFinish, match="no server of shard - answers"):
        legs_of(task_file(tmp_path, source, mariadb_db.url))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", ["mariadb_db", "postgres_db"])
def test_rows_that_move_to_another_shard_arrive(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    targets: dict[str, Database],
    tmp_path: Path,
    target: str,
) -> None:
    """Each leg meets rows of the other that are to go, and its deletes come after inserts of the other."""
    merged: Database = request.getfixturevalue(target)
    for shard, database in targets.items():
        fill(database, shard, 60)
    legs = legs_of(task_file(tmp_path, keyspace(targets), merged.url))
    low, high = (_orders(targets[shard], 3) for shard in TWO)
    Fleet(legs[:1]).run(snapshot_only=True)
    _move(targets, "-80", "80-", low[0])  # between the copies: the second one meets it
    Fleet(legs).run(until_caught_up=True)
    assert held(merged) == together(list(targets.values()))
    _move(targets, "80-", "-80", high[0])  # deleted by the leg that comes last
    _move(targets, "80-", "-80", high[1])
    _move(targets, "-80", "80-", low[1])  # and both ways in one batch
    _move(targets, "-80", "80-", low[2])
    _move(targets, "80-", "-80", low[2])  # and back
    Fleet(legs).run(until_caught_up=True)
    assert held(merged) == together(list(targets.values()))
    assert [verify_task(leg).verdict for leg in legs] == ["equal"] * 2


def _orders(database: Database, count: int) -> list[int]:
    return [number for (number,) in database.execute("SELECT id FROM orders")][:count]


def _move(shards: dict[str, Database], old: str, new: str, number: int) -> None:
    """An application lets a row have an owner of another shard."""
    owner = next(n for n in range(50) if is_in(new, n))
    shards[old].execute("DELETE FROM orders WHERE id = %s", (number,))
    shards[new].execute("INSERT INTO orders VALUES (%s, %s, 'moved')", (number, owner))
