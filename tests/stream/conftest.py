"""Fixtures for streams: of MariaDB with a log of its own, of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Database
from tests.stream.slots import Slots


@pytest.fixture
def logged_db(mariadb_db: Database) -> Database:
    """A database whose server's log begins here: what other tests wrote is not read again."""
    mariadb_db.execute("FLUSH BINARY LOGS")
    [*_, (last, *_)] = mariadb_db.execute("SHOW BINARY LOGS")
    mariadb_db.execute(f"PURGE BINARY LOGS TO '{last}'")
    return mariadb_db


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
