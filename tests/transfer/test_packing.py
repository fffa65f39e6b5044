"""Changes packed and unpacked, and their net effect, against a plain model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truecopy.model.change import CHANGE_SCHEMA, DELETE, INSERT, UPDATE
from truecopy.model.errors import CannotFinish
from truecopy.spark import explain_spark, explained
from truecopy.transfer import packing
from truecopy.transfer.apply import EFFECTS, as_effects
from truecopy.transfer.effect import net_effect
from truecopy.transfer.packing import SLICES, pack_batches, packed, slices_of, unpacked
from truecopy.transfer.replicate import AS_THEY_ARE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INPUT = pa.schema([CHANGE_SCHEMA.field(name) for name in AS_THEY_ARE])
Row = list[str | None]
TEXTS = st.text("ab\x1f", max_size=2)


@st.composite
def logs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Changes of some tables in the order of the log: each has a row of a key, a text and a long text."""
    changes = []
    for number in range(draw(st.integers(0, 30))):
        table = draw(st.sampled_from("tu"))
        # A table has one width of keys; keys of several columns may look alike when they are joined.
        key = [draw(TEXTS) for _ in range(1 if table == "t" else 2)]
        kind = draw(st.sampled_from((INSERT, UPDATE, UPDATE, DELETE)))
        left_out = kind == UPDATE and draw(st.booleans())
        changes.append(
            {
                "shard": draw(st.sampled_from(("-80", "80-"))) if table == "u" else "-80",
                "position": f"0-1-{number}",
                "commit_order": number // 3,
                "seq": number % 3,
                "committed_at": number,
                "kind": kind,
                "table": table,
                "key": key,
                "after": None
                if kind == DELETE
                else [*key, f"v{number}", None if left_out else f"long{number}"],
                "unchanged": [len(key) + 1] if left_out else None,
                "schema_id": table * 2,
            }
        )
    return changes


def expected(changes: list[dict[str, Any]]) -> dict[tuple[str, ...], tuple[str, Row | None, Any]]:
    """By table and key: the kind of the last change, the row, and what is still left out of it."""
    found: dict[tuple[str, ...], tuple[str, Row | None, Any]] = {}
    for change in sorted(changes, key=lambda one: (one["commit_order"], one["seq"])):
        name = change["table"], *change["key"]
        _, row, open_places = found.get(name, ("", None, None))
        after, left_out = change["after"], change["unchanged"]
        if left_out and row is not None:
            after = [*after[:-1], row[-1]]
            left_out = left_out if open_places else []
        found[name] = change["kind"], after, left_out or []
    return found


@settings(deadline=None)
@given(logs(), st.integers(1, 8))
def test_net_effect_of_packed_changes(changes: list[dict[str, Any]], size: int) -> None:
    batches = pa.Table.from_pylist(changes, schema=_INPUT).to_batches(max_chunksize=size)
    tables = [as_effects(table) for one in pack_batches(batches) for table in unpacked(one)]
    assert sum(table.num_rows for table in tables) == len(changes)
    if not changes:
        return
    found = net_effect(pa.concat_tables(reversed(tables)), {}).to_pylist()
    told = {
        (one["table"], *one["key"]): (one["kind"], one["row"], one["unchanged"] or [])
        for one in found
    }
    assert len(told) == len(found)
    assert told == expected(changes)


@settings(deadline=None)
@given(logs())
def test_what_is_said_of_packed_changes(changes: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(changes, schema=_INPUT)
    slices, batches = slices_of(table), table.to_batches()
    for one in pack_batches(batches):
        for row in one.to_pylist():
            same = ("shard", "table", "schema_id", "kind")
            group = [
                c
                for c, number in zip(changes, slices, strict=True)
                if all(c[name] == row[name] for name in same) and number == row["slice"]
            ]
            assert row["commit_order"] == max(c["commit_order"] for c in group)
            assert row["left_out"] == any(c["unchanged"] for c in group)
            assert (row["position"], row["committed_at"]) in {
                (c["position"], c["committed_at"])
                for c in group
                if c["commit_order"] == row["commit_order"]
            }


def test_every_change_of_a_table_without_a_key_counts() -> None:
    change = {"table": "t", "schema_id": "tt", "kind": INSERT, "key": [], "row": ["1"]}
    rows = [
        {**change, "unchanged": None, "commit_order": 1, "seq": seq, "step": 0} for seq in range(3)
    ]
    assert net_effect(pa.Table.from_pylist(rows, schema=EFFECTS), {}).num_rows == 3


def test_a_row_that_changed_its_key_is_written_after_it_was_deleted() -> None:
    rows = [
        {
            "table": "t", "schema_id": "tt", "kind": kind, "key": ["1"],
            "row": ["1"] if kind == INSERT else None, "unchanged": None,
            "commit_order": 1, "seq": 0, "step": step,
        }
        for step, kind in ((1, INSERT), (0, DELETE))
    ]  # fmt: skip
    assert net_effect(pa.Table.from_pylist(rows, schema=EFFECTS), {}).column(
        "kind"
    ).to_pylist() == [INSERT]


def test_slices_are_even_and_stay_what_they_are() -> None:
    numbers = [[str(number)] for number in range(64_000)]
    table = pa.table({"table": ["shop.orders"] * len(numbers), "key": numbers})
    found = slices_of(table)
    sizes = np.bincount(found, minlength=SLICES)
    assert sizes.min() > 500
    assert sizes.max() < 2000
    # Ledgers of tasks that run know them by these numbers.
    assert found[:8].tolist() == [35, 44, 52, 61, 6, 14, 23, 32]
    odd = pa.table(
        {"table": ["a", "a", "b", None], "key": [["x", None], [], None, []]},
        schema=pa.schema([("table", pa.string()), ("key", pa.list_(pa.string()))]),
    )
    assert slices_of(odd).tolist() == [63, 44, 57, 0]


def test_changes_without_a_row_do_not_carry_those_of_others() -> None:
    changes = [
        {
            "shard": "s",
            "position": "0-1-1",
            "commit_order": 1,
            "seq": number,
            "committed_at": 1,
            "kind": INSERT if number % 2 else DELETE,
            "table": "t",
            "key": [str(number)],
            "after": [str(number)] * 100 if number % 2 else None,
            "unchanged": None,
            "schema_id": "t",
        }
        for number in range(2000)
    ]
    (packed,) = pack_batches([pa.RecordBatch.from_pylist(changes, schema=_INPUT)])
    kinds, payloads = packed.column("kind").to_pylist(), packed.column("payload").to_pylist()
    sizes = [len(data) for kind, data in zip(kinds, payloads, strict=True) if kind == DELETE]
    assert len(sizes) > 1
    assert max(sizes) < 10_000  # there are 100,000 texts in the rows of others


def test_left_out_values_are_found_by_name_where_a_table_was_altered_in_between() -> None:
    """In one transaction: a row, ALTER TABLE … DROP COLUMN a, and an update that leaves a long value out."""
    same = {"table": "t", "key": ["1"], "commit_order": 1, "step": 0}
    rows = [
        {**same, "seq": 0, "schema_id": "old", "kind": INSERT, "row": ["1", "a", "long", "c"]},
        {**same, "seq": 1, "schema_id": "new", "kind": UPDATE, "row": ["1", None, "d"], "unchanged": [1]},
    ]  # fmt: skip
    layouts = {"old": {"id": 0, "b": 2, "c": 3}, "new": {"id": 0, "b": 1, "c": 2}}
    (told,) = net_effect(pa.Table.from_pylist(rows, schema=EFFECTS), layouts).to_pylist()
    assert (told["row"], told["unchanged"]) == (["1", "long", "d"], [])
    unknown = {"old": {"id": 0}, "new": layouts["new"]}
    (told,) = net_effect(pa.Table.from_pylist(rows, schema=EFFECTS), unknown).to_pylist()
    assert told["unchanged"] == [1], "it is taken from the target, or the run ends"


@pytest.mark.long
def test_a_large_batch_comes_to_the_driver_in_pieces(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All keys of one huge transaction would be more than Spark lets a job bring there, at every start again."""
    count = 200_000
    changes = spark.range(count, numPartitions=4).selectExpr(
        "'-80' shard", "'0-1-7' position", "1L commit_order", "CAST(id AS INT) seq",
        "timestamp'2026-01-01' committed_at", "'insert' kind", "'t' table", "'s' schema_id",
        "array(CAST(id AS STRING)) key", "array(CAST(id AS STRING), 'x') after",
        "CAST(NULL AS array<int>) unchanged",
    )  # fmt: skip
    monkeypatch.setattr(packing, "_MOST_ROWS", 10_000)
    conf: Any = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.driver.maxResultSize", "1m")
    try:
        with packed(changes) as batch:
            with pytest.raises(CannotFinish, match="is bigger than spark"), explained():
                list(batch.pieces("table", "key"))
            monkeypatch.setattr(packing, "_MOST_COLLECTED", 1 << 19)
            pieces = list(batch.pieces("table", "key"))
    finally:
        conf.remove("spark.driver.maxResultSize")
    keys = {key for piece in pieces for (key,) in piece.column("key").to_pylist()}
    assert keys == set(map(str, range(count)))
    assert sum(piece.num_rows for piece in pieces) == count
    assert len(pieces) > 1


def test_the_innermost_cause_of_a_failed_job_is_told() -> None:
    told = explain_spark(
        RuntimeError(
            "An error occurred while calling o12.collectToPython.\n"
            ": org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
            "\tat org.apache.spark.util.ThreadUtils$.awaitResult(ThreadUtils.scala:359)\n"
            "Caused by: org.apache.spark.SparkException: Job aborted: Total size of results is too big\n"
            "\t... 1 more\n"
        )
    )
    assert "a Spark task failed: Job aborted: Total size of results is too big (the whole" in str(
        told
    )
