"""A run that is stopped in the middle of a batch: what its tasks did meanwhile is theirs, and no other run's."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.servers import Database
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.transfer.ledger import Ledger, Overtaken


@pytest.mark.parametrize("engine", ["mariadb_db", "postgres_db"])
def test_a_part_that_went_on_by_itself_is_left_there(
    engine: str, request: pytest.FixtureRequest
) -> None:
    database: Database = request.getfixturevalue(engine)
    with connect(parse_endpoint(database.url)) as session:
        ledger = Ledger(cast(Any, session), "move")
        ledger.create()
        epoch = ledger.claim({}).epoch
        for part in ("s/1", "s/2"):
            ledger.open_part(part, "0-1-10", 1, epoch)
        lines: Any = ledger._lines
        with lines.transaction():
            assert ledger.advance("s/1", "0-1-10", "0-1-30", 3, epoch)
        known = [("s/1", "0-1-10"), ("s/2", "0-1-10")]
        assert ledger.settle(known, "0-1-20", 2, epoch) == ["s/2"]
        stands = {"s/1": ("0-1-30", 3), "s/2": ("0-1-20", 2)}
        assert ledger.progress() == stands
        ledger.claim({})
        with pytest.raises(Overtaken, match="has taken over move"):
            ledger.settle([("s/2", "0-1-20")], "0-1-40", 4, epoch)
        assert ledger.progress() == stands
