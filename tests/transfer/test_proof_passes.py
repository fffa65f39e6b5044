"""Digest passes that become due while one is under way, or fail, are made by the next look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.servers import Database
from tests.transfer.load import fill
from tests.transfer.proving import Proving
from truecopy.model.change import TRUNCATE
from truecopy.transfer.proof import inline
from truecopy.transfer.proof.digest_pass import Passed, digest_pass
from truecopy.transfer.proof.inline import InlineVerifier

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
def test_a_table_that_is_emptied_during_a_pass_gets_one_of_its_own(
    proving: Proving, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = InlineVerifier(proving.scene(), proving.store())
    passes: list[Passed] = []

    def passing(*given: Any) -> Passed:
        passes.append(digest_pass(*given))
        if len(passes) == 1:
            verifier.observe(EMPTIED, {})  # as the replication does, from its own thread
        return passes[-1]

    monkeypatch.setattr(inline, "digest_pass", passing)
    verifier.start(resumed=True)
    for due in (1, 2, 2):
        verifier.work()
        assert len(passes) == due
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
