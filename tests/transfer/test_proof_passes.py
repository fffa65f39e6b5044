"""Digest passes that become due while one is under way, or fail, are made by the next look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.servers import Database
from tests.transfer.load import fill
from tests.transfer.proving import Proving
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import DROP, TRUNCATE, UPDATE, Definition
from truecopy.transfer.proof import inline
from truecopy.transfer.proof.digest_pass import Passed, digest_pass
from truecopy.transfer.proof.inline import InlineVerifier
from truecopy.transfer.proof.store import UNCOUNTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EMPTIED = pa.table(
    {"table": ["items"], "schema_id": [""], "kind": [TRUNCATE], "key": [None]},
    pa.schema(
        {
            "table": pa.string(),
            "schema_id": pa.string(),
            "kind": pa.string(),
            "key": pa.list_(pa.string()),
        }
    ),
)


@pytest.fixture
def proving(spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database) -> Proving:
    made = Proving(spark, mariadb_db, second_mariadb_db, "passes")
    fill(mariadb_db, 20)
    made.run()
    return made


@pytest.mark.long
@pytest.mark.parametrize("kind", [TRUNCATE, DROP])
def test_a_table_that_is_emptied_during_a_pass_gets_one_of_its_own(
    proving: Proving, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    verifier = InlineVerifier(proving.scene(), proving.store())
    passes: list[Passed] = []

    def passing(*given: Any) -> Passed:
        passes.append(digest_pass(*given))
        if len(passes) == 1:
            place = EMPTIED.schema.get_field_index("kind")
            emptied = EMPTIED.set_column(place, "kind", [[kind]])
            verifier.observe(emptied, {})  # as the replication does, from its own thread
        return passes[-1]

    monkeypatch.setattr(inline, "digest_pass", passing)
    verifier.start(resumed=True)
    for due in (1, 2, 2):
        verifier.work()
        assert len(passes) == due
    verifier.close()


@pytest.mark.long
def test_a_table_that_is_emptied_after_the_last_pass_is_compared_whole(proving: Proving) -> None:
    """No pass comes any more before writers are locked out, and which rows went is in no log."""
    verifier = InlineVerifier(proving.scene(), proving.store())
    verifier.start(resumed=True)
    verifier.shrink()
    (name,) = proving.scene().plans
    verifier.observe(EMPTIED.set_column(0, "table", [[name]]), {})
    verifier.work()  # before it is applied, while both sides have the rows still
    assert not verifier.finish().found
    proving.source.execute("DELETE FROM items")  # as a TRUNCATE that had no effect on the target
    verifier.applied()
    outcome = verifier.finish()
    assert outcome.found
    assert not outcome.passed
    verifier.close()


@pytest.mark.long
def test_changes_that_are_keyed_otherwise_are_verified_by_a_pass(proving: Proving) -> None:
    """As under another primary key than the task was planned with: the log names no row that could be looked at."""
    scene = proving.scene()
    ((name, plan),) = scene.plans.items()
    definition = Definition(name, plan.comparison.source_tables[0].columns, ("code",))
    Definitions().remember([definition])
    changed = {"table": name, "schema_id": definition.schema_id, "kind": UPDATE, "key": ["c7"]}
    verifier = InlineVerifier(scene, proving.store())
    verifier.start(resumed=False)
    proving.target.execute("UPDATE items SET price = price + 1 WHERE id = 7")
    verifier.observe(pa.Table.from_pylist([changed], schema=EMPTIED.schema), {})
    assert not verifier.work().found, "it is not applied yet"
    verifier.applied()
    assert verifier.work().waiting, (
        "the pass has found it, and nothing tells that it is not on its way"
    )
    assert [one.key for one in verifier.finish().mismatches] == [("7",)]
    verifier.close()


@pytest.mark.long
def test_what_the_target_verifier_cannot_keep_is_verified_by_a_pass(proving: Proving) -> None:
    scene = proving.scene()
    ((name, _),) = scene.plans.items()
    verifier = InlineVerifier(scene, store := proving.store())
    verifier.start(resumed=False)
    proving.target.execute("UPDATE items SET price = price + 1 WHERE id = 7")
    assert not verifier.work().waiting
    store.write_note(f"{UNCOUNTED}{name}", "")
    assert verifier.work().waiting == 1
    verifier.close()


@pytest.mark.long
def test_a_pass_that_fails_is_made_again(proving: Proving, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = InlineVerifier(proving.scene(), proving.store())
    passes: list[Passed] = []

    def passing(*given: Any) -> Passed:
        if not passes:
            passes.append(Passed(0, 0, 0))
            raise ConnectionError
        passes.append(digest_pass(*given))
        return passes[-1]

    monkeypatch.setattr(inline, "digest_pass", passing)
    verifier.start(resumed=True)
    with pytest.raises(ConnectionError):
        verifier.work()
    verifier.work()
    assert passes[-1].rows == 20
    verifier.close()
