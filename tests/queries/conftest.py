"""Ends of query verification."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.queries.ends import DuckFile, End, SQLiteFile, fill
from tests.servers import Database

ENGINES = ("duckdb", "sqlite", "postgresql", "mariadb")


@pytest.fixture
def duckdb_end(tmp_path: Path) -> End:
    place = DuckFile(tmp_path / "t.duckdb")
    fill(place)
    return End(f"duckdb:///{place.path}", place)


@pytest.fixture
def sqlite_end(tmp_path: Path) -> End:
    place = SQLiteFile(tmp_path / "t.sqlite")
    fill(place)
    return End(f"sqlite:///{place.path}", place)


@pytest.fixture
def postgres_end(postgres_db: Database) -> End:
    fill(postgres_db)
    return End(postgres_db.url, postgres_db)


@pytest.fixture
def mariadb_end(mariadb_db: Database) -> Iterator[End]:
    fill(mariadb_db)
    yield End(mariadb_db.url, mariadb_db)
    mariadb_db.execute("DROP DATABASE IF EXISTS truecopy_scratch")


@pytest.fixture
def mysql_end(mysql_db: Database) -> Iterator[End]:
    fill(mysql_db)
    yield End(mysql_db.url, mysql_db)
    mysql_db.execute("DROP DATABASE IF EXISTS truecopy_scratch")


@pytest.fixture
def end(request: pytest.FixtureRequest) -> Callable[[str], End]:
    """An end by the name of its engine."""
    names = {
        "duckdb": "duckdb_end",
        "sqlite": "sqlite_end",
        "postgresql": "postgres_end",
        "mariadb": "mariadb_end",
        "mysql": "mysql_end",
    }
    found: dict[str, End] = {}

    def get(engine: str) -> End:
        if engine not in found:
            found[engine] = request.getfixturevalue(names[engine])
        return found[engine]

    return get
