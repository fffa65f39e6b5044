"""Changes in their order, cut at those by which foreign keys act on other rows (`ties`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.model.change import DELETE, INSERT, UPDATE
from truecopy.transfer.effect import in_order
from truecopy.transfer.plan import ChangeTarget

_Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Piece:
    """Changes that can be written together.

    Attributes:
        acts: Whether foreign keys act by them; then they are deletes of one table, or updates of one, in order.
    """

    changes: pa.Table
    acts: bool = False


def cut_at_acts(changes: pa.Table, targets: Mapping[str, ChangeTarget]) -> Iterator[Piece]:
    """All of the changes, in their order, with those by which foreign keys act in pieces of their own.

    Args:
        changes: As `net_effect` takes them, with `before`: the row before, where foreign keys were on.
        targets: By `schema_id`.
    """
    present = pc.unique(changes.column("schema_id")).to_pylist()
    acting = [schema_id for schema_id in present if targets[schema_id].may_act]
    if not acting:
        yield Piece(changes)
        return
    changes = changes.take(in_order(changes)).combine_chunks()
    acts, done = _acts(changes, {one: targets[one] for one in acting})
    left = np.flatnonzero(~done)
    changes, acts = changes.take(left), acts[left]
    for start, end in _runs(changes, acts):
        yield Piece(changes.slice(start, end - start), bool(acts[start]))


def _acts(changes: pa.Table, targets: Mapping[str, ChangeTarget]) -> tuple[_Flags, _Flags]:
    """By which changes foreign keys act; and which are told by the next one: a moved row is one update.

    An update that changes the key comes as a delete, and right behind it an insert that has the row before.
    """
    kind = changes.column("kind")
    deleted = _flags(pc.equal(kind, DELETE))
    told = _flags(pc.is_valid(changes.column("before")))
    moved = _flags(pc.equal(kind, INSERT)) & told
    left = np.append(moved[1:], np.False_) & deleted
    acts = np.zeros(len(kind), np.bool_)
    for schema_id, to in targets.items():
        mine = _flags(pc.equal(changes.column("schema_id"), schema_id))
        if to.takes:
            acts |= mine & deleted & told & ~left
        updated = mine & (moved | (_flags(pc.equal(kind, UPDATE)) & told))
        at = np.flatnonzero(updated)
        acts[at] |= _changed(changes.take(at), to.referred)
    return acts, np.append(acts[1:] & moved[1:], np.False_) & left


def _changed(rows: pa.Table, places: tuple[int, ...]) -> _Flags:
    """Which updates change one of these columns."""
    found = np.zeros(rows.num_rows, np.bool_)
    before, after = (rows.column(name).combine_chunks() for name in ("before", "row"))
    for place in places:
        one, other = pc.list_element(before, place), pc.list_element(after, place)
        differs = pc.fill_null(pc.not_equal(one, other), False)
        found |= _flags(differs) | (_flags(pc.is_null(one)) != _flags(pc.is_null(other)))
    return found


def _runs(changes: pa.Table, acts: _Flags) -> Iterator[tuple[int, int]]:
    """Where pieces begin and end: acts of different tables or kinds do not go together."""
    if not changes.num_rows:
        return
    schema_ids = np.asarray(
        pc.dictionary_encode(changes.column("schema_id").combine_chunks()).indices
    )
    deleted = _flags(pc.equal(changes.column("kind"), DELETE))
    group = np.where(acts, 1 + 2 * schema_ids + deleted, 0)
    cuts = np.flatnonzero(np.diff(group)) + 1
    yield from pairwise((0, *cuts.tolist(), changes.num_rows))


def _flags(values: pa.Array | pa.ChunkedArray) -> _Flags:
    return np.asarray(values, np.bool_)
