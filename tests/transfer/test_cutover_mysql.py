"""MySQL itself takes over from MariaDB, and gives back: read-only servers, numbers, and the changes of both logs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.transfer.cutting import (
    HOW,
    application,
    cut_over,
    fill,
    is_equal,
    started,
    switch_back,
)
from truecopy.transfer.cutover.standing import standing
from truecopy.transfer.run import Transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.mysql, pytest.mark.long]


@pytest.mark.parametrize("ends", ["mariadb_db mysql_db", "mysql_db mariadb_db"])
def test_there_and_back(spark: SparkSession, request: pytest.FixtureRequest, ends: str) -> None:
    source, target = (request.getfixturevalue(name) for name in ends.split())
    request.getfixturevalue("mysql_db").execute("SET GLOBAL binlog_rows_query_log_events = ON")
    fill(source, 50)
    how = replace(HOW, verify=("inline", "target"))
    settings = replace(started(source, target), verify=how.verify)
    with application(source) as old, application(target) as new:
        old.execute("DELETE FROM orders WHERE id = 7")
        old.execute("UPDATE orders SET id = 1000 WHERE id = 8")
        report = cut_over(settings, how)
        assert report.state == "switched", report.reason
        assert not old.can_write()
        new.execute("INSERT INTO orders (code, total) VALUES ('new', 2)")
        assert target.execute("SELECT id FROM orders WHERE code = 'new'") == [(1001,)]
        Transfer(standing(settings)).run(until_caught_up=True)
        assert is_equal(source, target)
        assert switch_back(settings, how).state == "switched"
        assert old.can_write()
        assert not new.can_write()
    assert is_equal(source, target)
