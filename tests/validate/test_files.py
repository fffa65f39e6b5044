"""Targets that are files: one state of SQLite can be read while others write; DuckDB and a lake are refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from tests.servers import Database
from truecopy.engines.protocols import Statement
from truecopy.engines.sqlite import SQLite
from truecopy.metastore.validations import Validations
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.continuous.validator import Validator
from truecopy.transfer.settings import Settings

pytestmark = pytest.mark.timeout(900)


def test_a_view_of_a_sqlite_file_stands_still(tmp_path: Path) -> None:
    file = tmp_path / "copy.db"
    for sql in ("PRAGMA journal_mode = WAL", "CREATE TABLE t (v)", "INSERT INTO t VALUES (1)"):
        execute(file, sql)
    rows = Statement("SELECT v FROM t")
    with SQLite(parse_endpoint(f"sqlite:///{file}")) as session:
        session.open_view()
        assert session.fetch(rows) == [(1,)]
        execute(file, "UPDATE t SET v = 2")
        assert session.fetch(rows) == [(1,)]
        session.rollback()
        assert session.fetch(rows) == [(2,)]


def execute(file: Path, sql: str) -> None:
    with closing(sqlite3.connect(file, timeout=30)) as connection, connection:
        connection.execute(sql)


@pytest.mark.parametrize("target", ["duckdb:///{}/copy.duckdb", "lake:///{}"])
def test_what_cannot_be_read_beside_its_writer_is_refused(
    mariadb_db: Database, task: str, tmp_path: Path, target: str
) -> None:
    duckdb.connect(str(tmp_path / "copy.duckdb")).close()
    settings = Settings(task, mariadb_db.url, target.format(tmp_path))
    with pytest.raises(UsageError, match="cannot be looked at one by one"):
        Validator(settings, ContinuousOptions()).run()
    assert Validations().find(task) is None
