"""Lakes as targets: a log of Parquet files, and Delta tables with merges."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import truecopy
from tests.servers import Database
from tests.transfer.lakes import FORMATS, commits, rows, url
from tests.transfer.load import fill, writing
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1000


def settings(source: str, target: str, **more: Any) -> Settings:
    return Settings("move", source, target, chunk_rows=300, **more)


def held(database: Database, table: str = "items") -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in database.execute(f"SELECT * FROM {table}"))


def utc(found: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """MariaDB's driver gives instants without their zone."""
    return Counter(
        {
            tuple(v.replace(tzinfo=None) if getattr(v, "tzinfo", None) else v for v in row): count
            for row, count in found.items()
        }
    )


@pytest.mark.parametrize("form", FORMATS)
def test_mariadb_to_a_lake_under_load(
    spark: SparkSession, mariadb_db: Database, tmp_path: Path, form: str
) -> None:
    fill(mariadb_db, ROWS)
    target = url(tmp_path, form)
    asked = settings(mariadb_db.url, target, delivery="exactly-once", consistency="table")
    with writing(mariadb_db, ROWS):
        Transfer(asked).run(until_caught_up=True)
        Transfer(asked).run(until_caught_up=True)
    report = Transfer(asked).run(until_caught_up=True)
    assert sum(state.rows_copied for state in report.tables.values()) > 0
    assert utc(rows(tmp_path, form, "items", "id")) == held(mariadb_db)
    for end in (f"lake:///{tmp_path}", target):
        proof = truecopy.verify(mariadb_db.url, end, tables=("items",))
        assert proof.verdict == "equal"
        assert proof.tables[0].rows_compared == len(held(mariadb_db))
    if form == "delta":
        (line,) = [
            one for one in commits(tmp_path, "items")[0] if one["line"] == "truecopy_progress"
        ]
        assert line["position"]
        assert line["committed_at"] > 0
        assert line["epoch"] >= 1
