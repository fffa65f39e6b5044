"""A batch into the target: a part that is ahead of it stays, and a transaction may be larger than the memory."""

from __future__ import annotations

import multiprocessing
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from tests.servers import Database
from truecopy.engines import connect
from truecopy.model.change import CHANGE_SCHEMA, DELETE, INSERT, UPDATE
from truecopy.model.endpoint import parse_endpoint
from truecopy.transfer.apply import TIED, Applying, lines_of
from truecopy.transfer.ledger import Ledger
from truecopy.transfer.packing import pack_batches
from truecopy.transfer.replicate import AS_THEY_ARE
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import TRANSACTION, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGES = pa.schema([CHANGE_SCHEMA.field(name) for name in AS_THEY_ARE])
START, MIDDLE, END = "0-1-5", "0-1-7", "0-1-10"
ROWS = 300
Row = tuple[int, int | None, str | None]
"""The key, and what the row holds; None for one that is deleted."""


class Target:
    """Tables of a task that has copied them, and work upon them as executors get it."""

    def __init__(self, source: Database, target: Database) -> None:
        source.execute("CREATE TABLE items (id INT PRIMARY KEY, code INT UNIQUE, name TEXT)")
        source.execute("CREATE TABLE seen (id INT, code INT, name TEXT)")
        source.execute(f"INSERT INTO items SELECT seq, seq, 'old' FROM seq_1_to_{ROWS}")
        source.execute("INSERT INTO items VALUES (100000, 100000, 'a change, so that it is known')")
        asked = Settings("move", source.url, target.url, consistency=TRANSACTION)
        transfer = Noted(asked)
        transfer.run(until_caught_up=True)
        source.execute("DELETE FROM items WHERE id = 100000")
        source.execute("INSERT INTO seen VALUES (0, 0, 'likewise')")
        transfer = Noted(asked)
        transfer.run(until_caught_up=True)
        replication = cast(Any, transfer.replication_)
        self.shard, self.epoch = next(iter(replication._origins)), replication._epoch
        self.database, self.source = target, source
        self.schema_ids = {
            replication.tables.definitions.find(one).table.rpartition(".")[2]: one
            for one in replication.tables.targets
        }
        self.work = Applying(
            asked.task,
            self.epoch,
            asked.annotation,
            parse_endpoint(target.url),
            dict(replication.tables.targets),
            stands={},
            starts={self.shard: (START, 0)},
            ends={self.shard: (END, 0)},
        )

    def packed(self, part: str, rows: dict[str, Sequence[Row]], at: str) -> list[pa.RecordBatch]:
        """Changes as Spark hands them over, sorted, in batches of one line each."""
        changes = []
        for table, some in rows.items():
            changes += [self._change(table, *row, at) for row in some]
        return _lines(changes, part)

    def _change(
        self, table: str, number: int, code: int | None, name: str | None, at: str
    ) -> dict[str, Any]:
        is_keyed = table == "items"
        there = UPDATE if is_keyed and number <= ROWS else INSERT
        return {
            "shard": self.shard,
            "table": f"{self.source.name}.{table}",
            "key": [str(number)] if is_keyed else [],
            "kind": DELETE if code is None else there,
            "commit_order": 1,
            "seq": number,
            "after": None if code is None else [str(number), str(code), name],
            "schema_id": self.schema_ids[table],
            "position": at,
        }

    def line(self, part: str, position: str) -> None:
        with connect(parse_endpoint(self.database.url)) as session:
            Ledger(cast(Any, session), "move").open_part(part, position, 0, self.epoch)

    def stands(self, part: str) -> str:
        asked = f"SELECT position FROM truecopy_progress WHERE part = '{part}'"
        ((position,),) = self.database.execute(asked)
        return str(position)


def _lines(changes: Sequence[dict[str, Any]], part: str) -> list[pa.RecordBatch]:
    (whole,) = pack_batches([pa.RecordBatch.from_pylist(list(changes), schema=CHANGES)])
    lines = whole.append_column("part", pa.array([part] * whole.num_rows))
    lines = lines.sort_by([("table", "ascending"), ("slice", "ascending")])
    return [lines.slice(at, 1) for at in range(lines.num_rows)]


class Noted(Transfer):
    """Gives what applied its changes."""

    replication_: Any = None

    def replication(self, *given: Any) -> Any:
        self.replication_ = super().replication(*given)
        return self.replication_


@pytest.fixture(params=["second_mariadb_db", "postgres_db"])
def target(spark: SparkSession, mariadb_db: Database, request: pytest.FixtureRequest) -> Target:
    return Target(mariadb_db, request.getfixturevalue(request.param))


def test_a_part_that_is_ahead_of_a_batch_is_left(target: Target) -> None:
    part = f"{target.shard}/t/ahead"
    target.line(part, END)
    work = replace(
        target.work, stands={part: (END, 0)}, ends={target.shard: (MIDDLE, 0)}
    )  # fmt: skip
    before = target.database.execute("SELECT COUNT(*) FROM seen")
    assert list(work(target.packed(part, {"seen": [(1, 1, "in already")]}, "0-1-6"))) == []
    assert target.stands(part) == END
    assert target.database.execute("SELECT COUNT(*) FROM seen") == before


@pytest.mark.parametrize("step_bytes", [1, 64 << 20])
def test_a_transaction_in_steps_is_one(target: Target, step_bytes: int) -> None:
    """Unique values that go round among all keys: nothing comes before everything that goes is gone."""
    part = f"{target.shard}/t/large"
    moved: list[Row] = [(number, number % ROWS + 1, "new") for number in range(1, ROWS + 1)]
    moved[6:8] = [(7, None, None), (8, None, None)]
    moved.append((ROWS + 1, 8, "takes what 7 had got"))
    rows: dict[str, Sequence[Row]] = {
        "items": moved,
        "seen": [(1, 1, "a"), (1, 1, "a"), (2, 2, "b")],
    }
    work = replace(target.work, step_bytes=step_bytes)
    (done,) = work(target.packed(part, rows, END))
    counts = dict(
        zip(done.column("table").to_pylist(), done.column("changes").to_pylist(), strict=True)
    )
    assert list(counts.values()) == [len(moved), 3]
    expected = sorted((number, code, name) for number, code, name in moved if code is not None)
    assert target.database.execute("SELECT * FROM items ORDER BY id") == expected
    seen = target.database.execute("SELECT name FROM seen WHERE id > 0 ORDER BY id")
    assert seen == [("a",), ("a",), ("b",)]
    assert target.stands(part) == END


def test_steps_that_fail_leave_nothing(target: Target) -> None:
    part = f"{target.shard}/t/fails"
    rows: dict[str, Sequence[Row]] = {
        "items": [(number, 5, "twice the same code") for number in (1, 2, 3)]
    }
    before = target.database.execute("SELECT * FROM items ORDER BY id")
    work = replace(target.work, step_bytes=1)
    with pytest.raises(Exception, match="5"):
        list(work(target.packed(part, rows, END)))
    assert target.database.execute("SELECT * FROM items ORDER BY id") == before
    assert target.stands(part) == START


def test_a_part_is_held_whole_only_where_foreign_keys_act(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    target = Target(mariadb_db, second_mariadb_db)
    seen = target.schema_ids["seen"]
    acting = {**target.work.targets, seen: replace(target.work.targets[seen], takes=True)}
    work = replace(target.work, targets=acting, step_bytes=1)
    steps = {}
    for part in (target.shard, f"{target.shard}/{TIED}", f"{target.shard}/t/items"):
        changes = target.packed(part, {"items": [(number, 1, "x") for number in range(50)]}, END)
        lines = (line for batch in changes for line in lines_of(batch))
        steps[part] = len(list(work.steps(part, lines, Counter())))
    whole, tied, alone = steps.values()
    assert whole == tied == 1
    assert alone > 1


def test_a_row_that_goes_from_one_merged_table_to_another_stays(target: Target) -> None:
    """In any order, and though the names of the tables say nothing of it: one row of the target."""
    items = target.schema_ids["items"]
    to = target.work.targets[items]
    shared = {one: replace(to, shared=True) for one in ("orders", "archive")}
    target.schema_ids |= {"orders": "orders", "archive": "archive"}
    for number, order in enumerate((("orders", "archive"), ("archive", "orders"))):
        part = f"{target.shard}/{TIED}/{number}"
        work = replace(target.work, targets=shared)
        gone, come = (order, order[::-1])[number]
        changes = [
            target._change(gone, 5, None, None, END) | {"key": ["5"], "seq": number},
            target._change(come, 5, 5, f"in {come}", END) | {"key": ["5"], "seq": 1 - number},
        ]
        list(work(_lines(changes, part)))
        assert target.database.execute("SELECT name FROM items WHERE id = 5") == [(f"in {come}",)]
        assert target.database.execute("SELECT COUNT(*) FROM items") == [(ROWS,)]


def test_a_unique_value_goes_from_one_definition_of_a_table_to_another(target: Target) -> None:
    """A transaction of PostgreSQL may alter a table between two changes of it."""
    items = target.schema_ids["items"]
    targets = {**target.work.targets, "altered": target.work.targets[items]}
    changes = [
        target._change("items", 2, 1000, "old", END) | {"seq": 0},
        target._change("items", 1, 2, "old", END) | {"seq": 1},
        target._change("items", 2, 1000, "new", END) | {"seq": 2, "schema_id": "altered"},
    ]
    list(replace(target.work, targets=targets)(_lines(changes, f"{target.shard}/t/items")))
    found = target.database.execute("SELECT id, code, name FROM items WHERE id < 3 ORDER BY id")
    assert found == [(1, 2, "old"), (2, 1000, "new")]


def test_what_at_most_once_could_not_write_is_told(target: Target) -> None:
    """The task is not tried again: its line has moved, so that the second attempt would seem to be well."""
    part = f"{target.shard}/t/once"
    work = replace(target.work, progress_first=True)
    refused: dict[str, Sequence[Row]] = {
        "items": [(number, 5, "twice the same code") for number in (1, 2)]
    }
    (done,) = work(target.packed(part, refused, END))
    (told,) = set(done.column("failure").to_pylist())
    assert "5" in told
    assert "at-most-once" in told
    assert target.stands(part) == END
    again = replace(work, stands={part: (MIDDLE, 0)})
    (done,) = again(target.packed(part, {"items": [(1, 1, "late")]}, END))
    assert done.column("failure").to_pylist() == [None]
    assert target.database.execute("SELECT name FROM items WHERE id = 1") == [("old",)]


def test_what_a_table_has_by_a_line_of_its_own_does_not_come_again(target: Target) -> None:
    """A run ended between two tables, and the next one takes all tables together."""
    target.line(f"{target.shard}/t/{target.source.name}.seen", MIDDLE)
    stands = {f"{target.shard}/t/{target.source.name}.seen": (MIDDLE, 0)}
    work = replace(target.work, stands=stands)
    part = f"{target.shard}/whole"
    changes = [
        *target.packed(part, {"seen": [(1, 1, "in already")]}, "0-1-6"),
        *target.packed(part, {"seen": [(2, 2, "new")]}, END),
    ]
    list(work(changes))
    assert target.database.execute("SELECT name FROM seen WHERE id > 0") == [("new",)]


@pytest.mark.long
def test_memory_does_not_grow_with_a_transaction(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    target = Target(mariadb_db, second_mariadb_db)
    work = replace(target.work, step_bytes=8 << 20)
    some = target.packed("shard", {"items": [(1, 1, "x")]}, END)[0]
    small, large = (_peak(work, target, some, number) for number in (20, 200))
    held = target.database.execute("SELECT COUNT(*) FROM items WHERE name LIKE 'long%%'", ())
    assert held == [(200_000,)], "of both, since the second one brings the same keys again"
    assert large - small < 64 << 20, f"{small >> 20} MB and {large >> 20} MB"


def _peak(work: Applying, target: Target, like: pa.RecordBatch, slices: int) -> int:
    """The peak of a process that applies a thousand rows of a kilobyte for each slice."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        part = f"{target.shard}/t/{slices}"
        return pool.apply(_applied, (work, part, target.schema_ids["items"], like, slices))


def _applied(work: Applying, part: str, schema_id: str, like: pa.RecordBatch, slices: int) -> int:
    list(work(_generated(part, schema_id, like, slices)))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _generated(
    part: str, schema_id: str, like: pa.RecordBatch, slices: int
) -> Iterator[pa.RecordBatch]:
    """Lines of one table, made as they are asked for."""
    shard, table = like.column("shard")[0].as_py(), like.column("table")[0].as_py()
    for number in range(slices):
        keys = range(1_000_000 + number * 1000, 1_001_000 + number * 1000)
        changes = [
            {"shard": shard, "table": table, "key": [str(key)], "kind": INSERT, "commit_order": 1, "seq": key,
             "after": [str(key), str(key), "long" + "x" * 1000], "schema_id": schema_id, "position": END}
            for key in keys
        ]  # fmt: skip
        (packed,) = pack_batches([pa.RecordBatch.from_pylist(changes, schema=CHANGES)])
        lines = pa.table(packed).set_column(
            packed.schema.get_field_index("slice"),
            "slice",
            pa.array([number] * packed.num_rows, pa.int32()),
        )
        whole = lines.append_column("part", pa.array([part] * packed.num_rows))
        yield from whole.to_batches()
