"""A copy that takes longer than the source keeps a connection that says nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Database
from tests.transfer.load import fill
from truecopy.engines import pool
from truecopy.transfer.copying import Copying
from truecopy.transfer.ledger import TaskLine
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.snapshot import Copied

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT_SECONDS = 3


class Slow(Transfer):
    def copying(self, plans: Mapping[str, TablePlan], line: TaskLine) -> Copying:
        class Waiting(Copying):
            def _copied(self, *given: Any) -> Iterator[Copied]:
                yield from super()._copied(*given)
                time.sleep(KEPT_SECONDS + 2)

        return Waiting(self._settings, plans, line)


@pytest.mark.long
def test_the_source_closes_what_is_idle(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(mariadb_db, 100)
    mariadb_db.execute(f"SET GLOBAL wait_timeout = {KEPT_SECONDS}")
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.5)
    try:
        settings = Settings("idle", mariadb_db.url, second_mariadb_db.url)
        report = Slow(settings).run(until_caught_up=True)
    finally:
        mariadb_db.execute("SET GLOBAL wait_timeout = DEFAULT")
    assert report.state == "replicate"
    indexes = "SELECT 1 FROM information_schema.statistics WHERE table_name = 'items' AND table_schema = DATABASE()"
    assert len(second_mariadb_db.execute(indexes)) > 1
