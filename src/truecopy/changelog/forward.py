"""Rows that only move forward: each keeps the token of its last change, and takes none that is older.

A deleted row stays, as its key and the token of its end, so that a change from before it does not bring it back. A
table that is emptied keeps the token of that beside, for rows that it has not seen.
Changes may come twice and in any order: what a table holds in the end is what the newest say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.changelog.packing import codes_of_keys
from truecopy.engines.lines import Lines
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.model.change import DELETE, INSERT, TRUNCATE, Definition
from truecopy.model.errors import CannotFinish
from truecopy.model.position import Comparison
from truecopy.model.relation import Relation
from truecopy.model.table import Column, Table
from truecopy.model.token import EventToken, compare_tokens, parse_token, token_of_change
from truecopy.model.types import Integer, Text

TOKEN, DELETED = "truecopy_token", "truecopy_deleted"
TURNS = "truecopy_follow_table"
CREATE_TURNS = f"""CREATE TABLE IF NOT EXISTS {TURNS} (
    table_name VARCHAR(190) NOT NULL PRIMARY KEY, turn BIGINT NOT NULL, emptied TEXT)"""
_TOLD_APART = ("position", "origin")


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
class LastChanges:
    """The last of the changes of each of several rows.

    Attributes:
        rows: As the columns of a load, `truecopy_token` and `truecopy_deleted` last.
        tokens: The tokens of these changes.
        numbers: Which of them each row has.
        left_out: By row, columns of the relation that the log did not tell.
    """

    rows: pa.Table
    tokens: Sequence[EventToken]
    numbers: Any
    left_out: Mapping[int, frozenset[int]]


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


def move(
    lines: Lines,
    target: Any,
    relation: Relation,
    changes: pa.Table,
    tables: Mapping[str, ForwardTable],
    *,
    replaying: bool = False,
) -> int:
    """In one transaction: writes what is news of a table's changes; gives how many rows.

    The changes are whole transactions of one shard. As long as changes from before the end of the dump are replayed,
    a row that is not there is deleted further on.
    """
    ordered = changes.sort_by([("commit_order", "ascending"), ("seq", "ascending")])
    is_truncate = np.asarray(pc.equal(ordered.column("kind"), TRUNCATE))
    moved = begun = 0
    with lines.transaction():
        floor = take_turn(lines, str(relation.tables[0]))
        for at in (*np.flatnonzero(is_truncate).tolist(), ordered.num_rows):
            some = ordered.slice(begun, at - begun)
            for schema_id in some.column("schema_id").unique().to_pylist():
                of_one = some.filter(pc.equal(some.column("schema_id"), schema_id))
                lasts = last_changes(of_one, tables[schema_id])
                moved += move_forward(target, tables[schema_id], lasts, floor, replaying=replaying)
            if at < ordered.num_rows:
                (row,) = ordered.slice(at, 1).to_pylist()
                count, floor = empty(lines, target, relation, token_of_change(row), floor)
                moved += count
            begun = at + 1
    return moved


def last_changes(ordered: pa.Table, to: ForwardTable) -> LastChanges:
    """The last change of each row, of changes of one definition in their order."""
    ordered = ordered.combine_chunks()
    codes = codes_of_keys(ordered.column("key"))
    last = np.zeros(int(codes.max()) + 1, np.int64)
    last[codes] = np.arange(len(codes))  # of several for one row, the last stays
    found = ordered.take(pa.array(last))
    tokens, numbers = _tokens(found)
    key, after = found.column("key").combine_chunks(), found.column("after").combine_chunks()
    columns = [pc.list_element(key, place) for place in to.key_places]
    columns += [pc.list_element(after, place) for place in to.places[to.key_width :]]
    left_out: dict[int, frozenset[int]] = {}
    lengths = np.asarray(pc.fill_null(pc.list_value_length(ordered.column("unchanged")), 0))
    if lengths.any():
        partial = np.unique(codes[lengths > 0])
        columns, left_out = _folded(ordered, to, columns, codes, partial)
    deleted = pc.equal(found.column("kind").combine_chunks(), DELETE)
    told = pc.take(pa.array(list(map(str, tokens)), pa.string()), pa.array(numbers))
    columns += [told, pc.if_else(deleted, "1", "0")]
    rows = pa.table({f"c{i}": column for i, column in enumerate(columns)})
    return LastChanges(rows, tokens, numbers, left_out)


def _tokens(changes: pa.Table) -> tuple[list[EventToken], Any]:
    """The different tokens of changes, and which of them each has."""
    places = [
        pc.dictionary_encode(changes.column(n).combine_chunks(), null_encoding="encode")
        for n in _TOLD_APART
    ]
    codes = np.zeros(changes.num_rows, np.int64)
    for place in places:
        codes = codes * max(len(place.dictionary), 1) + np.asarray(place.indices, np.int64)
    _, firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)
    names = ["shard", "committed_at", *_TOLD_APART]
    rows = changes.select(names).take(pa.array(firsts)).to_pylist()
    return [token_of_change(row) for row in rows], numbers


def _folded(
    ordered: pa.Table, to: ForwardTable, columns: list[pa.Array], codes: Any, partial: Any
) -> tuple[list[pa.Array], dict[int, frozenset[int]]]:
    """Puts values that the log left out in from an earlier change; gives what is still not told, by row."""
    history = np.flatnonzero(np.isin(codes, partial))
    told: dict[int, tuple[list[str | None], frozenset[int]]] = {}
    wanted = ["kind", "table", "position", "after", "unchanged"]
    rows = ordered.select(wanted).take(pa.array(history)).to_pylist()
    for row, code in zip(rows, codes[history].tolist(), strict=True):
        before = told.pop(code, None)
        if row["kind"] == DELETE:
            continue
        texts = [row["after"][place] for place in to.places]
        unchanged = set(row["unchanged"] or ())
        left_out = frozenset(at for at, place in enumerate(to.places) if place in unchanged)
        if left_out and row["kind"] == INSERT:
            raise CannotFinish(
                f"a key of {row['table']} was changed at {row['position']}, and the log left out long values of the"
                f" row: ALTER TABLE {row['table']} REPLICA IDENTITY FULL on the source, and begin the copy anew"
            )
        if left_out and before is not None:
            texts = [before[0][at] if at in left_out else text for at, text in enumerate(texts)]
            left_out &= before[1]
        told[code] = texts, left_out
    if told:
        lists = [column.to_pylist() for column in columns]
        for code, (texts, _) in told.items():
            for at in range(to.key_width, len(texts)):
                lists[at][code] = texts[at]
        columns = [pa.array(texts, pa.string()) for texts in lists]
    return columns, {code: left for code, (_, left) in told.items() if left}


def move_forward(
    target: Any,
    to: ForwardTable,
    lasts: LastChanges,
    floor: EventToken | None = None,
    *,
    replaying: bool = False,
) -> int:
    """Inside a transaction that has the table's turn: writes those changes that are news; gives how many."""
    keys = lasts.rows.select([f"c{i}" for i in range(to.key_width)])
    held, there = _held_tokens(target, to, keys)
    is_taken = are_news(lasts, held, floor)
    if replaying:
        for row in lasts.left_out:
            is_taken[row] &= bool(there[row])
    if not is_taken.any():
        return 0
    rows = _filled(target, to, lasts, is_taken) if lasts.left_out else lasts.rows
    news = rows.filter(pa.array(is_taken))
    gone = pa.table({f"k{i}": news.column(f"c{i}") for i in range(to.key_width)})
    target.delete_keys(to.relation, gone)
    target.load(to.relation, news)
    return int(news.num_rows)


def are_news(lasts: LastChanges, held: pa.Array, floor: EventToken | None) -> Any:
    """Which changes may be newer than the one that their row has; a row of the dump has none.

    Tokens are compared once for each two that meet, however many rows they are of.
    """
    above = np.array([floor is None or _is_newer(one, floor) for one in lasts.tokens], bool)
    found = above[lasts.numbers]
    coded = pc.dictionary_encode(held)
    known = [parse_token(text) for text in coded.dictionary.to_pylist()]
    has = np.asarray(coded.is_valid())
    pairs = np.asarray(pc.fill_null(coded.indices, 0), np.int64) * len(lasts.tokens) + lasts.numbers
    different, inverse = np.unique(pairs[has], return_inverse=True)
    answers = [
        _is_newer(lasts.tokens[pair % len(lasts.tokens)], known[pair // len(lasts.tokens)])
        for pair in different.tolist()
    ]
    found[has] &= np.array(answers, bool)[inverse]
    return found


def _is_newer(token: EventToken, held: EventToken) -> bool:
    return compare_tokens(token, held) in (Comparison.NEWER, Comparison.UNKNOWN)


def take_turn(lines: Lines, table: str) -> EventToken | None:
    """First in a transaction: whoever else writes to the table waits until it ends.

    Gives the token of the last time that the table was emptied: what is older is not to come back.
    """
    if not lines.execute(f"UPDATE {TURNS} SET turn = turn + 1 WHERE table_name = ?", table):
        raise CannotFinish(f"{TURNS} has no line of {table} any more: was it deleted?")
    ((text,),) = lines.fetch(f"SELECT emptied FROM {TURNS} WHERE table_name = ?", table)
    return parse_token(text) if text else None


def empty(
    lines: Lines, target: Any, relation: Relation, token: EventToken, floor: EventToken | None
) -> tuple[int, EventToken | None]:
    """All rows of a table are deleted, but for those that are newer; gives how many, and the table's floor."""
    if floor is not None and not _is_newer(token, floor):
        return 0, floor
    table, quote = table_sql(target.dialect, relation.tables[0]), target.dialect.quote
    held = target.fetch(Statement(f"SELECT DISTINCT {quote(TOKEN)} FROM {table}"))
    newer = [text for (text,) in held if text and not _is_newer(token, parse_token(text))]
    place = target.dialect.placeholder
    sets = [f"{quote(column.name)} = NULL" for column in relation.columns[relation.key_width : -2]]
    sets += [f"{quote(TOKEN)} = {place}", f"{quote(DELETED)} = 1"]
    kept = ""
    if newer:
        kept = f" WHERE {quote(TOKEN)} IS NULL OR {quote(TOKEN)} NOT IN ({', '.join([place] * len(newer))})"
    emptied = f"UPDATE {table} SET {', '.join(sets)}{kept}"
    count = target.execute(Statement(emptied, (str(token), *newer)))
    name = str(relation.tables[0])
    lines.execute(f"UPDATE {TURNS} SET emptied = ? WHERE table_name = ?", str(token), name)
    return count, token


def _held_tokens(target: Any, to: ForwardTable, keys: pa.Table) -> tuple[pa.Array, Any]:
    """The token that the copy has of each key, and which keys it has at all."""
    width = to.key_width
    at = [*range(width), len(to.relation.columns) - 2]
    narrow = replace(
        to.relation,
        columns=tuple(to.relation.columns[i] for i in at),
        types=tuple(to.relation.types[i] for i in at),
    )
    wanted = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
    found = target.rows_by_key(narrow, wanted)
    # A collation that ignores case answers with other keys, too; these meet nothing here.
    names = [f"c{i}" for i in range(width)]
    numbered = keys.append_column("nth", pa.array(np.arange(keys.num_rows)))
    marked = found.append_column("there", pa.repeat(True, found.num_rows))
    joined = numbered.join(marked, names, join_type="left outer").sort_by("nth")
    tokens = joined.column(f"c{width}").combine_chunks()
    return tokens, np.asarray(pc.fill_null(joined.column("there"), False))


def _filled(target: Any, to: ForwardTable, lasts: LastChanges, is_taken: Any) -> pa.Table:
    """With the values that the log left out, from the rows that are about to be replaced."""
    rows = [row for row in lasts.left_out if is_taken[row]]
    if not rows:
        return lasts.rows
    lists = [column.to_pylist() for column in lasts.rows.columns]
    keys = {row: tuple(texts[row] for texts in lists[: to.key_width]) for row in rows}
    found = target.rows_by_key(to.relation, list(keys.values()))
    held = {
        row[: to.key_width]: row
        for row in zip(*(c.to_pylist() for c in found.columns), strict=True)
    }
    for row in rows:
        if keys[row] not in held:
            raise CannotFinish(
                "a row was updated, the log left out its long values, and the copy does not have the row: begin the"
                " copy anew, or set REPLICA IDENTITY FULL on the source"
            )
        for at in lasts.left_out[row]:
            lists[at][row] = held[keys[row]][at]
    return pa.table({f"c{i}": pa.array(texts, pa.string()) for i, texts in enumerate(lists)})


def dumped(rows: pa.Table) -> pa.Table:
    """Rows of a dump, without a token: whatever the stream says of them is newer."""
    count = rows.num_rows
    width = rows.num_columns
    rows = rows.append_column(f"c{width}", pa.nulls(count, pa.string()))
    return rows.append_column(f"c{width + 1}", pc.cast(pa.repeat(0, count), pa.string()))
