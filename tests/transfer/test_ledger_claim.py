"""Two processes that begin one task at the same moment: one of them runs it, and the other says so in one line."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from tests.servers import Database
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.transfer.ledger import TASKS, Ledger


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
