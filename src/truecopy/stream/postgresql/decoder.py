"""Decoders made to measure: Python functions for exactly the columns of one definition.

A message of pgoutput gives a row as a count and, per column, a letter (`t` for a text with its length,
`n` for NULL, `u` for a value that did not change and was left out). The functions made here walk
over a run of messages of one kind and one table, and append the canonical texts to `ChangeRows`:
nothing about a column is asked twice. They are found by the first six bytes of a message: its kind,
the table's object id, and which image comes first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import cast

from truecopy.model.change import DELETE, INSERT, UPDATE
from truecopy.model.errors import CannotFinish
from truecopy.stream.postgresql.relations import StreamedRelation, load_relation
from truecopy.stream.postgresql.values import converter
from truecopy.stream.rows import ChangeRows, Run

Texts = tuple[bytes | None, ...]
Decode = Callable[[bytes, int, int, ChangeRows, int, str | None], tuple[int, int]]
"""From data, place, size, rows, number of the next change and annotation to the next place and number.

Takes as many whole messages of its own as there are, at least one. The data goes on for `PADDING`
bytes behind its size, so that heads can be read without asking whether they are there.
"""
PADDING = bytes(16)
FRAME = struct.Struct(">I6s")
"""The length of a message, and what it is decoded by."""

IMAGE = FRAME.size + 2
"""Where the columns of a message's first image start: behind the count."""
_HEAD = struct.Struct(">Bi")

_ReadRow = Callable[[bytes, int], tuple[Texts, list[int], int]]


@lru_cache(maxsize=4096)
def decoders(where: str, name: str, oid: int, keys_only: bool) -> Mapping[bytes, Decode]:
    """The decoders of a definition, by the first six bytes of the messages that they take."""
    relation = load_relation(where, name)
    read_row = _row_reader(relation)

    def tag(kind: bytes, image: bytes) -> bytes:
        return kind + oid.to_bytes(4, "big") + image

    return {
        tag(b"I", b"N"): _compiled(relation, tag(b"I", b"N"), INSERT, keys_only),
        tag(b"U", b"N"): _compiled(relation, tag(b"U", b"N"), UPDATE, keys_only),
        tag(b"U", b"K"): _update(relation, read_row, tag(b"U", b"K"), keys_only),
        tag(b"U", b"O"): _update(relation, read_row, tag(b"U", b"O"), keys_only),
        tag(b"D", b"K"): _delete(relation, read_row, tag(b"D", b"K"), keys_only),
        tag(b"D", b"O"): _delete(relation, read_row, tag(b"D", b"O"), keys_only),
    }


def skip(tag: bytes) -> Decode:
    """Steps over the messages of a table that nobody asked for."""

    def steps(
        data: bytes, place: int, size: int, _rows: ChangeRows, seq: int, _annotation: str | None
    ) -> tuple[int, int]:
        for _, end in messages(data, place, size, tag):
            place = end
        return place, seq

    return steps


def messages(data: bytes, place: int, size: int, tag: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of whole messages of one kind that follow each other."""
    while True:
        length, found = FRAME.unpack_from(data, place)
        end = place + 4 + length
        if found != tag or end > size:
            return
        yield place, end
        place = end


def row_reader(where: str, name: str) -> _ReadRow:
    """Reads one row of a definition: texts, the columns that were left out, and the place behind it."""
    return _row_reader(load_relation(where, name))


def _update(relation: StreamedRelation, read_row: _ReadRow, tag: bytes, keys_only: bool) -> Decode:
    """Updates with an image of the row before: whole, or of its key when that may have changed."""
    definition = relation.definition
    table, schema_id, width = definition.table, definition.schema_id, len(definition.columns)
    places = definition.key_places
    whole = tag.endswith(b"O")
    before_width = width if whole and not keys_only else -1
    after_width = -1 if keys_only else width
    update = Run(UPDATE, table, schema_id, len(places), before_width, after_width)
    delete = Run(DELETE, table, schema_id, len(places), before_width)
    insert = Run(INSERT, table, schema_id, len(places), after_width=after_width)

    def decode(
        data: bytes, place: int, size: int, rows: ChangeRows, seq: int, annotation: str | None
    ) -> tuple[int, int]:
        for start, end in messages(data, place, size, tag):
            old, _, at = read_row(data, start + IMAGE)
            new, left_out, at = read_row(data, at + 3)
            if at != end:
                raise _damaged(table)
            if left_out:
                # A key column that was left out is in the old image, and so is all of a whole row.
                known = range(width) if whole else places
                new = tuple(
                    old[i] if i in left_out and i in known else text for i, text in enumerate(new)
                )
                left_out = [i for i in left_out if i not in known]
            old_key = tuple(old[i] for i in places)
            new_key = tuple(new[i] for i in places)
            run = update
            if before_width >= 0:
                rows.before += old
            if old_key != new_key:
                # For everything keyed, another key is another row.
                rows.keys += old_key
                rows.add(delete, 1, seq, annotation)
                run = insert
                seq += 1
            rows.keys += new_key
            if not keys_only:
                rows.after += new
                if left_out:
                    rows.mark_unchanged(left_out)
            rows.add(run, 1, seq, annotation, end - start)
            seq += 1
            place = end
        return place, seq

    return decode


def _delete(relation: StreamedRelation, read_row: _ReadRow, tag: bytes, keys_only: bool) -> Decode:
    definition = relation.definition
    table, schema_id, places = definition.table, definition.schema_id, definition.key_places
    whole = tag.endswith(b"O") and not keys_only
    before_width = len(definition.columns) if whole else -1
    run = Run(DELETE, table, schema_id, len(places), before_width)

    def decode(
        data: bytes, place: int, size: int, rows: ChangeRows, seq: int, annotation: str | None
    ) -> tuple[int, int]:
        keys, before = rows.keys, rows.before
        first, count = place, 0
        for start, end in messages(data, place, size, tag):
            old, _, at = read_row(data, start + IMAGE)
            if at != end:
                raise _damaged(table)
            keys.extend([old[i] for i in places])
            if whole:
                before += old
            count += 1
            place = end
        rows.add(run, count, seq, annotation, place - first)
        return place, seq + count

    return decode


def _compiled(relation: StreamedRelation, tag: bytes, kind: str, keys_only: bool) -> Decode:
    """Inserts, and updates that carry the new row only."""
    definition = relation.definition
    places = definition.key_places
    needed = set(places) if keys_only else set(range(len(definition.columns)))
    lines = [
        "def decode(data, place, size, rows, seq, annotation):",
        "    keys, after, first, count = rows.keys, rows.after, place, 0",
        "    while True:",
        "        length, found = frame(data, place)",
        "        end = place + 4 + length",
        "        if found != tag or end > size:",
        "            break",
        f"        at = place + {IMAGE}",
    ]
    left_out = kind == UPDATE and not keys_only
    if left_out:
        lines.append("        left_out = None")
    for i in range(len(definition.columns)):
        lines += _column_lines(i, i in needed, relation, "left_out" if left_out else "")
    row = _tuple(f"v{i}" for i in range(len(definition.columns)))
    lines += [
        "        if at != end:",
        "            raise damaged(table)",
        f"        keys += {_tuple(f'v{i}' for i in places)}",
    ]
    if not keys_only:
        lines.append(f"        after += {row}")
    if left_out:
        lines += [
            "        if left_out:",
            "            if count:",
            "                rows.add(run, count, seq, annotation, place - first)",
            "                seq += count",
            "            rows.mark_unchanged(left_out)",
            "            rows.add(run, 1, seq, annotation, end - place)",
            "            seq, count, first, place = seq + 1, 0, end, end",
            "            continue",
        ]
    lines += [
        "        count += 1",
        "        place = end",
        "    if count:",
        "        rows.add(run, count, seq, annotation, place - first)",
        "    return place, seq + count",
    ]
    width = -1 if keys_only else len(definition.columns)
    run = Run(kind, definition.table, definition.schema_id, len(places), after_width=width)
    return cast(Decode, _run(lines, relation, run=run, tag=tag)["decode"])


def _row_reader(relation: StreamedRelation) -> _ReadRow:
    count = len(relation.definition.columns)
    lines = ["def read_row(data, at):", "    if True:", "        left_out = None"]
    for i in range(count):
        lines += _column_lines(i, True, relation, "left_out")
    lines.append(f"    return {_tuple(f'v{i}' for i in range(count))}, left_out, at")
    return cast(_ReadRow, _run(lines, relation)["read_row"])


def _column_lines(i: int, needed: bool, relation: StreamedRelation, left_out: str) -> list[str]:
    convert = converter(relation.definition.columns[i].type, relation.bases[i])
    value = f"convert{i}(data[begin:at])" if convert else "data[begin:at]"
    lines = [
        "        letter, length = head(data, at)",
        "        if letter == 116:",  # t
        "            begin = at + 5",
        "            at = begin + length",
        f"            v{i} = {value}" if needed else "",
        "        else:",
        f"            v{i} = None" if needed else "",
        "            at += 1",
    ]
    if left_out:
        lines += [
            "            if letter == 117:",  # u
            f"                {left_out} = ({left_out} or []) + [{i}]",
        ]
    return [line for line in lines if line]


def _tuple(names: Iterator[str]) -> str:
    return "(" + "".join(f"{name}, " for name in names) + ")"


def _run(lines: Sequence[str], relation: StreamedRelation, **names: object) -> dict[str, object]:
    """Nothing of the source text comes from the database: names and types stay in values."""
    table = relation.definition.table
    scope: dict[str, object] = {
        "frame": FRAME.unpack_from,
        "head": _HEAD.unpack_from,
        "damaged": _damaged,
        "table": table,
        **names,
    }
    for i, column in enumerate(relation.definition.columns):
        scope[f"convert{i}"] = converter(column.type, relation.bases[i])
    exec(compile("\n".join(lines), f"<decoder of {table}>", "exec"), scope)
    return scope


def _damaged(table: str) -> CannotFinish:
    return CannotFinish(
        f"a change of {table} does not have the columns that its definition says;"
        " the segment is damaged: drop the stream and start anew"
    )
