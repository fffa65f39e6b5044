"""Every engine, once for the whole suite, and the check that all of them must pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.cases import ENGINES
from tests.conformance.engines import (
    DuckDBEngine,
    Engine,
    LakeEngine,
    MariaDBEngine,
    PostgreSQLEngine,
    SQLiteEngine,
)
from tests.conftest import fresh_database
from tests.servers import Server

ALL = [*ENGINES, pytest.param("mysql", marks=pytest.mark.mysql)]


@pytest.fixture(scope="package")
def mariadb_engine(mariadb_server: Server) -> Iterator[Engine]:
    with fresh_database(mariadb_server) as database:
        yield MariaDBEngine("mariadb", database)


@pytest.fixture(scope="package")
def mysql_engine(mysql_server: Server) -> Iterator[Engine]:
    with fresh_database(mysql_server) as database:
        yield MariaDBEngine("mysql", database)


@pytest.fixture(scope="package")
def postgresql_engine(postgres_server: Server) -> Iterator[Engine]:
    with fresh_database(postgres_server) as database:
        yield PostgreSQLEngine("postgresql", database)


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conformance")


@pytest.fixture(scope="package")
def sqlite_engine(folder: Path) -> Engine:
    return SQLiteEngine(folder)


@pytest.fixture(scope="package")
def duckdb_engine(folder: Path) -> Engine:
    return DuckDBEngine(folder)


@pytest.fixture(scope="package")
def lake_engine(folder: Path, request: pytest.FixtureRequest) -> Engine:
    return LakeEngine(folder, request.getfixturevalue("spark"))


@pytest.fixture(scope="package", params=ALL)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn; started only when a test asks for it."""
    found: Engine = request.getfixturevalue(f"{request.param}_engine")
    return found
