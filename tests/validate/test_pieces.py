"""Pieces of packed changes, put together at once, against the same done change by change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transfer.test_packing import logs
from truecopy.model.change import CHANGE_SCHEMA
from truecopy.transfer.continuous.entries import CHANGE, ENTRIES, lines_of, to_bytes
from truecopy.transfer.continuous.pieces import INPUT, TURN, Group, lines_in
from truecopy.transfer.packing import pack_batches
from truecopy.transfer.replicate import AS_THEY_ARE

_STREAM = pa.schema([CHANGE_SCHEMA.field(name) for name in AS_THEY_ARE])


def as_input(turn: int, changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A batch of the stream as lines of a round's input."""
    batches = pa.Table.from_pylist(changes, schema=_STREAM).to_batches()
    lines = [line for packed in pack_batches(batches) for line in packed.to_pylist()]
    named = [
        {**line, "turn": turn, "part": f"{line['shard']}/{line['table']}/{line['slice']}"}
        for line in lines
    ]
    return [{name: line[name] for name in INPUT.names} for line in named]


def expected(turn: int, change: dict[str, Any]) -> dict[str, Any]:
    wanted = {name: change.get(name) for name in CHANGE.names}
    del wanted["slice"]
    order = change["commit_order"] + turn * TURN
    return {**wanted, "row": change["after"], "commit_order": order, "step": 0}


@settings(deadline=None)
@given(st.lists(logs(), max_size=3), st.integers(1, 8))
def test_put_together(batches: list[list[dict[str, Any]]], size: int) -> None:
    lines = [line for turn, batch in enumerate(batches, 1) for line in as_input(turn, batch)]
    lines.sort(key=lambda line: str(line["part"]))
    group = Group()
    for batch in pa.Table.from_pylist(lines, schema=INPUT).to_batches(max_chunksize=size):
        for line in lines_in(batch):
            group.add(line)
    checks: dict[str, Any] = {line["schema_id"]: None for line in lines}
    found = group.changes(checks)
    assert found.schema == CHANGE
    assert group.rows == found.num_rows == sum(map(len, batches))
    assert list(group.parts) == list(dict.fromkeys(line["part"] for line in lines))
    told = found.to_pylist()
    for change in told:
        assert f"{change['shard']}/{change['table']}/{change.pop('slice')}" in group.parts
    wanted = [expected(turn, change) for turn, batch in enumerate(batches, 1) for change in batch]
    for side in told, wanted:
        side.sort(key=lambda change: (change["commit_order"], change["seq"], change["shard"]))
    assert told == wanted
    # One of both tables stands still by now.
    only = group.changes({name: check for name, check in checks.items() if name == "tt"})
    assert only.num_rows == sum(change["table"] == "t" for change in wanted)


def test_rows_of_tables_that_stand_still_rest() -> None:
    rows = [
        {"shard": "s", "table": table, "slice": 1, "schema_id": table, "tries": 7} for table in "ab"
    ]
    payload = to_bytes(pa.Table.from_pylist(rows, schema=ENTRIES))
    line = {"part": "s/a/1", "payload": payload}
    group = Group()
    for one in lines_in(pa.RecordBatch.from_pylist([line], schema=INPUT)):
        group.add(one)
    checks: dict[str, Any] = {"a": None}
    going, resting = group.entries(checks)
    assert going.column("schema_id").to_pylist() == ["a"]
    assert resting.column("schema_id").to_pylist() == ["b"]
    assert not group.changes(checks).num_rows


def test_rows_are_gathered_by_what_they_take_in_memory() -> None:
    rows = [{"shard": "s", "table": "a", "slice": 1, "row": ["x" * 10_000]}] * 100
    line = {"part": "s/a/1", "payload": to_bytes(pa.Table.from_pylist(rows, schema=ENTRIES))}
    assert len(line["payload"]) < 100_000
    group = Group()
    for one in lines_in(pa.RecordBatch.from_pylist([line], schema=INPUT)):
        group.add(one)
    assert group.is_full(1000, 1_000_000)


@given(st.integers(0, 5).flatmap(lambda count: st.lists(st.integers(0, count), max_size=6)))
def test_lines_of_a_table(lines: list[int]) -> None:
    table = pa.table({"a": [10, 11, 12, 13, 14, 15]})
    assert lines_of(table, np.array(lines, np.int64)).equals(
        table.take(pa.array(lines, pa.int64()))
    )


def test_all_lines_are_the_table_itself() -> None:
    table = pa.table({"a": [10, 11]})
    assert lines_of(table, np.arange(2)) is table
