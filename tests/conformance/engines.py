"""The engines under test: how each makes a table and is given rows by its own driver.

Values go in through the raw driver, never through Truecopy, so that nothing of Truecopy can be wrong
in the same way on the way in and on the way out.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tests.conformance.cases import Case, Storage
from tests.servers import Database
from truecopy.engines import connect
from truecopy.engines.protocols import DatabaseSession, Frames, Introspects, Session
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.fingerprint import Digest, digest_of
from truecopy.model.relation import WHOLE, Relation
from truecopy.model.types import Integer, Type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Sequence[tuple[int, object]]
Texts = dict[int, str | None]


class Engine(ABC):
    """One database, with the few things that the suite asks of it."""

    name: str
    url: str

    @abstractmethod
    def make(self, table: str, storage: Storage, rows: Rows) -> None:
        """A table `(id integer primary key, v TYPE)` with these rows; an older one is dropped."""

    def execute(self, *statements: str) -> None:
        """Runs statements through the raw driver."""
        raise NotImplementedError

    @contextmanager
    def session(self) -> Iterator[Session]:
        with closing(connect(parse_endpoint(self.url))) as session:
            yield session

    def relation(self, session: Session, table: str, agreed: Type) -> Relation:
        found = cast(Introspects, session).find(table)
        assert found is not None, f"{table} was not found on {self.name}"
        described = cast(Introspects, session).describe(found)
        columns = tuple(c for name in ("id", "v") if (c := described.column(name)) is not None)
        assert len(columns) == 2
        return Relation(parse_endpoint(self.url), (found,), columns, (Integer(), agreed), 1)

    def read(self, table: str, agreed: Type) -> tuple[Texts, dict[int, int], Digest]:
        """Canonical texts and fingerprints by id, and the digest, as the engine computes them."""
        with self.session() as session:
            relation = self.relation(session, table, agreed)
            if isinstance(session, Frames):
                return _from_frames(session, relation)
            database = cast(DatabaseSession, session)
            rows = database.rows(relation, WHOLE)
            prints = database.fingerprints(relation, WHOLE)
            return _texts(rows), _prints(prints), database.digest(relation, WHOLE)

    def storage(self, case: Case) -> Storage | None:
        """How this engine keeps the values of a case; None where it cannot."""
        return case.storages.get(self.name)


def _texts(rows: pa.Table) -> Texts:
    assert all(column.type == pa.string() for column in rows.columns), rows.schema
    ids = [int(text) for text in rows.column("c0").to_pylist()]
    return dict(zip(ids, rows.column("c1").to_pylist(), strict=True))


def _prints(prints: pa.Table) -> dict[int, int]:
    assert prints.schema.field("fingerprint").type == pa.int64()
    ids = [int(text) for text in prints.column("k0").to_pylist()]
    return dict(zip(ids, prints.column("fingerprint").to_pylist(), strict=True))


def _from_frames(session: Frames, relation: Relation) -> tuple[Texts, dict[int, int], Digest]:
    texts = _texts(session.row_frame(relation).toArrow())
    prints = _prints(session.fingerprint_frame(relation).toArrow())
    return texts, prints, digest_of(prints.values())


class Served(Engine):
    """An engine with a server and `%s` for a parameter."""

    key = "BIGINT PRIMARY KEY"

    def __init__(self, name: str, database: Database) -> None:
        self.name = name
        self.url = database.url
        self.database = database

    def make(self, table: str, storage: Storage, rows: Rows) -> None:
        with closing(self.database.connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in (*self.setup, f"DROP TABLE IF EXISTS {table}", *storage.before):
                cursor.execute(statement)
            cursor.execute(f"CREATE TABLE {table} (id {self.key}, v {storage.ddl})")
            cursor.execute("BEGIN")
            stored = [(key, None if v is None else storage.store(v)) for key, v in rows]
            insert = f"INSERT INTO {table} VALUES (%s, {storage.place.format('%s')})"
            self.insert(cursor, insert, stored)
            cursor.execute("COMMIT")

    setup: tuple[str, ...] = ()

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.database.execute(statement)

    def insert(self, cursor: Any, statement: str, rows: Sequence[tuple[int, object]]) -> None:
        cursor.executemany(statement, rows)


class MariaDBEngine(Served):
    """MariaDB, or MySQL itself. Zero dates are allowed; a value that is cut is an error."""

    setup = ("SET sql_mode = 'STRICT_ALL_TABLES'", "SET time_zone = '+00:00'")

    def storage(self, case: Case) -> Storage | None:
        found = case.storages.get("mariadb")
        return None if self.name == "mysql" and case.name in NOT_IN_MYSQL else found


NOT_IN_MYSQL = {"uuid", "json big numbers", "json big numbers in jsonb"}
"""MySQL has no UUID type, and keeps numbers of JSON as doubles."""


class PostgreSQLEngine(Served):
    """PostgreSQL; texts are given as unknown literals, which take the type of the column."""


class SQLiteEngine(Engine):
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.file = folder / "conformance.db"
        self.url = f"sqlite:///{self.file}"

    def make(self, table: str, storage: Storage, rows: Rows) -> None:
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
            connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, v {storage.ddl})")
            stored = [(key, None if v is None else storage.store(v)) for key, v in rows]
            connection.executemany(
                f"INSERT INTO {table} VALUES (?, {storage.place.format('?')})", stored
            )
            connection.commit()

    def execute(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.file)) as connection:
            connection.executescript(";".join(statements))


class DuckDBEngine(Engine):
    """DuckDB; the file is closed before Truecopy opens it."""

    name = "duckdb"

    def __init__(self, folder: Path) -> None:
        self.file = folder / "conformance.duckdb"
        self.url = f"duckdb:///{self.file}"

    def make(self, table: str, storage: Storage, rows: Rows) -> None:
        with closing(duckdb.connect(str(self.file))) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in storage.before:
                connection.execute(statement)
            connection.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, v {storage.ddl})")
            stored = [(key, None if v is None else storage.store(v)) for key, v in rows]
            connection.begin()
            for at in range(
                0, len(stored), 500
            ):  # one statement a row would take a millisecond each
                part = stored[at : at + 500]
                places = ", ".join([f"(?, {storage.place.format('?')})"] * len(part))
                connection.execute(f"INSERT INTO {table} VALUES {places}", [*chain(*part)])
            connection.commit()

    def execute(self, *statements: str) -> None:
        with closing(duckdb.connect(str(self.file))) as connection:
            for statement in statements:
                connection.execute(statement)


class LakeEngine(Engine):
    """Parquet files, which Spark reads; written by pyarrow."""

    name = "lake"

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder / "lake"
        self.url = f"lake:///{self.folder}"
        self.spark = spark
        self._made = 0

    def make(self, table: str, storage: Storage, rows: Rows) -> None:
        folder = self.folder / table
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        assert storage.arrow is not None
        values = [None if value is None else storage.store(value) for _, value in rows]
        columns = {
            "id": pa.array([key for key, _ in rows], pa.int64()),
            "v": pa.array(values, storage.arrow),
        }
        self._made += 1  # a name of its own, so that Spark never takes an old file for the new one
        pq.write_table(pa.table(columns), folder / f"part-{self._made}.parquet")
