"""What the target verifier keeps between runs, and when it goes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.killing import await_death, started_to_die
from tests.transfer.load import fill
from tests.transfer.proving import Proving
from truecopy.engines.loading import comment
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.transfer.deletion import NoSuchTask, delete_task
from truecopy.transfer.proof import target_log
from truecopy.transfer.proof.shapes import altering
from truecopy.transfer.proof.store import has_store
from truecopy.transfer.proof.target_log import TargetVerifier
from truecopy.transfer.proof.verifier import NotProven

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROGUE = "UPDATE items SET price = 0 WHERE id = 5"


@pytest.fixture(params=("second_mariadb_db", "postgres_db"))
def standing(spark: SparkSession, mariadb_db: Database, request: pytest.FixtureRequest) -> Proving:
    target: Database = request.getfixturevalue(request.param)
    return stand(spark, mariadb_db, target, request.node.name)


def stand(spark: SparkSession, mariadb_db: Database, target: Database, task: str) -> Proving:
    """A task that does not run: both sides are there, and somebody else writes."""
    for side in (mariadb_db, target):
        side.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20), price INT)")
        side.executemany("INSERT INTO items VALUES (%s, %s, %s)", [(n, "a", n) for n in range(9)])
    return Proving(spark, mariadb_db, target, task)


def started(proving: Proving) -> TargetVerifier:
    endpoint = parse_endpoint(proving.target.url)
    verifier = TargetVerifier(proving.scene(), proving.store(), endpoint)
    verifier.start(resumed=False)
    return verifier


def test_one_that_finished_begins_anew(standing: Proving) -> None:
    """After a rehearsal, or when writers were on the target and went back."""
    started(standing).finish()
    standing.target.execute(ROGUE)
    again = started(standing)
    assert again.work().found == 0, "nobody watched then, and writers may have been let in"
    standing.target.execute("UPDATE items SET price = 0 WHERE id = 6")
    assert [one.key for one in again.finish().mismatches] == [("6",)]


def test_one_that_was_killed_as_it_finished_begins_anew(
    standing: Proving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise CannotFinish("killed")

    verifier = started(standing)
    with monkeypatch.context() as patch:
        patch.setattr(target_log, "remove_from", die)
        with pytest.raises(CannotFinish, match="killed"):
            verifier.finish()
    standing.target.execute(ROGUE)
    again = started(standing)
    assert again.work().found == 0
    standing.target.execute(f"{comment('app')}UPDATE items SET price = 0 WHERE id = 6")
    assert again.finish().found == 1


def test_a_task_that_is_deleted_leaves_nothing(standing: Proving) -> None:
    started(standing).close()
    said = "\n".join(delete_task(standing.settings))
    assert f"what the verifiers of {standing.settings.task} kept" in said
    assert not has_store(standing.settings.task)
    if standing.target.server.scheme == "postgresql":
        assert standing.target.execute("SELECT slot_name FROM pg_replication_slots") == []
    with pytest.raises(NoSuchTask):
        delete_task(standing.settings)


DAMAGE = {"a row": ROGUE, "a table": "ALTER TABLE items ADD extra INT"}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_finding_is_kept_until_it_was_told(standing: Proving, damage: str) -> None:
    """One that came upon it and was ended before its next batch has told nobody, nor has one that was killed."""
    first = started(standing)
    standing.target.execute(DAMAGE[damage])
    unheard = first.work()
    assert unheard.found == 1
    first.close()
    second = started(standing)
    heard = second.work()
    assert (heard.found, heard.mismatches) == (1, unheard.mismatches)
    with pytest.raises(NotProven, match="by somebody else"):
        raise NotProven(heard)
    second.close()
    third = started(standing)
    again = third.work()
    third.close()
    assert again.found == 1, "it was raised, and nobody has seen it"
    NotProven(again).told()
    fourth = started(standing)
    assert fourth.work().found == 0, "whoever starts it again has seen it"
    fourth.finish()


def test_what_is_found_after_what_was_told_is_kept(standing: Proving) -> None:
    first = started(standing)
    standing.target.execute(ROGUE)
    told = first.work()
    standing.target.execute("UPDATE items SET price = 0 WHERE id = 6")
    assert first.work().found == 1
    first.close()
    told.told()
    again = started(standing)
    assert [one.key for one in again.finish().mismatches] == [("6",)]


@pytest.mark.long
def test_a_run_that_is_killed_before_it_tells_leaves_it_to_the_next(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    fill(mariadb_db, 20)
    file = tmp_path / "told.yaml"
    file.write_text(
        f"task: told\nsource: {mariadb_db.url}\ntarget: {second_mariadb_db.url}\nverify: {{target: true}}\n"
    )
    run = ("run", str(file), "--until-caught-up")
    assert program(*run).code == 0
    second_mariadb_db.execute("UPDATE items SET price = price + 1 WHERE id = 6")
    second_mariadb_db.execute("UPDATE items SET price = price - 1 WHERE id = 6")
    await_death(started_to_die("truecopy.transfer.proof.chosen:Watch.close", *run))
    told = program(*run)
    assert (told.code, "the row id=6" in told.err) == (3, True), told.err
    assert program(*run).code == 0, "it was told once"


def test_what_is_found_at_the_very_end_is_kept_as_well(standing: Proving) -> None:
    first = started(standing)
    standing.target.execute(ROGUE)
    assert first.finish().found == 1
    first.close()
    again = started(standing)
    assert again.finish().found == 1


def alter(proving: Proving, statement: str, *, dies: bool = False) -> None:
    """As a run does it."""
    endpoint = parse_endpoint(proving.target.url)
    (table,) = (plan.target.tables[0] for plan in proving.plans().values())
    with suppress(CannotFinish), altering(proving.settings.task, endpoint, [table]):
        proving.target.execute(statement)
        if dies:
            raise CannotFinish("killed")


@pytest.mark.parametrize("dies", [False, True], ids=["done", "killed"])
def test_our_own_ddl_is_expected(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database, dies: bool
) -> None:
    standing = stand(spark, mariadb_db, postgres_db, f"own ddl {dies}")
    first = started(standing)
    alter(standing, "ALTER TABLE items ADD more INT", dies=dies)
    assert first.work().found == 0
    first.close()
    again = started(standing)
    assert again.work().found == 0
    postgres_db.execute("ALTER TABLE items ADD rogue INT")
    assert again.finish().found == 1


def test_our_own_ddl_hides_nobody_elses(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    standing = stand(spark, mariadb_db, postgres_db, "rogue before own ddl")
    verifier = started(standing)
    postgres_db.execute("CREATE INDEX rogue ON items (name)")
    alter(standing, "ALTER TABLE items ADD more INT")
    assert "was altered on the target by somebody else" in str(verifier.finish())
