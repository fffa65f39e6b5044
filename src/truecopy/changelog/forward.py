"""Rows that only move forward: each keeps the token of its last change, and takes none that is older.

A deleted row stays, as its key and the token of its end, so that a change from before it does not bring it back.
Changes may come twice and in any order: what a table holds in the end is what the newest say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines.lines import Lines
from truecopy.model.change import DELETE, INSERT, TRUNCATE, UPDATE, Definition
from truecopy.model.errors import CannotFinish
from truecopy.model.position import Comparison
from truecopy.model.relation import Relation
from truecopy.model.table import Column, Table
from truecopy.model.token import EventToken, compare_tokens, parse_token, token_of_change
from truecopy.model.types import Integer, Text

TOKEN, DELETED = "truecopy_token", "truecopy_deleted"
TURNS = "truecopy_follow_table"
CREATE_TURNS = f"""CREATE TABLE IF NOT EXISTS {TURNS} (
    table_name VARCHAR(190) NOT NULL PRIMARY KEY, turn BIGINT NOT NULL)"""


@dataclass(frozen=True)
class ForwardTable:
    """A table of a copy, for changes of one definition; plain values for executors.

    Attributes:
        relation: The target's columns, key first, then the others, `truecopy_token` and `truecopy_deleted` last.
        places: Where the columns are in a change's row, but for these two.
        key_places: Where the relation's key columns are in a change's key.
    """

    relation: Relation
    places: tuple[int, ...]
    key_places: tuple[int, ...]

    @property
    def key_width(self) -> int:
        return self.relation.key_width


@dataclass(frozen=True)
class LastChange:
    """The last of several changes of one row.

    Attributes:
        row: Texts in the order of the relation's columns; None where the row was deleted.
        left_out: Columns of the relation that the log did not tell.
    """

    token: EventToken
    row: tuple[str | None, ...] | None
    left_out: frozenset[int] = frozenset()


Key = tuple[str | None, ...]


def with_own_columns(table: Table) -> Table:
    """A source's table as a copy has it: whatever is not the key may be NULL, which it is in rows that are gone."""
    columns = [
        replace(column, nullable=column.name not in table.keys[0], generated=False)
        for column in table.columns
    ]
    own = [Column(TOKEN, Text(), "text"), Column(DELETED, Integer(), "int")]
    return replace(
        table,
        columns=(*columns, *own),
        keys=table.keys[:1],
        unique=table.keys[:1],
        primary=table.keys[0],
        indexes=(),
        foreign_keys=(),
        numbered=(),
        defaulted=(),
    )


def forward_table(relation: Relation, definition: Definition) -> ForwardTable:
    """Where the columns of a copy are in changes of a definition; each of these must have its place."""
    names = [name.lower() for name in definition.names]
    own = [column for column in relation.columns if column.name not in (TOKEN, DELETED)]
    held = {column.name.lower() for column in own}
    lost = [column for column in definition.columns if column.name.lower() not in held]
    if lost and not lost[0].generated:
        raise CannotFinish(
            f"{definition.table} has a column {lost[0].name} that its copy lacks: add it there, and start again"
        )
    absent = [column.name for column in own if column.name.lower() not in names]
    if absent:
        raise CannotFinish(
            f"{definition.table} has no column {absent[0]} any more, and its copy has: drop it there, and start again"
        )
    key = [name.lower() for name in definition.key]
    types = {column.name.lower(): column.type for column in definition.columns}
    typed = replace(
        relation,
        types=tuple(
            types.get(column.name.lower(), kind)
            for column, kind in zip(relation.columns, relation.types, strict=True)
        ),
    )
    return ForwardTable(
        typed,
        tuple(names.index(column.name.lower()) for column in own),
        tuple(key.index(column.name.lower()) for column in relation.key),
    )


def last_changes(
    changes: pa.Table, tables: Mapping[str, ForwardTable]
) -> dict[str, dict[Key, LastChange]]:
    """The last change of each row, by `schema_id` and key, of whole transactions of one shard."""
    ordered = changes.sort_by([("commit_order", "ascending"), ("seq", "ascending")])
    found: dict[str, dict[Key, LastChange]] = {}
    tokens: dict[tuple[str, str | None], EventToken] = {}
    for row in ordered.to_pylist():
        if row["kind"] == TRUNCATE:
            raise CannotFinish(
                f"{row['table']} was truncated at {row['position']}, which leaves no row to keep a token: empty its"
                " copy, and begin the copy anew"
            )
        to = tables[row["schema_id"]]
        place = row["position"], row["origin"]
        token = tokens.get(place) or tokens.setdefault(place, token_of_change(row))
        key = tuple(row["key"][at] for at in to.key_places)
        of_table = found.setdefault(row["schema_id"], {})
        of_table[key] = _last(of_table.get(key), to, token, row)
    return found


def _last(before: LastChange | None, to: ForwardTable, token: EventToken, row: Any) -> LastChange:
    if row["kind"] == DELETE:
        return LastChange(token, None)
    texts = [row["after"][place] for place in to.places]
    open_places = set(row["unchanged"] or ())
    left_out = {at for at, place in enumerate(to.places) if place in open_places}
    if left_out and row["kind"] == INSERT:
        raise CannotFinish(
            f"a key of {row['table']} was changed at {row['position']}, and the log left out long values of the row:"
            f" ALTER TABLE {row['table']} REPLICA IDENTITY FULL on the source, and begin the copy anew"
        )
    if left_out and before is not None and before.row is not None and row["kind"] == UPDATE:
        for at in left_out:
            texts[at] = before.row[at]
        left_out &= before.left_out
    return LastChange(token, tuple(texts), frozenset(left_out))


def move_forward(
    target: Any, to: ForwardTable, lasts: Mapping[Key, LastChange], *, replaying: bool = False
) -> int:
    """Inside a transaction that has the table's turn: writes those changes that are news; gives how many.

    As long as changes from before the end of the dump are replayed, a row that is not there is deleted further on.
    """
    held = _held(target, to, list(lasts))
    news = {
        key: _filled(last, held.get(key))
        for key, last in lasts.items()
        if is_news(last.token, held[key][-2] if key in held else None)
        and not (replaying and last.left_out and key not in held)
    }
    if not news:
        return 0
    there = pa.table(
        {f"k{i}": pa.array([key[i] for key in news], pa.string()) for i in range(to.key_width)}
    )
    target.delete_keys(to.relation, there)
    width = len(to.relation.columns)
    rows = [_as_row(key, last, width) for key, last in news.items()]
    target.load(
        to.relation,
        pa.table({f"c{i}": pa.array([row[i] for row in rows], pa.string()) for i in range(width)}),
    )
    return len(news)


def is_news(token: EventToken, held: str | None) -> bool:
    """Whether a change may be newer than the one that a row has; a row of the dump has none."""
    if not held:
        return True
    answer = compare_tokens(token, parse_token(held))
    return answer in (Comparison.NEWER, Comparison.UNKNOWN)


def take_turn(lines: Lines, table: str) -> None:
    """First in a transaction: whoever else writes to the table waits until it ends."""
    if not lines.execute(f"UPDATE {TURNS} SET turn = turn + 1 WHERE table_name = ?", table):
        raise CannotFinish(f"{TURNS} has no line of {table} any more: was it deleted?")


def _held(target: Any, to: ForwardTable, keys: Sequence[Key]) -> dict[Key, tuple[str | None, ...]]:
    """The rows of the copy with these keys; a collation that ignores case answers with others, too."""
    found = target.rows_by_key(to.relation, keys)
    rows: Iterable[tuple[str | None, ...]] = zip(
        *(column.to_pylist() for column in found.columns), strict=True
    )
    return {row[: to.key_width]: row for row in rows}


def _filled(last: LastChange, held: tuple[str | None, ...] | None) -> LastChange:
    """With the values that the log left out, from the row that is about to be replaced."""
    if not last.left_out or last.row is None:
        return last
    if held is None:
        raise CannotFinish(
            "a row was updated, the log left out its long values, and the copy does not have the row: begin the copy"
            " anew, or set REPLICA IDENTITY FULL on the source"
        )
    texts = [held[at] if at in last.left_out else text for at, text in enumerate(last.row)]
    return replace(last, row=tuple(texts))


def _as_row(key: Key, last: LastChange, width: int) -> tuple[str | None, ...]:
    token = str(last.token)
    if last.row is None:
        return (*key, *([None] * (width - len(key) - 2)), token, "1")
    return (*last.row, token, "0")


def dumped(rows: pa.Table) -> pa.Table:
    """Rows of a dump, without a token: whatever the stream says of them is newer."""
    count = rows.num_rows
    width = rows.num_columns
    rows = rows.append_column(f"c{width}", pa.nulls(count, pa.string()))
    return rows.append_column(f"c{width + 1}", pc.cast(pa.repeat(0, count), pa.string()))
