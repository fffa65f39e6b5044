"""What differs in a table between two points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from truecopy.changelog.opening import CHANGES, open_log
from truecopy.changelog.packing import Settling, codes_of_keys
from truecopy.changelog.points import find_point
from truecopy.changelog.state import TableLog
from truecopy.model.change import DELETE, INSERT, UPDATE, Definition
from truecopy.model.errors import UsageError
from truecopy.model.text import readable_text
from truecopy.spark import explained
from truecopy.spark import session as spark_session

Texts = Sequence[str | None] | None


@dataclass(frozen=True)
class Difference:
    """A row that differs; `kind` is what leads from the first point to the second."""

    kind: str
    key: dict[str, str | None]
    before: dict[str, str | None] | None
    after: dict[str, str | None] | None


def diff(
    place: str | Path,
    table: str,
    one: str,
    other: str,
    *,
    log: str = CHANGES,
    master: str | None = None,
) -> Iterator[Difference]:
    """The rows that differ, slice by slice; of a table with a key."""
    spark = spark_session(master)
    with open_log(place, log) as store, explained():
        first, base = find_point(store, spark, one)
        second, other_base = find_point(store, spark, other)
        base = min(base, other_base, key=lambda base: base.number)
        events = TableLog(store, spark, store.find_table(table), base)
        final = events.definition(second)
        if not final.key:
            raise UsageError(
                f"{table} has no key, by which rows of two points could be told to be the same"
            )
        found = events.settled([first, second], final, events.slices, differing_rows)
        everywhere = range(len(final.names))
        for kind, key, before, after in found.toLocalIterator():
            named = _by_name(final, key, final.key_places)
            assert named is not None
            rows = (_by_name(final, row, everywhere) for row in (before, after))
            yield Difference(kind, named, *rows)


def differing_rows(
    _: int, settling: Settling, events: pa.Table
) -> Iterator[tuple[str, Texts, Texts, Texts]]:
    """Kind, key, and the row at both points, of the rows of a slice that differ."""
    events = events.filter(pa.array(_may_differ(settling, events)))
    sides = [settling.rows(events, cut) for cut in (0, 1)]
    rows = [
        dict(
            zip(
                map(tuple, side.column("key").to_pylist()),
                side.column("row").to_pylist(),
                strict=True,
            )
        )
        for side in sides
    ]
    for key in rows[0].keys() | rows[1].keys():
        before, after = rows[0].get(key), rows[1].get(key)
        if before != after:
            kind = INSERT if before is None else DELETE if after is None else UPDATE
            yield kind, key, before, after


def _may_differ(settling: Settling, events: pa.Table) -> Any:
    """Not the rows of keys of which both points include the same."""
    keys = codes_of_keys(events.column("key"))
    one, other = (cut.wants(events) for cut in settling.cuts)
    return np.isin(keys, keys[one != other])


def _by_name(definition: Definition, texts: Texts, places: Any) -> dict[str, str | None] | None:
    if texts is None:
        return None
    columns = [definition.columns[place] for place in places]
    return {c.name: readable_text(text, c.type) for c, text in zip(columns, texts, strict=True)}
