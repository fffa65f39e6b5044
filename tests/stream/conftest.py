"""Fixtures for streams of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Database
from tests.stream.slots import Slots


@pytest.fixture
def db(postgres_db: Database) -> Database:
    # The server is set to answer before its log is written, which costs each barrier 0.2 s.
    postgres_db.execute(f"ALTER DATABASE {postgres_db.name} SET synchronous_commit = on")
    return postgres_db


@pytest.fixture
def stream(db: Database, tmp_path: Path) -> Iterator[Slots]:
    """Opens logs of the database."""
    with Slots(db, tmp_path) as slots:
        yield slots
