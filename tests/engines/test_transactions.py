"""Transactions whose session is lost: the error that is raised says so, and is one that callers try again after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tests.engines.places import ENGINES, Place, described, open_place, own_relation, texts
from truecopy.engines import mysql_load
from truecopy.engines.lines import transaction
from truecopy.engines.mysql import MySQL
from truecopy.engines.protocols import Statement
from truecopy.model.errors import CannotFinish
from truecopy.model.relation import Relation

LOST = "lost the connection to .*; run the same command again to go on"
SERVERS = ("mariadb", "postgresql")


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Callable[[str], Place]:
    def opened(engine: str) -> Place:
        there = open_place(engine, request, "target")
        there.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(100))")
        return there

    return opened


def cut(session: Any, place: Place) -> None:
    """Ends the session's connection, as a server does that is stopped, and waits until it has."""
    assert place.server is not None
    is_mysql = isinstance(session, MySQL)
    asked = "SELECT CONNECTION_ID()" if is_mysql else "SELECT pg_backend_pid()"
    ((number,),) = session.fetch(Statement(asked))
    place.execute(f"KILL {number}" if is_mysql else f"SELECT pg_terminate_backend({number})")
    there = (
        f"SELECT 1 FROM information_schema.processlist WHERE id = {number}"
        if is_mysql
        else f"SELECT 1 FROM pg_stat_activity WHERE pid = {number}"
    )
    deadline = time.monotonic() + 20
    while place.execute(there):
        assert time.monotonic() < deadline, "the server keeps the connection"
        time.sleep(0.02)


def write(session: Any, between: Callable[[], None], *then: str) -> None:
    """A transaction in which something happens behind its first statement."""
    with transaction(session):
        session.execute(Statement("INSERT INTO t VALUES (1, 'a')"))
        between()
        for statement in then:
            session.execute(Statement(statement))


@pytest.mark.parametrize("engine", SERVERS)
@pytest.mark.parametrize(
    "then", [("INSERT INTO t VALUES (2, 'b')",), ()], ids=["statement", "commit"]
)
def test_a_connection_that_is_lost_before_a_step(
    place: Callable[[str], Place], engine: str, then: tuple[str, ...]
) -> None:
    there = place(engine)
    with there.session() as session, pytest.raises(CannotFinish, match=LOST):
        write(session, partial(cut, session, there), *then)
    assert not there.execute("SELECT * FROM t")


def test_a_connection_that_is_lost_while_rows_are_sent(
    place: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = place("mariadb")
    file_of = mysql_load.file_of

    def cut_short(relation: Relation, rows: pa.Table) -> Iterator[memoryview]:
        yield from file_of(relation, rows)
        there.execute(f"KILL {number}")
        for _ in range(50):
            time.sleep(0.1)
            yield memoryview(b"2\tb\n" * 100_000)

    monkeypatch.setattr(mysql_load, "file_of", cut_short)
    with there.session() as session:
        ((number,),) = session.fetch(Statement("SELECT CONNECTION_ID()"))
        relation = own_relation(session, described(session, "t"))
        with pytest.raises(CannotFinish, match=LOST), transaction(session):
            session.load(relation, texts(("1", "a")))
    assert not there.execute("SELECT * FROM t")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_session_that_is_closed_does_not_hide_why(
    place: Callable[[str], Place], engine: str
) -> None:
    def fail() -> None:
        session.close()
        raise ZeroDivisionError

    with place(engine).session() as session, pytest.raises(ZeroDivisionError):
        write(session, fail)
