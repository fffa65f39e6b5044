"""Checksum, inline and iterative verifiers on real servers: damage is found, load alone is no damage."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.load import fill, writing
from tests.transfer.proving import Proving
from truecopy.model.errors import CannotFinish
from truecopy.transfer.proof.background import Background
from truecopy.transfer.proof.checksum import ChecksumVerifier
from truecopy.transfer.proof.inline import InlineVerifier, IterativeVerifier
from truecopy.transfer.proof.shrinking import ShrinkRules
from truecopy.transfer.proof.verifier import NotProven, Outcome, Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROWS = 1000


@pytest.fixture
def proving(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    request: pytest.FixtureRequest,
) -> Proving:
    return Proving(spark, mariadb_db, second_mariadb_db, request.node.name)


def found(outcome: Outcome) -> set[tuple[str, tuple[str | None, ...], tuple[str, ...]]]:
    return {(one.kind, one.key, one.columns) for one in outcome.mismatches}


def test_the_checksum_verifier_finds_damage_at_cutover(proving: Proving) -> None:
    fill(proving.source, 20)
    proving.run()
    verifier = ChecksumVerifier(proving.scene())
    verifier.start(resumed=False)
    assert not verifier.work().passed, "it has compared nothing yet"
    whole = verifier.finish()
    assert whole.passed
    assert (whole.tables, whole.rows) == (1, 20)
    proving.target.execute("UPDATE items SET price = price + 1 WHERE id = 7")
    damaged = verifier.finish()
    assert not damaged.passed
    assert found(damaged) == {("digest", (), ())}
    assert "20 rows on either side, and not the same ones" in str(damaged)
    proving.target.execute("DELETE FROM items WHERE id = 7")
    assert "20 rows on the source and 19 on the target" in str(verifier.finish())


def test_a_verifier_that_compared_nothing_is_no_pass(proving: Proving) -> None:
    scene = Scene("nothing", "nothing", {})
    outcome = ChecksumVerifier(scene).finish()
    assert not outcome.passed
    assert "no proof" in str(outcome)
    with proving.store() as store:
        assert not InlineVerifier(scene, store).finish().passed


def test_the_inline_verifier_finds_damage_of_rows_that_changed(proving: Proving) -> None:
    fill(proving.source, 20)
    proving.run()
    verifier = InlineVerifier(proving.scene(), proving.store())
    verifier.start(resumed=False)
    proving.verifiers = [verifier]
    proving.source.execute("UPDATE items SET price = 5 WHERE id <= 6")
    proving.source.execute("DELETE FROM items WHERE id = 6")
    proving.run()
    proving.target.execute("UPDATE items SET price = 6, name = 'x' WHERE id = 1")
    proving.target.execute("DELETE FROM items WHERE id = 2")
    proving.target.execute(
        "INSERT INTO items SELECT 6, 'c6', name, price, made, note FROM items LIMIT 1"
    )
    working = verifier.work()
    expected = {
        ("differs", ("1",), ("name", "price")),
        ("missing", ("2",), ()),
        ("extra", ("6",), ()),
    }
    assert found(working) == expected, "the replication is past it, so it is wrong for sure"
    assert verifier.work().waiting == 0, "what is right is done"
    assert found(verifier.finish()) == expected, "and it stays wrong until it is repaired"
    proving.source.execute("UPDATE items SET note = 'again' WHERE id IN (1, 2)")
    proving.source.execute("DELETE FROM items WHERE id = 6")
    proving.run()
    proving.target.execute("DELETE FROM items WHERE id = 6")
    repaired = verifier.finish()
    assert repaired.passed, repaired
    assert repaired.rows >= 20
    verifier.close()


def test_a_row_on_its_way_is_no_mismatch(proving: Proving) -> None:
    """It differs, since the replication is behind: it stays in the store, and comes right."""
    fill(proving.source, 20)
    proving.run()
    verifier = InlineVerifier(proving.scene(), proving.store())
    verifier.start(resumed=False)
    proving.verifiers = [verifier]
    proving.source.execute("UPDATE items SET price = 1 WHERE id = 3")
    proving.run()
    proving.source.execute("UPDATE items SET price = 2 WHERE id = 3")
    working = verifier.work()
    assert (working.found, working.waiting) == (0, 1)
    proving.run()
    assert verifier.finish().passed
    verifier.close()


def test_no_false_alarm_under_load(proving: Proving) -> None:
    fill(proving.source, ROWS)
    proving.run()
    verifier = InlineVerifier(proving.scene(), proving.store())
    verifier.start(resumed=True)
    proving.verifiers = [verifier]
    with (
        writing(proving.source, ROWS),
        proving.replicating(),
        Background(verifier, 0.1) as background,
    ):
        for _ in range(2):
            shrunk = verifier.shrink()
            assert shrunk.found == 0, shrunk
        background.check()
    proving.run()
    ended = verifier.finish()
    assert ended.passed, ended
    assert ended.rows > ROWS, "changed rows were compared again"
    assert verifier.shrunk is not None
    verifier.close()


def test_damage_under_load_is_found_in_the_background(proving: Proving) -> None:
    """A row that the load leaves alone, damaged on the target: the digest pass sends it to the store."""
    fill(proving.source, ROWS)
    proving.source.execute("INSERT INTO items (id, code) VALUES (9999999, 'still')")
    proving.run()
    verifier = InlineVerifier(proving.scene(), proving.store())
    verifier.start(resumed=True)
    proving.verifiers = [verifier]
    proving.target.execute("UPDATE items SET name = 'damaged' WHERE id = 9999999")
    with writing(proving.source, ROWS), proving.replicating():
        for _ in range(20):
            outcome = verifier.work()
            if outcome.found:
                break
    assert found(outcome) == {("differs", ("9999999",), ("name",))}
    proving.run()
    assert found(verifier.finish()) == {("differs", ("9999999",), ("name",))}
    verifier.close()


def test_the_background_ends_the_run(proving: Proving) -> None:
    fill(proving.source, 10)
    proving.run()
    proving.target.execute("DELETE FROM items WHERE id = 4")
    verifier = InlineVerifier(proving.scene(), proving.store())
    verifier.start(resumed=True)
    proving.verifiers = [verifier]
    proving.source.execute("UPDATE items SET price = 1 WHERE id = 5")
    proving.run()
    with Background(verifier, 0.01) as background:
        deadline = time.monotonic() + 30
        while background.failure is None and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(NotProven, match=r"the row id=4 of .*items is missing on the target"):
            background.check()
    verifier.close()


def test_the_iterative_verifier_compares_all_rows_after_the_copy(proving: Proving) -> None:
    fill(proving.source, 100)
    proving.run()
    proving.target.execute("UPDATE items SET note = 'x' WHERE id = 50")
    verifier = IterativeVerifier(proving.scene(), proving.store())
    verifier.start(resumed=False)
    assert not verifier.finish().passed, "it has compared nothing yet"
    proving.verifiers = [verifier]
    proving.source.execute("UPDATE items SET price = 3 WHERE id = 60")
    proving.run()
    assert found(verifier.work()) == {("differs", ("50",), ("note",))}
    proving.target.execute(
        "UPDATE items i JOIN items j ON j.id = 51 SET i.note = %s WHERE i.id = 50", (None,)
    )
    ended = verifier.finish()
    assert ended.passed, ended
    assert ended.rows >= 100
    verifier.close()


def test_the_store_survives_a_restart_of_the_verifier(proving: Proving) -> None:
    fill(proving.source, 20)
    proving.run()
    first = InlineVerifier(proving.scene(), proving.store())
    first.start(resumed=False)
    proving.verifiers = [first]
    proving.source.execute("UPDATE items SET price = 5 WHERE id = 9")
    proving.run()
    proving.target.execute("UPDATE items SET price = 6 WHERE id = 9")
    first.close()
    again = InlineVerifier(proving.scene(), proving.store())
    again.start(resumed=False)
    assert found(again.finish()) == {("differs", ("9",), ("price",))}
    again.close()


def test_too_long_a_rest_is_refused(proving: Proving) -> None:
    fill(proving.source, 20)
    proving.run()
    rules = ShrinkRules(max_downtime=0.0)
    verifier = InlineVerifier(proving.scene(), proving.store(), rules)
    verifier.start(resumed=False)
    assert verifier.shrink().found == 0
    proving.target.execute("DELETE FROM items WHERE id = 9")
    with pytest.raises(CannotFinish, match=r"1 changed rows .* would keep writers out for about"):
        verifier.shrink()
    verifier.close()


def test_a_table_without_a_key_is_compared_whole(proving: Proving) -> None:
    proving.source.execute("CREATE TABLE log (at INT, said VARCHAR(20))")
    proving.source.execute("INSERT INTO log VALUES (1, 'a'), (1, 'a'), (2, 'b')")
    proving.run()
    verifier = InlineVerifier(proving.scene(), proving.store())
    verifier.start(resumed=True)
    proving.verifiers = [verifier]
    proving.source.execute("INSERT INTO log VALUES (3, 'c')")
    proving.run()
    verifier.work()
    assert verifier.finish().passed
    proving.target.execute("DELETE FROM log WHERE at = 1 LIMIT 1")
    assert found(verifier.finish()) == {("digest", (), ())}
    verifier.close()


@pytest.mark.parametrize("verifier", [InlineVerifier, IterativeVerifier])
def test_mariadb_to_postgresql(
    spark: SparkSession,
    mariadb_db: Database,
    postgres_db: Database,
    verifier: Callable[..., InlineVerifier],
) -> None:
    """Keys, decimals, times and JSON are logged, compared and agreed on in forms of their own."""
    mariadb_db.execute(
        "CREATE TABLE t (a DECIMAL(8,3), b VARBINARY(8), v JSON, w DATETIME(3), PRIMARY KEY (a, b))"
    )
    for at in range(40):
        mariadb_db.execute(
            "INSERT INTO t VALUES (%s, %s, %s, %s)",
            (at / 8, bytes([at, 0, 255]), f'{{"b": {at}, "a": 1.50}}', "2024-01-31 12:00:00.5"),
        )
    proving = Proving(spark, mariadb_db, postgres_db, f"mapped-{verifier.__name__}")
    proving.run()
    watching = verifier(proving.scene(), proving.store())
    watching.start(resumed=True)
    proving.verifiers = [watching]
    mariadb_db.execute("UPDATE t SET w = '2025-01-01' WHERE a < 2")
    proving.run()
    assert watching.work().found == 0
    assert watching.finish().passed
    postgres_db.execute("UPDATE t SET v = '{}' WHERE a = 0.125")
    mariadb_db.execute("UPDATE t SET w = '2025-01-02' WHERE a = 0.25")
    proving.run()
    postgres_db.execute("UPDATE t SET w = '2025-01-03' WHERE a = 0.25")
    watching.shrink()
    assert {one.columns for one in watching.finish().mismatches} == {("v",), ("w",)}
    watching.close()
