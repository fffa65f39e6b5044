"""The checksum verifier at a cutover: what it is asked for, it reads every row, however many there are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.cutting import HOW, cut_over, fill, started
from truecopy.transfer.cutover import proof
from truecopy.transfer.cutover.state import HELD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("verify", "is_found"), [(("inline",), False), (("checksum",), True), (("inline", "checksum"), True)]
)  # fmt: skip
def test_whole_tables_are_compared_where_that_was_asked_for(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    monkeypatch: pytest.MonkeyPatch,
    verify: tuple[str, ...],
    is_found: bool,
) -> None:
    """A row that nobody has changed is wrong at the last moment: only a look at all rows can see it."""
    monkeypatch.setattr(proof, "WHOLE_ROWS", 0)
    fill(mariadb_db)
    settings = started(mariadb_db, second_mariadb_db)

    def spoil(line: str) -> None:
        if HELD in line:
            second_mariadb_db.execute("UPDATE notes SET body = 'rogue' WHERE id = 3")

    report = cut_over(settings, replace(HOW, verify=verify), rehearse=True, said=spoil)
    assert report.state == ("rolled-back" if is_found else "rehearsed")
    assert ("notes" in report.reason) == is_found
