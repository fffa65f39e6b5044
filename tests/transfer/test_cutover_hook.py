"""The steps of a cutover are told to a webhook, which holds nothing up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.cutting import application, cut_over, fill, started
from tests.transfer.test_webhook import receiver
from truecopy.model.secret import Secret
from truecopy.transfer.settings import Settings
from truecopy.transfer.webhook import Hook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = [
    "catching-up",
    "holding",
    "held",
    "drained",
    "verified",
    "numbered",
    "certified",
    "turned",
    "switching",
    "moved",
    "switched",
]


@pytest.mark.long
def test_a_webhook_hears_of_the_steps_and_holds_nothing_up(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)
    with application(mariadb_db) as app:
        with receiver(delay=3.0) as slow:
            report = cut_over(_telling(settings, slow.url), rehearse=True)
            assert report.state == "rehearsed", report.reason
            assert report.downtime_seconds < 15, "of seven steps, some seconds each"
            assert app.can_write()
        with receiver() as there:
            assert cut_over(_telling(settings, there.url)).state == "switched"
    assert {one["event"] for one in there.got} == {"cutover"}
    *steps, last = there.got
    assert [one["step"] for one in steps] == STEPS
    waited = [one["downtime_seconds"] for one in steps]
    assert waited == sorted(waited)
    assert (waited[0], last["state"], last["downtime_seconds"]) == (0.0, "switched", waited[-1])


def _telling(settings: Settings, url: str) -> Settings:
    return replace(settings, hook=Hook(Secret(url)))
