"""Databases of every engine that rows can be loaded into, for tests over all pairs of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest

from tests.servers import Database
from truecopy.engines import connect
from truecopy.engines.protocols import (
    Creates,
    DatabaseSession,
    DeletesKeys,
    Loads,
    Statement,
)
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.relation import WHOLE, Relation
from truecopy.model.table import Table, TableName
from truecopy.verify.matching import Comparison, match_tables
from truecopy.verify.options import Options

ENGINES = ("mariadb", "postgresql", "sqlite", "duckdb")


@dataclass(frozen=True)
class Place:
    """A database; `execute` goes through the raw driver."""

    engine: str
    url: str
    server: Database | None = None
    file: Path | None = None

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        if self.server is not None:
            found: list[tuple[Any, ...]] = []
            for statement in statements:
                found = self.server.execute(statement)
            return found
        assert self.file is not None
        opened: Any = (
            sqlite3.connect(self.file)
            if self.engine == "sqlite"
            else duckdb.connect(str(self.file))
        )
        with closing(opened) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            found = cursor.fetchall()
            connection.commit()
        return found

    @contextmanager
    def session(self) -> Iterator[Any]:
        with connect(parse_endpoint(self.url)) as session:
            yield session


def open_place(engine: str, request: pytest.FixtureRequest, name: str) -> Place:
    """A fresh database of that engine; `name` tells two of them apart."""
    fixtures = {"mariadb": "mariadb_db", "postgresql": "postgres_db", "mysql": "mysql_db"}
    if engine in fixtures:
        fixture = fixtures[engine]
        database = cast(Database, request.getfixturevalue(fixture))
        return Place(engine, database.url, database)
    file = cast(Path, request.getfixturevalue("tmp_path")) / f"{name}.{engine}"
    with closing(sqlite3.connect(file) if engine == "sqlite" else duckdb.connect(str(file))):
        file.touch()
    return Place(engine, f"{engine}://{'/' if engine == 'sqlite' else ''}{file}", file=file)


def described(session: Any, name: str) -> Table:
    found = session.find(name)
    assert found is not None, name
    table: Table = session.describe(found)
    return table


def make(session: Any, table: Table, name: str) -> Table:
    """Makes a table on the target as `table` is, by another name."""
    wanted = replace(table, name=TableName(None, name))
    assert isinstance(session, Creates)
    session.begin()  # type: ignore[attr-defined]
    for statement in session.create_table(wanted):
        session.execute(Statement(statement))  # type: ignore[attr-defined]
    session.commit()  # type: ignore[attr-defined]
    return described(session, name)


def matched(source: Any, first: Table, target: Any, second: Table) -> Comparison:
    return match_tables(source.endpoint, (first,), target.endpoint, second, Options())


def own_relation(session: Any, table: Table) -> Relation:
    """A table against itself."""
    return matched(session, table, session, table).source


def load(session: Any, relation: Relation, rows: pa.Table, annotation: str | None = None) -> int:
    """All rows in one transaction, or none."""
    assert isinstance(session, Loads)
    session.begin()
    try:
        taken = session.load(relation, rows, annotation)
    except BaseException:
        session.rollback()
        raise
    session.commit()
    return taken


def delete(session: Any, relation: Relation, keys: Sequence[tuple[str, ...]]) -> int:
    assert isinstance(session, DeletesKeys)
    columns = list(zip(*keys, strict=True))
    table = pa.table({f"k{i}": pa.array(column, pa.string()) for i, column in enumerate(columns)})
    session.begin()
    count = session.delete_keys(relation, table)
    session.commit()
    return count


def texts(*rows: tuple[str | None, ...]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table({f"c{i}": pa.array(column, pa.string()) for i, column in enumerate(columns)})


def held(session: Any, relation: Relation) -> list[tuple[str | None, ...]]:
    rows = cast(DatabaseSession, session).rows(relation, WHOLE)
    return sorted(zip(*(c.to_pylist() for c in rows.columns), strict=True), key=str)
