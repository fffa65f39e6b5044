"""Whom a lock does not reach: named where others are held off, and refused where nobody would be."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.servers import Database
from tests.transfer.cutting import application, cut_over, fill, started
from truecopy.engines import connect, pool
from truecopy.engines.writers import HoldsOffWriters
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_an_application_that_writes_as_we_do(
    spark: SparkSession, postgres_db: Database, mariadb_db: Database
) -> None:
    """Its rights cannot be taken from it: refused where the lock would reach nobody, told where it reaches others."""
    fill(postgres_db, 20)
    settings = started(postgres_db, mariadb_db)
    with psycopg.connect(f"{postgres_db.url}?application_name=shop"):
        before = mariadb_db.execute("SELECT epoch FROM truecopy_task")
        with pytest.raises(UsageError, match=r"would hold nobody off .* \(shop, pid \d+\)"):
            cut_over(settings)
        assert mariadb_db.execute("SELECT epoch FROM truecopy_task") == before
        said: list[str] = []
        with application(postgres_db):
            assert cut_over(settings, rehearse=True, said=said.append).state == "rehearsed"
        assert any("revoke does not keep" in line and "(shop, pid" in line for line in said)
    assert cut_over(settings).state == "switched"


def test_others_whom_a_lock_does_not_reach_are_named(postgres_db: Database) -> None:
    """Asked by a user who is no superuser, from whom the server hides what the sessions of others are."""
    mark = secrets.token_hex(3)
    own, member, all_data, plain = (f"{name}_{mark}" for name in ("own", "member", "all", "plain"))
    for role in (own, member, all_data, plain):
        postgres_db.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    postgres_db.execute(f"GRANT {own} TO {member}; GRANT pg_write_all_data TO {all_data}")
    server = postgres_db.server
    at = f"{server.host}:{server.port}/{postgres_db.name}"
    try:
        with ExitStack() as stack:
            for user in (member, all_data, plain):
                stack.enter_context(psycopg.connect(f"postgresql://{user}:x@{at}"))
            stack.enter_context(psycopg.connect(f"{postgres_db.url}?application_name=psql"))
            session = stack.enter_context(connect(parse_endpoint(f"postgresql://{own}:x@{at}")))
            assert isinstance(session, HoldsOffWriters)
            found = sorted(line.split(" ")[0] for line in session.writers().beyond())
            assert found == sorted([member, all_data, server.user])
    finally:
        pool.close_idle()
        for role in (member, all_data, plain, own):
            postgres_db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
