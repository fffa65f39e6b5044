"""Fixtures of validation: a task's name that no other test has, and both kinds of targets."""

from __future__ import annotations

import secrets

import pytest

from tests.servers import Database


@pytest.fixture
def task() -> str:
    return f"task_{secrets.token_hex(4)}"


@pytest.fixture(params=["mariadb", "postgresql"])
def target(request: pytest.FixtureRequest) -> Database:
    names = {"mariadb": "second_mariadb_db", "postgresql": "postgres_db"}
    found: Database = request.getfixturevalue(names[request.param])
    return found
