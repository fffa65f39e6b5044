"""Results of MariaDB as Arrow, several of them at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import Database
from truecopy.engines.mysql import MySQL
from truecopy.engines.protocols import Statement
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.relation import Relation
from truecopy.model.table import TableName


@pytest.fixture
def session(mariadb_db: Database) -> Iterator[MySQL]:
    with MySQL(parse_endpoint(mariadb_db.url)) as opened:
        yield opened


def relation(session: MySQL, name: str) -> Relation:
    table = session.describe(session.find(name) or TableName(None, name))
    types = tuple(column.type for column in table.columns)
    return Relation(session.endpoint, (table.name,), table.columns, types, key_width=1)


@pytest.mark.parametrize("per_query", [1, 3, 7, 100])
def test_rows_by_key_are_the_same_however_many_a_statement_asks_for(
    session: MySQL, mariadb_db: Database, per_query: int
) -> None:
    mariadb_db.execute("CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(20))")
    rows = [(n, None if n % 5 == 0 else f"é{n}") for n in (*range(20), 2**64 - 1)]
    mariadb_db.executemany("INSERT INTO t VALUES (%s, %s)", rows)
    keys = [(str(n),) for n in (-1, *range(0, 40, 2), 2**64 - 1, 2**70)]
    found = session.rows_by_key(relation(session, "t"), keys, per_query)
    texts = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    assert texts == [(str(n), v) for n, v in rows if (str(n),) in keys]


def test_no_rows_at_all(session: MySQL, mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    assert session.rows_by_key(relation(session, "t"), [("1",), ("2",)], 1).num_rows == 0
    assert session.rows_by_key(relation(session, "t"), []).num_rows == 0


def test_a_warning_of_an_earlier_statement_is_not_passed_over(session: MySQL) -> None:
    statements = [Statement(f"SELECT {what}") for what in ("1", "CAST('x' AS SIGNED)", "2")]
    with pytest.raises(CannotFinish, match=r"could not compute every value: .*'x'"):
        session.fetch_all_texts(statements, ["a"])
    assert session.fetch(Statement("SELECT 3")) == [("3",)]


def test_an_error_between_statements_leaves_the_session_good(session: MySQL) -> None:
    statements = [Statement(f"SELECT {what}") for what in ("1", "nothing_like_it", "2")]
    with pytest.raises(TruecopyError, match="nothing_like_it"):
        session.fetch_all_texts(statements, ["a"])
    assert session.fetch_all_texts(statements[::2], ["a"]).column("a").to_pylist() == ["1", "2"]
