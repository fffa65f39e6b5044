"""The faults that a mover of data can have, each provoked for real: who finds which.

Where others say "sometimes" or "probably not", every verifier here says yes, and names the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.load import fill
from tests.transfer.proving import Proving
from truecopy.engines.loading import comment
from truecopy.metastore.known_progress import KnownProgress
from truecopy.model.endpoint import parse_endpoint
from truecopy.transfer.proof.checksum import ChecksumVerifier
from truecopy.transfer.proof.inline import InlineVerifier
from truecopy.transfer.proof.store import ReverifyStore
from truecopy.transfer.proof.target_log import TargetVerifier
from truecopy.transfer.proof.verifier import Verifier

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROWS = 30


def incorrect_update(proving: Proving) -> set[str]:
    """An UPDATE of ours arrives with another value, as by a wrong encoding."""
    proving.source.execute("UPDATE items SET name = 'Zo\u00eb' WHERE id = 3")
    proving.run()
    ours(proving, "UPDATE items SET name = 'Zo?' WHERE id = 3")
    return {"3"}


def failed_insert(proving: Proving) -> set[str]:
    proving.source.execute("INSERT INTO items (id, code) VALUES (100, 'c100')")
    proving.run()
    ours(proving, "DELETE FROM items WHERE id = 100")
    return {"100"}


def failed_delete(proving: Proving) -> set[str]:
    proving.source.execute("DELETE FROM items WHERE id = 4")
    proving.run()
    ours(proving, "INSERT INTO items (id, code) VALUES (4, 'c4')")
    return {"4"}


def rogue_write(proving: Proving) -> set[str]:
    """An application writes to the target, to rows that the source does not touch any more."""
    proving.target.execute("UPDATE items SET price = 0 WHERE id = 9")
    proving.target.execute("DELETE FROM items WHERE id = 10")
    proving.target.execute("INSERT INTO items (id, code) VALUES (101, 'c101')")
    return {"9", "10", "101"}


def wrong_coordinates(proving: Proving) -> set[str]:
    """A run goes on from a position behind changes that were never applied, and nothing here knows better."""
    KnownProgress(proving.settings.task).forget()
    proving.source.execute("UPDATE items SET price = 7 WHERE id IN (11, 12)")
    ((behind,),) = proving.source.execute("SELECT @@gtid_current_pos")
    ours(proving, f"UPDATE truecopy_progress SET position = '{behind}'")
    proving.source.execute("UPDATE items SET price = 8 WHERE id = 12")
    proving.run()
    return {"11"}


def wrong_row(proving: Proving) -> set[str]:
    """What was meant for one row is written to another one."""
    proving.source.execute("UPDATE items SET price = 5 WHERE id = 1")
    proving.run()
    ours(proving, "UPDATE items SET price = 5 WHERE id = 2")
    return {"2"}


FAULTS: dict[str, Callable[[Proving], set[str]]] = {
    "an incorrect UPDATE": incorrect_update,
    "a failed INSERT": failed_insert,
    "a failed DELETE": failed_delete,
    "a rogue application writes": rogue_write,
    "resumed from the wrong coordinates": wrong_coordinates,
    "the wrong row is modified": wrong_row,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_found_by_every_verifier(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    tmp_path: Path,
    fault: str,
) -> None:
    proving = Proving(spark, mariadb_db, second_mariadb_db, f"fault {fault}")
    fill(mariadb_db, ROWS)
    proving.run()
    mariadb_db.execute("UPDATE items SET price = 1 WHERE id = 30")
    proving.run()
    scene = proving.scene()
    checksum = ChecksumVerifier(scene)
    inline = InlineVerifier(scene, ReverifyStore(tmp_path / "inline.db"))
    store = ReverifyStore(tmp_path / "both.db")
    beside = InlineVerifier(scene, store)
    target = TargetVerifier(scene, store, parse_endpoint(second_mariadb_db.url))
    verifiers: list[Verifier] = [checksum, inline, beside, target]
    for verifier in verifiers:
        verifier.start(resumed=fault == "resumed from the wrong coordinates")
    proving.verifiers = [inline, beside]
    wrong = FAULTS[fault](proving)

    assert [one.kind for one in checksum.finish().mismatches] == ["digest"]
    # With the target's log, no pass over the table is needed: rows are looked at where they were written.
    rogue = {one.key[0] for one in target.finish().mismatches}
    assert rogue == (wrong if fault == "a rogue application writes" else set())
    assert {one.key[0] for one in beside.work().mismatches} == wrong
    inline.shrink()
    assert {one.key[0] for one in inline.finish().mismatches} == wrong
    for verifier in verifiers:
        verifier.close()


def ours(proving: Proving, statement: str) -> None:
    """A write that carries our annotation, as a fault of our own would."""
    proving.target.execute(f"{comment(proving.settings.annotation)}{statement}")
