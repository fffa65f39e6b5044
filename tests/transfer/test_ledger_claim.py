"""Who has a task: of two processes one, and what the other one still writes of its tables changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from tests.servers import Database
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.relation import Chunk
from truecopy.transfer.ledger import CHUNKS, TASKS, Ledger, Overtaken, SourceLine

ORIGIN = {"shard": "somewhere"}


@pytest.mark.parametrize("engine", ["mariadb_db", "postgres_db"])
def test_the_second_of_two_first_claims(engine: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(engine)
    endpoint = parse_endpoint(database.url)
    with (
        connect(endpoint) as one,
        connect(endpoint) as other,
        ThreadPoolExecutor(1) as beside,
    ):
        first, second = (Ledger(cast(Any, session), "move") for session in (one, other))
        first.create()
        lines: Any = first._lines
        with lines.transaction():
            # It has found no line, and is about to commit its own.
            lines.execute(
                f"INSERT INTO {TASKS} (task, phase, origin, epoch) VALUES (?, ?, ?, ?)",
                *("move", "snapshot", "{}", 1),
            )
            claimed = beside.submit(second.claim, {})
            time.sleep(1)
            assert not claimed.done()
        with pytest.raises(CannotFinish, match="another process has begun move") as told:
            claimed.result(30)
        assert "\n" not in str(told.value)
        line = first.find()
        assert line is not None
        assert line.epoch == 1, "the one that was quicker is not disturbed"


def test_a_task_that_was_begun_since_one_looked(mariadb_db: Database) -> None:
    """The later one's own beginning is nowhere held; the tables of the first one stay."""
    with connect(parse_endpoint(mariadb_db.url)) as session:
        ledger = Ledger(cast(Any, session), "move")
        ledger.create()
        ledger.claim(ORIGIN, {"t": SourceLine("", "1")})
        with pytest.raises(CannotFinish, match="another process has begun move"):
            ledger.claim(ORIGIN, {"u": SourceLine("", "2")})
        assert ledger.sources() == {"t": SourceLine("", "1")}


def test_who_was_replaced_says_nothing_of_tables(mariadb_db: Database) -> None:
    """Two runs with different files: what the first one knows of tables must not undo what the second one said."""
    with connect(parse_endpoint(mariadb_db.url)) as session:
        ledger = Ledger(cast(Any, session), "move")
        ledger.create()
        lines = {name: SourceLine("", "1") for name in ("t", "u")}
        old = ledger.claim(ORIGIN, lines).epoch
        for name in lines:
            ledger.plan(name, [Chunk()], old)
        new = ledger.claim({}, {"t": SourceLine("", "2")}, ["u"]).epoch
        expected = {"t": SourceLine("", "2")}
        assert (ledger.sources(), ledger.tables()) == (expected, {"t"})
        late: list[Callable[[int], None]] = [
            lambda epoch: ledger.plan("u", [Chunk()], epoch),
            lambda epoch: ledger.note_source("t", lines["t"], epoch),
            lambda epoch: ledger.rename_source("t", "v", None, epoch),
            lambda epoch: ledger.leave_source("t", epoch),
        ]
        for write in late:
            with pytest.raises(Overtaken):
                write(old)
            assert (ledger.sources(), ledger.tables()) == (expected, {"t"})
        for write in late:
            write(new)
        assert ledger.sources().keys() == {"v"}


def test_nobody_of_a_task_that_was_deleted_writes_for_the_next_one(mariadb_db: Database) -> None:
    """It may have the same name, and chunks of the same numbers."""
    with connect(parse_endpoint(mariadb_db.url)) as session:
        ledger = Ledger(cast(Any, session), "move")
        ledger.create()
        lines: Any = ledger._lines
        begin: list[Callable[[], object]] = [
            lambda: ledger.claim(ORIGIN),
            lambda: ledger.restart("replicate", ORIGIN, []),
            lambda: ledger.claim(ORIGIN),
        ]
        deleted = list[int]()
        for begins in begin:
            begins()
            line = ledger.find()
            assert line is not None
            ledger.plan("t", [Chunk()], line.epoch)
            for epoch in deleted:
                with pytest.raises(Overtaken), lines.transaction():
                    ledger.note_copied("t", 0, 5, epoch)
            deleted.append(line.epoch)
            with lines.transaction():
                for table in (TASKS, CHUNKS):
                    lines.execute(f"DELETE FROM {table} WHERE task = ?", "move")
