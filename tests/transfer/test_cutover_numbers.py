"""Sequences that belong to no column go on at a cutover, where the other side has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.cutting import application, cut_over, fill, is_equal, started, switch_back
from truecopy.transfer.run import Transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_sequences_go_on_forth_and_back(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    fill(mariadb_db, 20)
    for database in (mariadb_db, postgres_db):
        database.execute("CREATE SEQUENCE ticket START WITH 100")
    mariadb_db.execute("CREATE SEQUENCE lost START WITH 70")
    settings = started(mariadb_db, postgres_db)
    last = [mariadb_db.execute("SELECT NEXTVAL(ticket)")[0][0] for _ in range(5)][-1]
    mariadb_db.execute("UPDATE notes SET body = 'numbers are in the log, and no rows' WHERE id = 3")
    Transfer(settings).run(until_caught_up=True)

    with application(mariadb_db), application(postgres_db):
        report = cut_over(settings)
        assert report.state == "switched", report.reason
        assert any("lost of" in line and "goes on at 70" in line for line in report.said)
        assert not any("ticket" in line for line in report.said)
        ((number,),) = postgres_db.execute("SELECT nextval('ticket')")
        assert number > last, "the old side has given those before"

        ((later,),) = postgres_db.execute("SELECT setval('ticket', 50000)")
        assert switch_back(settings).state == "switched"
        assert mariadb_db.execute("SELECT NEXTVAL(ticket)") == [(later + 1,)]
        assert is_equal(mariadb_db, postgres_db)
