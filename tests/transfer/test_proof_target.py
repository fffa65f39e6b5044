"""The target verifier: whoever else writes to the target is told of; our own writes are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.load import fill, writing
from tests.transfer.proving import Proving
from truecopy.engines.loading import comment
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.transfer.proof.inline import InlineVerifier
from truecopy.transfer.proof.store import ReverifyStore
from truecopy.transfer.proof.target_log import TargetVerifier
from truecopy.transfer.proof.verifier import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

TARGETS = ("second_mariadb_db", "postgres_db")


@pytest.fixture(params=TARGETS)
def proving(spark: SparkSession, mariadb_db: Database, request: pytest.FixtureRequest) -> Proving:
    """A task that has copied 20 rows and made its indexes."""
    target: Database = request.getfixturevalue(request.param)
    made = Proving(spark, mariadb_db, target, request.node.name)
    fill(mariadb_db, 20)
    made.run()
    return made


@pytest.fixture(params=TARGETS)
def standing(spark: SparkSession, mariadb_db: Database, request: pytest.FixtureRequest) -> Proving:
    """A task that does not run: both sides are there, and somebody else writes."""
    target: Database = request.getfixturevalue(request.param)
    for side in (mariadb_db, target):
        stand(side)
    return Proving(spark, mariadb_db, target, request.node.name)


def stand(side: Database) -> None:
    side.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20), price INT)")
    side.executemany("INSERT INTO items VALUES (%s, %s, %s)", [(n, "some", n) for n in range(9)])


def started(proving: Proving) -> TargetVerifier:
    endpoint = parse_endpoint(proving.target.url)
    verifier = TargetVerifier(proving.scene(), proving.store(), endpoint)
    verifier.start(resumed=False)
    return verifier


def test_our_own_writes_are_no_rogue_writes(proving: Proving) -> None:
    verifier = started(proving)
    with writing(proving.source, 20):
        for _ in range(2):
            proving.run()
            assert verifier.work().found == 0
    proving.run()
    ended = verifier.finish()
    assert ended.passed, ended
    assert ended.rows > 0


ROGUE = {
    "without an annotation": "UPDATE items SET price = 0 WHERE id = 5",
    "foreign": "/* app */ UPDATE items SET price = 0 WHERE id = 5",
    "ours second": "/* app */ {ours} UPDATE items SET price = 0 WHERE id = 5",
    "ours at the end": "UPDATE items SET price = 0 WHERE id = 5 {ours}",
    "like ours": "/* {name}! */ UPDATE items SET price = 0 WHERE id = 5",
    "insert": "INSERT INTO items (id, code) VALUES (500, 'rogue')",
    "delete": "DELETE FROM items WHERE id = 5",
}


@pytest.mark.parametrize("write", ROGUE)
def test_a_rogue_write_is_found(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, write: str
) -> None:
    fill(second_mariadb_db, 20)
    fill(mariadb_db, 20)
    proving = Proving(spark, mariadb_db, second_mariadb_db, f"rogue {write}")
    verifier = started(proving)
    name = proving.settings.annotation
    statement = ROGUE[write].format(ours=comment(name), name=name)
    second_mariadb_db.execute(f"{comment(name)}UPDATE items SET price = 1 WHERE id = 3")
    assert verifier.work().found == 0
    second_mariadb_db.execute(statement)
    outcome = verifier.work()
    assert outcome.found == 1, outcome
    (rogue,) = outcome.mismatches
    assert rogue.kind == "rogue"
    assert rogue.key == (("500",) if write == "insert" else ("5",))
    assert f"{second_mariadb_db.name}.items" in str(outcome)
    assert "in transaction 0-" in str(outcome)
    assert verifier.work().found == 0, "it is told of once; its row is in the store"
    verifier.finish()


EMIT = "SELECT pg_logical_emit_message(true, 'truecopy', '{}')"
ON_POSTGRESQL = {
    "without an annotation": ["{write}"],
    "foreign": [EMIT.format("app"), "{write}"],
    "of another program": ["SELECT pg_logical_emit_message(true, 'app', '{ours}')", "{write}"],
    "ours second": [EMIT.format("app"), EMIT.format("{ours}"), "{write}"],
    "ours at the end": ["{write}", EMIT.format("{ours}")],
    "like ours": [EMIT.format("{ours}!"), "{write}"],
}


@pytest.mark.parametrize("write", ON_POSTGRESQL)
def test_a_rogue_write_is_found_on_postgresql(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database, write: str
) -> None:
    for side in (mariadb_db, postgres_db):
        stand(side)
    proving = Proving(spark, mariadb_db, postgres_db, f"rogue {write}")
    verifier = started(proving)
    ours = proving.settings.annotation

    def do(*statements: str) -> None:
        postgres_db.execute(";".join(("BEGIN", *statements, "COMMIT")))

    do(EMIT.format(ours), "UPDATE items SET price = 1 WHERE id = 3")
    assert verifier.work().found == 0
    asked = "UPDATE items SET price = 0 WHERE id = 5"
    do(*(statement.format(ours=ours, write=asked) for statement in ON_POSTGRESQL[write]))
    outcome = verifier.work()
    verifier.finish()
    assert [(one.kind, one.key) for one in outcome.mismatches] == [("rogue", ("5",))]


def test_a_rogue_write_is_found_among_ours(proving: Proving) -> None:
    verifier = started(proving)
    proving.source.execute("UPDATE items SET price = 1 WHERE id < 10")
    proving.run()
    proving.target.execute("UPDATE items SET price = 2 WHERE id = 7")
    proving.source.execute("UPDATE items SET price = 3 WHERE id > 10")
    proving.run()
    outcome = verifier.work()
    assert [(one.kind, one.key) for one in outcome.mismatches] == [("rogue", ("7",))]
    verifier.finish()


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE TABLE items",
        "ALTER TABLE items ADD extra INT",
        "CREATE INDEX rogue ON items (name)",
        "DROP TABLE items",
    ],
)
def test_rogue_truncates_and_ddl_are_found(standing: Proving, statement: str) -> None:
    verifier = started(standing)
    standing.target.execute("CREATE TABLE others (id INT)")
    standing.target.execute("DROP TABLE others")
    assert verifier.work().found == 0, "tables of others are no concern of ours"
    standing.target.execute(statement)
    outcome = verifier.work()
    assert {(one.kind, one.table.rpartition(".")[2]) for one in outcome.mismatches} == {
        ("rogue", "items")
    }
    verifier.finish()


def test_our_own_ddl_is_annotated(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    for side in (mariadb_db, second_mariadb_db):
        stand(side)
    proving = Proving(spark, mariadb_db, second_mariadb_db, "own ddl")
    verifier = started(proving)
    ours = comment(proving.settings.annotation)
    second_mariadb_db.execute(f"{ours}CREATE INDEX more ON items (name)")
    second_mariadb_db.execute(f"{ours}ALTER TABLE items ADD CONSTRAINT CHECK (id > -1000)")
    second_mariadb_db.execute(f"{ours}UPDATE items SET price = 100 WHERE id = 1")
    assert verifier.finish().passed


def test_definitions_that_we_changed_are_expected(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    for side in (mariadb_db, postgres_db):
        stand(side)
    proving = Proving(spark, mariadb_db, postgres_db, "shapes")
    verifier = started(proving)
    postgres_db.execute("CREATE INDEX ours ON items (name)")
    verifier.expect_shapes()
    assert verifier.work().found == 0
    verifier.finish()
    assert postgres_db.execute("SELECT count(*) FROM pg_replication_slots")[0][0] == 0


def test_it_drains_to_a_position_and_stops(proving: Proving) -> None:
    """What is written after our last write, by writers that were let in, is not looked at."""
    verifier = started(proving)
    proving.source.execute("UPDATE items SET price = 1")
    proving.run()
    end = verifier.end()
    proving.target.execute("UPDATE items SET price = 2 WHERE id = 1")
    assert verifier.drain(end).passed
    assert verifier.work().found == 1
    verifier.finish()


def test_it_goes_on_after_a_restart(standing: Proving) -> None:
    first = started(standing)
    assert first.work().found == 0
    first.close()
    standing.target.execute("UPDATE items SET price = 2 WHERE id = 1")
    again = started(standing)
    assert again.work().found == 1
    again.finish()


def test_every_key_of_the_targets_log_is_looked_at(proving: Proving) -> None:
    store = proving.store()
    scene = proving.scene()
    target = TargetVerifier(scene, store, parse_endpoint(proving.target.url))
    inline = InlineVerifier(scene, store)
    for verifier in (target, inline):
        verifier.start(resumed=False)
    proving.verifiers = [inline, target]
    assert inline.work().found == 0
    proving.source.execute("UPDATE items SET price = 1 WHERE id = 4")
    proving.run()
    proving.target.execute("UPDATE items SET price = 2 WHERE id = 9")
    assert target.work().found == 1
    assert [(one.kind, one.key) for one in inline.work().mismatches] == [("differs", ("9",))]
    target.finish()
    assert not inline.finish().passed
    inline.close()


def test_a_log_that_keeps_no_annotation_is_refused(mariadb_db: Database, tmp_path: Path) -> None:
    import duckdb

    file = tmp_path / "target.duckdb"
    duckdb.connect(str(file)).close()
    scene = Scene("files", "files", {})
    with ReverifyStore(tmp_path / "keys.db") as store:
        verifier = TargetVerifier(scene, store, parse_endpoint(f"duckdb://{file}"))
        with pytest.raises(UsageError, match="keeps no log of who wrote what"):
            verifier.start(resumed=False)
