"""Metastores in every database that one may be kept in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import Engine

from truecopy.metastore import database


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def metastore_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'metastore.db'}"
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_db").url
        return url.replace("postgresql://", "postgresql+psycopg://", 1)
    url = request.getfixturevalue("mariadb_db").url
    return url.replace("mariadb://", "mysql+pymysql://", 1)


@pytest.fixture(autouse=True)
def nothing_kept_open(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Engines are kept for the life of a process; a test's database is gone before that."""
    if "metastore_url" in request.fixturenames:
        request.getfixturevalue("metastore_url")  # so that this ends before it does
    made: list[Engine] = []
    create = sqlalchemy.create_engine

    def create_engine(url: str, pool_pre_ping: bool) -> Engine:
        made.append(create(url, pool_pre_ping=pool_pre_ping))
        return made[-1]

    monkeypatch.setattr(database, "create_engine", create_engine)
    database._opened.cache_clear()
    yield
    database._opened.cache_clear()
    for engine in made:
        engine.dispose()
