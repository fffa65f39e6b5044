"""Connections that a process keeps: those that are used again, and no others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.servers import Database
from truecopy.engines import pool
from truecopy.engines.protocols import Session, Statement
from truecopy.model.endpoint import parse_endpoint


def test_a_connection_is_kept_while_it_is_used(
    mariadb_db: Database, second_mariadb_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = parse_endpoint(mariadb_db.url), parse_endpoint(second_mariadb_db.url)
    with pool.lease(here) as session:
        first = _number(session)
    with pool.lease(there), pool.lease(here) as session:
        assert _number(session) == first
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.0)
    with pool.lease(here) as session:
        assert _number(session) == first, "whoever asks for it has it still"
    with pool.lease(there):
        kept = mariadb_db.execute("SELECT id FROM information_schema.processlist")
        assert (first,) not in kept
    pool.close_idle()
    assert not pool._idle


def _number(session: Session) -> int:
    ((number,),) = cast(Any, session).fetch(Statement("SELECT CONNECTION_ID()"))
    return int(number)
