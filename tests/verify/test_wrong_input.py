"""Wrong input: one clear line, the right exit code, no stack trace, and no password anywhere."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.program import Ended, truecopy
from tests.servers import Database
from tests.verify.users import reader

MYSQL_LIKE = ["mariadb_db", pytest.param("mysql_db", marks=pytest.mark.mysql)]
UNUSABLE_SCHEMA = "REVOKE ALL ON SCHEMA public FROM PUBLIC;"


def one_line(ended: Ended, code: int, *words: str) -> None:
    assert ended.code == code, ended
    lines = ended.err.strip().splitlines()
    assert len(lines) == 1, ended.err
    assert "Traceback" not in ended.err
    for word in words:
        assert word in lines[0], lines[0]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as connection:
        connection.executescript(
            "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT);"
            "INSERT INTO items VALUES (1, 'a');"
            "CREATE TABLE empty (id INTEGER PRIMARY KEY);"
            "CREATE TABLE other (x INTEGER PRIMARY KEY);"
            "CREATE VIEW seen AS SELECT * FROM items;"
        )
    return f"sqlite:///{file}"


def test_unknown_scheme(sqlite_url: str) -> None:
    one_line(truecopy("verify", "mysq://u:secret@h/d", sqlite_url), 2, "mysql://")


def test_not_a_url(sqlite_url: str) -> None:
    one_line(truecopy("verify", "shop.db", sqlite_url), 2, "not a database URL")


def test_refused_connection(sqlite_url: str) -> None:
    ended = truecopy("verify", "mariadb://root:hunter2hunter2@127.0.0.1:1/shop", sqlite_url)
    one_line(ended, 3, "cannot connect", "127.0.0.1:1")
    assert "hunter2" not in ended.err


@pytest.mark.parametrize("server", ["mariadb_db", "postgres_db"])
def test_wrong_password(server: str, sqlite_url: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(server)
    url = database.url.replace(database.server.password, "wrong-and-secret")
    ended = truecopy("verify", url, sqlite_url)
    one_line(ended, 2, "password")
    assert "wrong-and-secret" not in ended.err + ended.out


@pytest.mark.parametrize("server", ["mariadb_db", "postgres_db"])
def test_missing_database(server: str, sqlite_url: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(server)
    one_line(truecopy("verify", database.server.url("nowhere"), sqlite_url), 2, "nowhere")


@pytest.mark.parametrize("server", ["mariadb_db", "postgres_db"])
def test_missing_table(server: str, sqlite_url: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(server)
    one_line(truecopy("verify", sqlite_url, database.url, "-t", "items"), 2, "items")
    one_line(truecopy("verify", sqlite_url, sqlite_url, "-t", "ghost"), 2, "ghost")
    one_line(truecopy("verify", sqlite_url, sqlite_url, "-t", "items=ghost"), 2, "ghost")


@pytest.mark.parametrize("server", ["mariadb_db", "postgres_db"])
def test_view(server: str, sqlite_url: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(server)
    database.execute("CREATE TABLE items (id INT PRIMARY KEY)")
    database.execute("CREATE VIEW seen AS SELECT * FROM items")
    one_line(truecopy("verify", database.url, database.url, "-t", "seen", "--json"), 2, "view")
    one_line(truecopy("verify", sqlite_url, sqlite_url, "-t", "seen", "--json"), 2, "view")


@pytest.mark.parametrize("chosen", [("-t", "items"), ()], ids=["table", "database"])
@pytest.mark.parametrize(
    ("server", "rights", "missing"),
    [
        ("mariadb_db", "GRANT SELECT (id) ON {db}.items TO {user}", "SELECT"),
        ("mariadb_db", "GRANT INSERT ON {db}.* TO {user}", "SELECT"),
        pytest.param(
            "mysql_db",
            "GRANT SELECT (id) ON {db}.items TO {user}",
            "SELECT",
            marks=pytest.mark.mysql,
        ),
        ("postgres_db", "", "SELECT"),
        ("postgres_db", "GRANT SELECT (id) ON items TO {user}", "SELECT (name)"),
        ("postgres_db", UNUSABLE_SCHEMA + "GRANT SELECT ON items TO {user}", "USAGE"),
        ("postgres_db", UNUSABLE_SCHEMA, "USAGE and SELECT"),
    ],
)
def test_no_permission(
    server: str,
    rights: str,
    missing: str,
    chosen: tuple[str, ...],
    request: pytest.FixtureRequest,
) -> None:
    database: Database = request.getfixturevalue(server)
    _make_items(database)
    with reader(database, rights) as limited:
        ended = truecopy("verify", database.url, limited.url, *chosen, "--json")
        one_line(ended, 3, missing, "items", limited.user)
        assert limited.password not in ended.err + ended.out
        _remedy(database, ended)
        remedied = truecopy("verify", database.url, limited.url, *chosen, "--json")
        assert remedied.code == 0, remedied


@pytest.mark.parametrize("server", MYSQL_LIKE)
def test_no_permission_to_know_whether_a_table_exists(
    server: str, request: pytest.FixtureRequest
) -> None:
    database: Database = request.getfixturevalue(server)
    _make_items(database)
    database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    with reader(database, "GRANT SELECT ON {db}.other TO {user}") as limited:
        for name in ("items", f"{database.name}.items", "ghost"):
            ended = truecopy("verify", limited.url, database.url, "-t", name)
            one_line(ended, 3, f"{name} does not exist", "SELECT", limited.user)
            assert limited.password not in ended.err + ended.out
        ended = truecopy("verify", database.url, limited.url, "-t", "items", "--json")
        one_line(ended, 3, "items does not exist", "SELECT", limited.user)
        _remedy(database, ended)
        assert truecopy("verify", database.url, limited.url, "-t", "items").code == 0


@pytest.mark.parametrize("server", MYSQL_LIKE)
@pytest.mark.parametrize(
    "rights", ["GRANT SELECT ON {db}.* TO {user}", "GRANT SELECT ON *.* TO {user}"]
)
def test_who_may_read_every_table_knows_that_one_is_missing(
    rights: str, server: str, request: pytest.FixtureRequest
) -> None:
    database: Database = request.getfixturevalue(server)
    with reader(database, rights) as limited:
        one_line(truecopy("verify", limited.url, database.url, "-t", "ghost"), 2, "no table ghost")


@pytest.mark.parametrize("server", MYSQL_LIKE)
def test_no_permission_on_the_database(server: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(server)
    _make_items(database)
    with reader(database) as limited:
        ended = truecopy("verify", database.url, limited.url, "--json")
        one_line(ended, 3, "GRANT SELECT ON", limited.user)
        assert limited.password not in ended.err + ended.out
        _remedy(database, ended)
        assert truecopy("verify", database.url, limited.url).code == 0


def _make_items(database: Database) -> None:
    database.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(10))")
    database.execute("INSERT INTO items VALUES (1, 'a')")


def _remedy(database: Database, ended: Ended) -> None:
    """Does what the line says."""
    _, grant, rest = ended.err.strip().partition("GRANT ")
    database.execute(grant + rest)


def test_empty_table(sqlite_url: str) -> None:
    ended = truecopy("verify", sqlite_url, sqlite_url, "-t", "empty", "--json")
    one_line(ended, 2, "empty")
    (table,) = ended.document["tables"]
    assert (table["verdict"], table["rows_compared"]) == ("not_compared", 0)


def test_empty_table_among_others_does_not_fail(sqlite_url: str) -> None:
    ended = truecopy("verify", sqlite_url, sqlite_url, "-t", "empty", "-t", "items", "--json")
    assert ended.code == 0, ended.err
    assert ended.document["verdict"] == "equal"


def test_no_common_columns(sqlite_url: str) -> None:
    ended = truecopy("verify", sqlite_url, sqlite_url, "-t", "items=other", "--json")
    one_line(ended, 2, "no column in common", "--rename")


def test_no_common_tables(sqlite_url: str, tmp_path: Path) -> None:
    empty = tmp_path / "none.db"
    sqlite3.connect(empty).close()
    empty.write_bytes(b"")
    one_line(truecopy("verify", sqlite_url, f"sqlite:///{empty}"), 2, "no table in common")


def test_types_that_cannot_be_compared(mariadb_db: Database, postgres_db: Database) -> None:
    """A target older than the source's types: the column and the remedy are named."""
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP NOT NULL, area GEOMETRY)")
    mariadb_db.execute("INSERT INTO t VALUES (1, '2024-01-01', POINT(1, 1))")
    postgres_db.execute("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP, area BYTEA)")
    ended = truecopy("verify", mariadb_db.url, postgres_db.url, "-t", "t", "--json")
    one_line(ended, 2, "--ignore-column", "--cast", "at")
    remedied = truecopy(
        "verify", mariadb_db.url, postgres_db.url, "-t", "t", "--cast", "at=timestamp", "--json"
    )
    one_line(remedied, 2, "area")


def test_unknown_option(sqlite_url: str) -> None:
    ended = truecopy("verify", sqlite_url, sqlite_url, "--sampel", "1")
    assert ended.code == 2
    assert "--sampel" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    "wrong",
    [
        ("--cast", "name=colour"),
        ("--cast", "name"),
        ("--rename", "name"),
        ("--sample", "7"),
        ("--limit", "0"),
        ("--key", "ghost"),
        ("--master", "spark://127.0.0.1:1"),
        ("--replica", "sqlite:///nowhere.db"),
    ],
)
def test_wrong_values(wrong: tuple[str, str], sqlite_url: str) -> None:
    one_line(truecopy("verify", sqlite_url, sqlite_url, "-t", "items", *wrong), 2)


def test_variable_that_is_not_set(sqlite_url: str) -> None:
    one_line(truecopy("verify", "mysql://u:${NO_SUCH_PW}@h/d", sqlite_url), 2, "NO_SUCH_PW")


def test_no_java(sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ended = truecopy("verify", sqlite_url, sqlite_url, "-t", "items", "--master", "local[1]")
    one_line(ended, 2, "Java 17", "openjdk-17")


@pytest.mark.long
def test_no_password_in_any_output_log_or_setting(
    mariadb_db: Database,
    second_mariadb_db: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run on Spark that fails half-way: nothing it leaves behind holds a password."""
    monkeypatch.setenv("TRUECOPY_STATE", str(tmp_path / "state"))
    secrets = [database.server.password for database in (mariadb_db, second_mariadb_db)]
    for database in (mariadb_db, second_mariadb_db):
        database.execute("CREATE TABLE items (id INT PRIMARY KEY, name TEXT)")
        database.execute("INSERT INTO items SELECT seq, REPEAT('x', 100) FROM seq_1_to_3000")
    second_mariadb_db.execute("DELETE FROM items WHERE id = 7")
    page, repair = tmp_path / "page.html", tmp_path / "repair.sql"
    ended = truecopy(
        *("verify", mariadb_db.url, second_mariadb_db.url, "--json", "--master", "local[2]"),
        *(
            "--report",
            str(page),
            "--repair",
            str(repair),
            "--certificate",
            str(tmp_path / "c.html"),
        ),
    )
    assert ended.code == 1, ended.err
    broken = truecopy(
        *("verify", mariadb_db.url, second_mariadb_db.url, "--where", "no_such_function(id) > 1"),
        *("--master", "local[2]"),
    )
    assert broken.code in (2, 3)
    assert len(broken.err.strip().splitlines()) == 1, broken.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "spark.log" for path in files)
    texts = [path.read_bytes().decode(errors="replace") for path in files]
    texts += [ended.out, ended.err, broken.out, broken.err]
    for secret in secrets:
        assert not any(secret in text for text in texts)


def test_no_password_in_sparks_configuration(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    import truecopy as library

    for database in (mariadb_db, second_mariadb_db):
        database.execute("CREATE TABLE items (id INT PRIMARY KEY)")
        database.execute("INSERT INTO items SELECT seq FROM seq_1_to_100")
    library.verify(mariadb_db.url, second_mariadb_db.url, master="local[2]")
    settings = str(spark.sparkContext.getConf().getAll())
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    settings += str(jvm.System.getProperties())
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        if "java" in (line := process.read_bytes().decode(errors="replace")):
            settings += line
    for database in (mariadb_db, second_mariadb_db):
        assert database.server.password not in settings
    assert os.environ.get("PYSPARK_SUBMIT_ARGS", "").count("password") == 0
