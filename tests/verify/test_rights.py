"""Users who may read what is compared, by whatever way the right came to them: no false alarm."""

from __future__ import annotations

import pytest

from tests.servers import Database
from tests.verify.users import reader
from truecopy import verify

OF_MYSQL = [
    "GRANT SELECT ON {db}.items TO {user}",
    "GRANT SELECT ON {db}.* TO {user}",
    r"GRANT SELECT ON `test\_%`.* TO {user}",
    "GRANT SELECT ON *.* TO {user}",
    "GRANT ALL PRIVILEGES ON {db}.* TO {user}",
]
OF_MARIADB = [
    *OF_MYSQL,
    "GRANT SELECT ON {db}.items TO {role}; GRANT {role} TO {user}; SET DEFAULT ROLE {role} FOR {user}",
]
OF_POSTGRESQL = [
    "GRANT SELECT ON items TO {user}",
    "GRANT SELECT (id, name) ON items TO {user}",
    "GRANT SELECT ON items TO {role}; GRANT {role} TO {user}",
    "GRANT SELECT ON items TO PUBLIC",
    "GRANT pg_read_all_data TO {user}; REVOKE ALL ON SCHEMA public FROM PUBLIC",
    "ALTER TABLE items OWNER TO {user}",
]


@pytest.mark.parametrize(
    ("server", "rights"),
    [
        *(("mariadb_db", rights) for rights in OF_MARIADB),
        *(pytest.param("mysql_db", rights, marks=pytest.mark.mysql) for rights in OF_MYSQL),
        pytest.param(
            "mysql_db",
            "GRANT SELECT ON {db}.items TO {role}; GRANT {role} TO {user}; SET DEFAULT ROLE {role} TO {user}",
            marks=pytest.mark.mysql,
        ),
        *(("postgres_db", rights) for rights in OF_POSTGRESQL),
    ],
)
def test_rights_are_found_wherever_they_come_from(
    server: str, rights: str, request: pytest.FixtureRequest
) -> None:
    database: Database = request.getfixturevalue(server)
    database.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(10))")
    database.execute("INSERT INTO items VALUES (1, 'a')")
    with reader(database, rights) as limited:
        for tables in ((), ("items",)):
            report = verify(database.url, limited.url, tables=tables)
            assert (report.verdict, report.tables[0].rows_compared) == ("equal", 1)


def test_columns_that_are_left_out_need_no_right(postgres_db: Database) -> None:
    postgres_db.execute("CREATE TABLE items (id INT PRIMARY KEY, name TEXT, secret TEXT)")
    postgres_db.execute("INSERT INTO items VALUES (1, 'a', 'b')")
    with reader(postgres_db, "GRANT SELECT (id, name) ON items TO {user}") as limited:
        report = verify(postgres_db.url, limited.url, ignore_columns=("secret",))
    assert report.verdict == "equal"


def test_documents_are_known_with_no_right_but_select(
    mariadb_db: Database, postgres_db: Database
) -> None:
    """MariaDB hides the check that tells JSON from text, but not from who looks at the right place."""
    mariadb_db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY COMMENT 'CHECK (json_valid(`plain`))',"
        " `a``b` JSON, plain LONGTEXT)"
    )
    postgres_db.execute('CREATE TABLE t (id INT PRIMARY KEY, "a`b" JSONB, plain TEXT)')
    mariadb_db.execute("INSERT INTO t VALUES (1, '{\"x\":1}', '{\"x\":1}')")
    postgres_db.execute("INSERT INTO t VALUES (1, '{\"x\": 1}', '{\"x\":1}')")
    with reader(mariadb_db, "GRANT SELECT ON {db}.t TO {user}") as limited:
        report = verify(limited.url, postgres_db.url)
    assert (report.verdict, report.tables[0].structure) == ("equal", ())
