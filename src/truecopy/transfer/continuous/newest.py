"""What the changes of a round say of each row: the last one, upon those before it, or that its table was emptied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.model.change import DELETE
from truecopy.transfer.continuous.entries import IMAGE, Numbers, lines_of, plain
from truecopy.transfer.effect import Layouts, fold, identities, in_order


@dataclass(frozen=True)
class Emptied:
    """Which change emptied a table: its place among the new ones, and its position."""

    commit_order: int
    seq: int
    position: str


def newest(both: pa.Table, codes: Numbers, layouts: Layouts) -> pa.Table:
    """What the last change of each row says; one that leaves values out, upon those before it."""
    order = in_order(both)
    last = np.zeros(codes.max(initial=-1) + 1, np.int64)
    last[codes[order]] = order  # of several for one row, the last stays
    told = both.select(IMAGE.names)
    images = lines_of(told, last)
    lengths = pc.fill_null(pc.list_value_length(plain(both.column("unchanged"))), 0)
    partial = np.unique(codes[np.asarray(lengths) > 0])
    if not len(partial):
        return images.combine_chunks()
    history = order[np.isin(codes[order], partial)]
    folded = fold(told.take(pa.array(history)).to_pylist(), codes[history].tolist(), layouts)
    whole = pa.Table.from_pylist([folded[code] for code in partial.tolist()], schema=IMAGE)
    others = np.setdiff1d(np.arange(len(last)), partial)
    images = pa.concat_tables([images.take(pa.array(others)), whole])
    back = np.argsort(np.concatenate([others, partial]), kind="stable")
    return images.take(pa.array(back)).combine_chunks()


def without_emptied(
    entries: pa.Table, changes: pa.Table, emptied: Mapping[tuple[str, str], Emptied]
) -> tuple[pa.Table, pa.Table, Numbers]:
    """Rows of tables that were emptied are gone, whatever was said of them before; and which entries these are."""
    touched = np.zeros(entries.num_rows, bool)
    for (shard, table), by in emptied.items():
        mine = _is_of(entries, shard, table)
        touched |= np.asarray(mine).astype(bool)
        entries = _as_gone(entries, mine, position=by.position)
        commits, seqs = changes.column("commit_order"), changes.column("seq")
        before = pc.or_(
            pc.less(commits, by.commit_order),
            pc.and_(pc.equal(commits, by.commit_order), pc.less(seqs, by.seq)),
        )
        changes = _as_gone(changes, pc.and_(_is_of(changes, shard, table), before))
    return entries, changes, touched


def _is_of(rows: pa.Table, shard: str, table: str) -> pa.ChunkedArray:
    return pc.and_(pc.equal(rows.column("shard"), shard), pc.equal(rows.column("table"), table))


def _as_gone(rows: pa.Table, which: pa.ChunkedArray, **more: str) -> pa.Table:
    nothing = {"kind": DELETE, "row": None, "unchanged": None, "seen_at": None, **more}
    for name, value in nothing.items():
        at = rows.schema.get_field_index(name)
        if at >= 0:
            kind = rows.schema.field(name)
            rows = rows.set_column(
                at, kind, pc.if_else(which, pa.scalar(value, kind.type), rows.column(name))
            )
    return rows


def row_codes(rows: pa.Table) -> Numbers:
    """A number for each row of the target that a change or an entry speaks of."""
    tables = pc.binary_join_element_wise(rows.column("shard"), rows.column("table"), "\x1f")
    return identities(plain(tables), plain(rows.column("key")))
