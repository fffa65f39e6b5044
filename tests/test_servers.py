"""The servers that all other tests stand on."""

from __future__ import annotations

import pymysql
import pytest

from tests.servers import Database, MySQLServer, Server

DATABASES = [
    "mariadb_db",
    "second_mariadb_db",
    "postgres_db",
    pytest.param("mysql_db", marks=pytest.mark.mysql),
]


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("database", DATABASES, indirect=True)
def test_answers_a_select(database: Database) -> None:
    assert database.execute("SELECT 1 + %s", (1,)) == [(2,)]


@pytest.mark.parametrize("database", DATABASES, indirect=True)
def test_keeps_rows(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(1, "Ångström"), (2, None)])
    assert database.execute("SELECT * FROM t ORDER BY id") == [(1, "Ångström"), (2, None)]


@pytest.mark.parametrize("database", DATABASES, indirect=True)
def test_runs_several_statements(database: Database) -> None:
    assert database.execute(
        "CREATE TABLE t (id INT); INSERT INTO t VALUES (7); SELECT * FROM t"
    ) == [(7,)]


@pytest.mark.parametrize("database", DATABASES, indirect=True)
def test_url_carries_the_password_and_repr_does_not(database: Database) -> None:
    assert database.server.password in database.url
    assert database.server.password not in repr(database)


@pytest.mark.parametrize(
    "name", ["mariadb_server", pytest.param("mysql_server", marks=pytest.mark.mysql)]
)
def test_logs_rows_and_refuses_an_empty_password(request: pytest.FixtureRequest, name: str) -> None:
    server: Server = request.getfixturevalue(name)
    assert server.execute(None, "SELECT @@log_bin, @@binlog_format") == [(1, "ROW")]
    stranger = MySQLServer(server.scheme, server.host, server.port, server.user, "")
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        stranger.execute(None, "SELECT 1")


def test_two_mariadb_servers_are_two(mariadb_server: Server, second_mariadb_server: Server) -> None:
    ids = [s.execute(None, "SELECT @@server_id") for s in (mariadb_server, second_mariadb_server)]
    assert ids[0] != ids[1]


def test_postgres_can_replicate(postgres_server: Server) -> None:
    assert postgres_server.execute(None, "SHOW wal_level") == [("logical",)]
