"""Verifiers of tables whose rows are filtered, masked, computed or merged on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.load import fill
from tests.transfer.proving import Proving
from truecopy.mapping.plan import MappingRules
from truecopy.mapping.rules import Computed, Mask, Rule, Rules
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.secret import Secret
from truecopy.transfer.proof.checksum import ChecksumVerifier
from truecopy.transfer.proof.inline import InlineVerifier, IterativeVerifier
from truecopy.transfer.proof.mapped import is_looked_up
from truecopy.transfer.proof.target_log import TargetVerifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

MASK = Mask(Secret("key of the test"))
RULES = MappingRules(
    rules=(
        Rule(
            "items",
            Rules(
                filter=("id <= 15",),
                exclude=("note",),
                rename={"name": "title"},
                mask={"code": MASK},
                add={"loud": Computed("concat(name, '!')")},
            ),
        ),
    )
)
MASKED_KEY = MappingRules(rules=(Rule("items", Rules(mask={"id": MASK}, exclude=("made",))),))


@pytest.mark.parametrize("verifier", [InlineVerifier, IterativeVerifier])
def test_rows_that_are_made_on_their_way_are_looked_at(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    verifier: type[InlineVerifier],
) -> None:
    fill(mariadb_db, 20)
    proving = Proving(spark, mariadb_db, second_mariadb_db, f"made {verifier.__name__}", RULES)
    proving.run()
    scene = proving.scene()
    (plan,) = scene.plans.values()
    assert plan.is_mapped
    assert is_looked_up(plan)
    watching = verifier(scene, proving.store())
    target = TargetVerifier(scene, proving.store(), parse_endpoint(second_mariadb_db.url))
    for one in (watching, target):
        one.start(resumed=True)
    proving.verifiers = [watching]
    mariadb_db.execute("UPDATE items SET price = 3 WHERE id IN (1, 2, 18)")
    mariadb_db.execute("UPDATE items SET id = 100 WHERE id = 5")  # it leaves the filter
    mariadb_db.execute("UPDATE items SET id = 14 - 100 WHERE id = 19")  # it enters it
    proving.run()
    assert target.work().found == 0
    assert watching.work().found == 0
    assert watching.finish().passed
    second_mariadb_db.execute("UPDATE items SET title = 'x' WHERE id = 1")
    second_mariadb_db.execute("UPDATE items SET code = 'x' WHERE id = 8")
    assert {one.key for one in target.work().mismatches} == {("1",), ("8",)}
    found = {(one.key, one.columns) for one in watching.finish().mismatches}
    assert found == {(("1",), ("title",)), (("8",), ("code",))}
    assert ChecksumVerifier(scene).finish().found == 2
    target.finish()
    watching.close()


def test_a_table_whose_key_is_masked_is_compared_whole(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 10)
    second_mariadb_db.execute(
        "CREATE TABLE items (id CHAR(64) PRIMARY KEY, code VARCHAR(20), name VARCHAR(40),"
        " price DECIMAL(10,2), note TEXT)"
    )
    proving = Proving(spark, mariadb_db, second_mariadb_db, "masked", MASKED_KEY)
    proving.run()
    scene = proving.scene()
    assert not any(map(is_looked_up, scene.plans.values()))
    verifier = InlineVerifier(scene, proving.store())
    verifier.start(resumed=True)
    proving.verifiers = [verifier]
    mariadb_db.execute("UPDATE items SET price = 3 WHERE id = 1")
    proving.run()
    verifier.shrink()
    assert verifier.finish().passed
    second_mariadb_db.execute("UPDATE items SET price = 4 WHERE price = 3")
    (damaged,) = verifier.finish().mismatches
    assert (damaged.kind, damaged.columns) == ("differs", ("price",))
    verifier.close()
