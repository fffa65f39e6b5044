"""What a query gives, and what its freshness is known to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truecopy.model.token import EventToken

Of = tuple[str, object]
"""Which rows a query is of: a table of the keyspace file, and the value of its sharding column."""


@dataclass(frozen=True)
class Answer:
    """The rows of a query.

    Attributes:
        columns: Their names.
        token: The rows show everything up to it; None where it was not asked for, where nothing is known yet, and
            where the query spans shards.
        bound: The rows show nothing beyond it; None where that is not known. With `token`, where that was exact.
        fresher: The token is the same as the one it was compared to, or newer. False means: not known to be.
    """

    columns: tuple[str, ...]
    rows: list[list[Any]]
    token: EventToken | None = None
    bound: EventToken | None = None
    fresher: bool = False
