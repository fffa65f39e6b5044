"""Fixtures: real servers, started when the first test asks for one, and fresh databases in them.

def test_something(mariadb_db, postgres_db):
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    verify(mariadb_db.url, postgres_db.url)
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster import standalone_cluster
from tests.program import end_started
from tests.servers import Database, MariaDB, MySQL, PostgreSQL, Server
from truecopy.engines import pool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Checkpoints, certificates and logs of the tests stay out of the user's own state folder."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUECOPY_STATE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    yield
    end_started()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    with MariaDB() as server:
        yield server


@pytest.fixture(scope="session")
def second_mariadb_server() -> Iterator[Server]:
    with MariaDB() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    with PostgreSQL() as server:
        yield server


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[Server]:
    """MySQL itself. Tests that use it are marked `mysql`."""
    mysqld = os.environ.get("TRUECOPY_MYSQLD")
    if not mysqld:
        pytest.skip("TRUECOPY_MYSQLD names no mysqld (`make mysql` fetches one)")
    with MySQL(mysqld) as server:
        yield server


@pytest.fixture
def mariadb_db(mariadb_server: Server) -> Iterator[Database]:
    with fresh_database(mariadb_server) as database:
        yield database


@pytest.fixture
def logged_db(mariadb_db: Database) -> Database:
    """A database whose server's log begins here: what other tests wrote is not read again."""
    mariadb_db.execute("FLUSH BINARY LOGS")
    [*_, (last, *_)] = mariadb_db.execute("SHOW BINARY LOGS")
    mariadb_db.execute(f"PURGE BINARY LOGS TO '{last}'")
    return mariadb_db


@pytest.fixture
def second_mariadb_db(second_mariadb_server: Server) -> Iterator[Database]:
    with fresh_database(second_mariadb_server) as database:
        yield database


@pytest.fixture
def postgres_db(postgres_server: Server) -> Iterator[Database]:
    with fresh_database(postgres_server) as database:
        yield database


@pytest.fixture
def mysql_db(mysql_server: Server) -> Iterator[Database]:
    with fresh_database(mysql_server) as database:
        yield database


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from truecopy.spark import session

    spark = session()
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The master's URL of a Spark cluster of several processes."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as master:
        yield master


@contextmanager
def fresh_database(server: Server) -> Iterator[Database]:
    database = server.create_database(f"test_{secrets.token_hex(4)}")
    try:
        yield database
    finally:
        pool.close_idle()  # each test has databases of its own, and a server a limited number of connections
        server.drop_database(database.name)
