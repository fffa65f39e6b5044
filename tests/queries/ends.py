"""Ends for the tests: small tables, the same in every engine, and a short way to run a suite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from truecopy.queries.query import Query, SideQuery
from truecopy.queries.result import QueryResult
from truecopy.queries.settings import Settings
from truecopy.queries.suite import run_queries

ROWS = [
    (1, "ada", "10.50", 1.5, "2024-01-01"),
    (2, "bob", "20.25", 2.5, "2024-01-02"),
    (3, "çelik", "-3.00", -0.75, "2024-02-29"),
    (4, None, None, None, None),
    (5, "", "0.00", 0.0, "1999-12-31"),
]
_COLUMNS = (
    "id INTEGER PRIMARY KEY, name VARCHAR(20), amount DECIMAL(12,2), f DOUBLE PRECISION, d DATE"
)


@dataclass(frozen=True)
class End:
    """One engine with the table `t` in it."""

    url: str
    place: Any

    def execute(self, sql: str) -> Any:
        """Runs a statement beside the verification."""
        return self.place.execute(sql)


class DuckFile:
    """A DuckDB file, opened for each statement."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(self.path)) as connection:
            return connection.execute(sql).fetchall()


class SQLiteFile:
    """An SQLite file, opened for each statement."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


def literal(value: object) -> str:
    """A value in SQL of every engine."""
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else repr(value)


def fill(place: Any) -> None:
    """Makes the table `t`."""
    place.execute(f"CREATE TABLE t ({_COLUMNS})")
    rows = ", ".join(f"({', '.join(map(literal, row))})" for row in ROWS)
    place.execute(f"INSERT INTO t VALUES {rows}")


def both(name: str, control: str, test: str | None = None, **more: Any) -> Query:
    """A query of both sides."""
    return Query("s", name, SideQuery(control), SideQuery(test or control), **more)


def run(control: End, test: End, *queries: Query, **choices: Any) -> list[QueryResult]:
    """Runs queries with a few settings."""
    settings = Settings(**{"backoff": 0.05, "concurrency": 2, **choices})
    return run_queries(queries, control.url, test.url, settings).results


def one(control: End, test: End, sql: str, other: str | None = None, **choices: Any) -> QueryResult:
    """Runs one query."""
    return run(control, test, both("q", sql, other), **choices)[0]


def wrong_columns(result: QueryResult) -> list[str]:
    """Columns that do not match."""
    return [column.name for column in result.columns if not column.match]


def details(results: Sequence[QueryResult]) -> list[tuple[str, str, str]]:
    """What a failed assertion should show."""
    return [(r.name, str(r.status), r.detail) for r in results]
