"""Sequences that belong to no column: what they give next, and how they go on elsewhere."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.servers import Database
from truecopy.engines import connect
from truecopy.engines.protocols import HasSequences
from truecopy.model.endpoint import parse_endpoint

FIXTURES = ["mariadb_db", "postgres_db"]


@pytest.fixture(params=FIXTURES)
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


def given(database: Database, name: str) -> int:
    return int(database.execute(f"SELECT nextval({_quoted(database, name)})")[0][0])


def test_what_they_give_next(database: Database) -> None:
    database.execute("CREATE SEQUENCE fresh START WITH 7")
    database.execute("CREATE SEQUENCE used START WITH 10 INCREMENT BY 5")
    assert [given(database, "used") for _ in range(3)] == [10, 15, 20]
    database.execute("CREATE SEQUENCE told")
    database.execute(f"SELECT setval({_quoted(database, 'told')}, 40, {_no(database)})")
    if database.server.scheme == "postgresql":
        database.execute("CREATE TABLE numbered (id SERIAL PRIMARY KEY)")  # its own goes with it
    with _session(database) as session:
        found = {name.table: number for name, number in session.sequences().items()}
    assert found.keys() == {"fresh", "used", "told"}
    assert (found["fresh"], found["told"]) == (7, 40)
    assert found["used"] >= 25
    assert given(database, "fresh") == 7, "asking takes none"


def test_they_go_on_and_never_back(database: Database) -> None:
    database.execute("CREATE SEQUENCE up")
    database.execute(
        "CREATE SEQUENCE down START WITH -1 INCREMENT BY -1 MINVALUE -1000 MAXVALUE -1"
    )
    database.execute("CREATE SEQUENCE spent MAXVALUE 9")
    with _session(database) as session:
        names = {name.table: name for name in session.sequences()}
        session.advance_sequence(names["up"], 500, "truecopy % test")
        session.advance_sequence(names["up"], 20)
        session.advance_sequence(names["down"], -300)
        session.advance_sequence(names["down"], -20)
        session.advance_sequence(names["spent"], 10)
    assert (given(database, "up"), given(database, "down")) == (500, -300)
    with pytest.raises(Exception, match=r"run out|reached maximum"):
        given(database, "spent")


def _session(database: Database) -> Any:
    session = connect(parse_endpoint(database.url))
    assert isinstance(session, HasSequences)
    return cast(Any, session)


def _quoted(database: Database, name: str) -> str:
    return name if database.server.scheme == "mariadb" else f"'{name}'"


def _no(database: Database) -> str:
    return "0" if database.server.scheme == "mariadb" else "false"
