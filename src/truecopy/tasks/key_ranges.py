"""How a task has cut its tables into ranges of their keys, and which of them are on the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from truecopy.engines import connect
from truecopy.engines.protocols import Introspects
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.relation import Key
from truecopy.tasks.file import Task
from truecopy.tasks.legs import transfer_legs
from truecopy.transfer.ledger import CHUNKS, Ledger


@dataclass(frozen=True)
class KeyRange:
    """A half-open range of a key, None for an open end; `rows` is None while it is not copied."""

    low: Key | None
    high: Key | None
    rows: int | None


def key_ranges(task: Task) -> dict[str, list[KeyRange]]:
    """The ranges of each source table, as the target knows them; none of a task that has not begun."""
    found: dict[str, list[KeyRange]] = {}
    for leg in transfer_legs(task):
        with connect(parse_endpoint(leg.target)) as session:
            if cast(Introspects, session).find(CHUNKS) is None:
                continue
            ledger = Ledger(cast(Any, session), leg.task)
            for table in sorted(ledger.tables()):
                found.setdefault(table, []).extend(
                    KeyRange(one.chunk.low, one.chunk.high, one.copied)
                    for one in ledger.chunks(table)
                )
    return found
