"""Changes as their net effect: for each key of the target the last that happened to it.

A log may leave out long values that did not change. Such an update is put on top of what the changes say
of the row before it; what is still left out then is on the target, in the row that is about to be replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.model.change import UPDATE
from truecopy.transfer.packing import codes_of

TOLD = "table", "schema_id", "kind", "key", "row", "unchanged"
"""What the last change of a key says."""

Layouts = Mapping[str, Mapping[str, int]]
"""By `schema_id` the places of columns in a row, by the names that they have on the target."""


def net_effect(changes: pa.Table, layouts: Layouts) -> pa.Table:
    """The last change of each key, as `TOLD`; of a table without a key, every change.

    Args:
        changes: `TOLD`, with `commit_order`, `seq` and `step`, in any order.
        layouts: Of all definitions that the changes are of.
    """
    changes = changes.combine_chunks()
    order = in_order(changes)
    whole = {name: changes.column(name).combine_chunks() for name in ("table", "key", "unchanged")}
    rows = identities(whole["table"], whole["key"])
    last = np.zeros(rows.max(initial=-1) + 1, np.int64)
    last[rows[order]] = order  # of several for one row, the last stays
    told = changes.select(list(TOLD))
    lengths = pc.fill_null(pc.list_value_length(whole["unchanged"]), 0)
    partial = np.unique(rows[np.asarray(lengths) > 0])
    if not len(partial):
        return told.take(np.sort(last))
    others = np.setdiff1d(np.arange(len(last)), partial)
    history = order[np.isin(rows[order], partial)]
    folded = fold(told.take(history).to_pylist(), rows[history].tolist(), layouts)
    return pa.concat_tables(
        [told.take(last[others]), pa.Table.from_pylist(list(folded.values()), schema=told.schema)]
    )


def in_order(changes: pa.Table) -> np.ndarray[Any, Any]:
    """The numbers of changes in the order in which they happened."""
    columns = [changes.column(name).to_numpy() for name in ("step", "seq", "commit_order")]
    return np.lexsort(columns)


def identities(tables: pa.Array, keys: pa.Array) -> np.ndarray[Any, Any]:
    """A number for each row of the target that a change speaks of."""
    widths = np.asarray(pc.fill_null(pc.list_value_length(keys), 0))
    found, used = np.zeros(len(keys), np.int64), 0
    for width in np.unique(widths).tolist():
        at = np.flatnonzero(widths == width)
        if not width:
            numbers = np.arange(len(at))
        else:
            some = keys.take(at)
            numbers = codes_of(tables.take(at))
            for place in range(width):
                column = codes_of(pc.list_element(some, place))
                numbers = codes_of(numbers * (column.max() + 1) + column)
        found[at] = used + numbers
        used += int(numbers.max()) + 1
    return found


def fold(
    history: list[dict[str, Any]], rows: list[int], layouts: Layouts
) -> dict[int, dict[str, Any]]:
    """All that happened to each of some rows, one change upon the other, by the number of the row."""
    found: dict[int, dict[str, Any]] = {}
    for change, row in zip(history, rows, strict=True):
        found[row] = _upon(found[row], change, layouts) if row in found else change
    return found


def _upon(before: dict[str, Any], change: dict[str, Any], layouts: Layouts) -> dict[str, Any]:
    if change["kind"] != UPDATE or not change["unchanged"] or before["row"] is None:
        return change
    texts, still_out = list(change["row"]), []
    for at, there in _places_before(before, change, layouts):
        if there is not None:
            texts[at] = before["row"][there]
        if there is None or there in (before["unchanged"] or ()):
            still_out.append(at)
    return {**change, "row": texts, "unchanged": still_out}


def _places_before(
    before: dict[str, Any], change: dict[str, Any], layouts: Layouts
) -> Iterator[tuple[int, int | None]]:
    """Of each value that was left out, where it was in the row before; the table may have been altered in between."""
    if before["schema_id"] == change["schema_id"]:
        yield from ((at, at) for at in sorted(change["unchanged"]))
        return
    there = layouts.get(before["schema_id"], {})
    names = {at: name for name, at in layouts[change["schema_id"]].items()}
    yield from ((at, there.get(names[at])) for at in change["unchanged"] if at in names)
