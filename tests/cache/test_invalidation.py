"""Readers and invalidators step by step, with every kind of cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from truecopy.cache.entry import Entry, unpack
from truecopy.cache.floor import bucket_of
from truecopy.cache.invalidation import ENTRY, Invalidator
from truecopy.cache.objects import Emptied, Objects, needs_rows, object_key
from truecopy.cache.readthrough import ReadThrough
from truecopy.cache.store import Cache, Write
from truecopy.client.answer import Answer, Of
from truecopy.model.change import CHANGE_SCHEMA, Definition
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import SequencePosition
from truecopy.model.table import Column
from truecopy.model.token import EventToken, Origin, compare_tokens
from truecopy.model.types import Integer

SECOND = 1_000_000


def token(number: int, shard: str = "-", at: float = 0, origin: Origin | None = None) -> EventToken:
    return EventToken(
        int((at or 1000 + number) * SECOND) + 1, shard, SequencePosition(number), origin
    )


@dataclass
class Database:
    """Answers what it is told to, as fresh as it is told to be."""

    value: str = "old"
    at: EventToken = field(default_factory=lambda: token(1))
    log_end: EventToken | None = field(default_factory=lambda: token(1))
    serving: tuple[str, ...] = ("-",)
    asked: int = 0

    def query(
        self,
        sql: str,  # noqa: ARG002
        values: Sequence[object] = (),  # noqa: ARG002
        *,
        of: Of | None = None,  # noqa: ARG002
        include_token: bool = False,  # noqa: ARG002
        compare_token: EventToken | None = None,
    ) -> Answer:
        self.asked += 1
        fresher = compare_token is not None and compare_tokens(self.at, compare_token).value in (
            "NEWER",
            "SAME",
        )
        return Answer(("v",), [[self.value]], self.at, self.at, fresher)

    def end(self, shard: str) -> EventToken | None:  # noqa: ARG002
        return self.log_end

    def serves(self, shard: str) -> bool:
        return shard in self.serving

    def move(self, value: str, number: int, shard: str = "-") -> None:
        self.value, self.at = value, token(number, shard)
        self.log_end = self.at


def entry(cache: Cache, key: str) -> Entry | None:
    (held,) = cache.get([ENTRY + key])
    return unpack(held.content) if held else None


def store(cache: Cache, key: str, found: Entry) -> None:
    (held,) = cache.get([ENTRY + key])
    assert cache.put([Write(ENTRY + key, found.pack(), held.version if held else None)]) == [True]


def evict(cache: Cache, *kept: str) -> None:
    """Everything goes but these."""
    held = [(name, one.content) for name, one in zip(kept, cache.get(kept), strict=True) if one]
    cache.clear()
    cache.put([Write(name, content) for name, content in held])


def test_a_miss_is_put_and_hit(cache: Cache) -> None:
    database = Database()
    reader = ReadThrough(database, cache)
    first = reader.get("a", "…")
    assert (first.hit, first.put, first.value) == (False, True, [["old"]])
    database.move("new", 2)
    second = reader.get("a", "…")
    assert (second.hit, second.value, second.token) == (True, [["old"]], token(1))
    assert database.asked == 1


@pytest.mark.parametrize(
    ("cached", "change", "is_kept"),
    [
        (token(1), token(2), False),
        (token(2), token(2), True),
        (token(3), token(2), True),
        (token(9, "80-", at=1002.2), token(2), False),  # nobody knows: within the clock bound
        (token(9, "80-", at=1009), token(2), True),
        (token(9, "80-", at=990), token(2), False),
        (token(9, "80-", at=990, origin=Origin("-", SequencePosition(2))), token(2), True),  # SAME
        (token(9, "80-", at=1009, origin=Origin("-", SequencePosition(1))), token(2), False),
    ],
)
def test_what_an_invalidation_makes_of_an_entry(
    cache: Cache, cached: EventToken, change: EventToken, is_kept: bool
) -> None:
    store(cache, "a", Entry(cached, b"v"))
    store(cache, "t", Entry(cached))
    Invalidator(cache).invalidate([("a", change), ("t", change), ("new", change)])
    assert entry(cache, "a") == (Entry(cached, b"v") if is_kept else Entry(change))
    assert entry(cache, "t") == Entry(cached if is_kept else change)
    assert entry(cache, "new") == Entry(change)


def test_a_token_without_a_value_waits_for_a_fresher_answer(cache: Cache) -> None:
    database = Database()
    reader = ReadThrough(database, cache)
    reader.get("a", "…")
    Invalidator(cache).invalidate([("a", token(3))])
    database.at = token(2)
    stale = reader.get("a", "…")
    assert (stale.hit, stale.put) == (False, False)
    assert entry(cache, "a") == Entry(token(3))
    database.move("new", 3)
    assert reader.get("a", "…").put
    assert reader.get("a", "…").hit


@pytest.mark.parametrize("is_floor_kept", [True, False])
def test_an_evicted_token_is_not_forgotten(cache: Cache, is_floor_kept: bool) -> None:
    database = Database()
    reader = ReadThrough(database, cache)
    reader.get("a", "…")
    Invalidator(cache).invalidate([("a", token(3))])
    evict(cache, *([bucket_of("a")] if is_floor_kept else []))
    database.log_end = token(3)
    lagging = reader.get("a", "…")
    assert (lagging.hit, lagging.put, lagging.value) == (False, False, [["old"]])
    database.move("new", 3)
    assert reader.get("a", "…").put


def test_without_a_floor_and_an_end_nothing_is_put(cache: Cache) -> None:
    reader = ReadThrough(Database(log_end=None), cache)
    assert not reader.get("a", "…").put
    assert entry(cache, "a") == Entry()


def test_what_is_invalidated_while_a_reader_asks_is_not_put(cache: Cache) -> None:
    class Slow(Database):
        def serves(self, shard: str) -> bool:
            Invalidator(cache).invalidate([("a", token(2))])
            return super().serves(shard)

    assert not ReadThrough(Slow(), cache).get("a", "…").put
    assert entry(cache, "a") == Entry(token(2))


def test_an_answer_of_a_shard_that_gave_way_is_not_put(cache: Cache) -> None:
    database = Database(serving=("-80", "80-"))
    assert not ReadThrough(database, cache).get("a", "…").put


def test_the_floor_of_an_old_shard_gives_way_to_the_end_of_the_new_one(cache: Cache) -> None:
    database = Database()
    reader = ReadThrough(database, cache)
    reader.get("a", "…")
    Invalidator(cache).invalidate([("a", token(2))])
    evict(cache, bucket_of("a"))
    database.serving = ("-80", "80-")
    database.move("behind", 5, "-80")
    database.log_end = token(7, "-80")
    assert not reader.get("a", "…").put
    database.move("new", 7, "-80")
    assert reader.get("a", "…").put


def test_two_changes_of_one_object_in_a_batch(cache: Cache) -> None:
    invalidator = Invalidator(cache)
    invalidator.invalidate(
        [("a", token(2)), ("a", token(4)), ("a", token(3)), ("a", token(1, "80-"))]
    )
    assert invalidator.counts.changes == 2
    assert entry(cache, "a") in (Entry(token(4)), Entry(token(1, "80-")))


def test_everything_goes_where_rows_are_not_named(cache: Cache) -> None:
    reader = ReadThrough(Database(), cache)
    assert reader.get("a", "…").put
    Invalidator(cache).clear()
    assert entry(cache, "a") is None


# Objects


def column(name: str) -> Column:
    return Column(name, Integer(), "int", nullable=False)


ORDERS = Definition(
    "shop.orders", (column("id"), column("customer"), column("n")), ("customer", "id")
)


def batch(*rows: dict[str, object]) -> pa.RecordBatch:
    common = {"shard": "-", "position": "5", "table": "shop.orders", "schema_id": ORDERS.schema_id}
    return pa.RecordBatch.from_pylist([{**common, **row} for row in rows], schema=CHANGE_SCHEMA)


def keys(objects: Objects, changes: pa.RecordBatch) -> list[str]:
    return [key for key, _ in objects.changed(changes, lambda _: ORDERS)]


def test_objects_are_addressed_by_parts_of_the_key() -> None:
    changes = batch(
        {"kind": "insert", "key": ["7", "1"]},
        {"kind": "delete", "key": ["8", "2"]},
    )
    objects = Objects({"orders": ("customer:{customer}", "order:{customer}/{id}")})
    assert keys(objects, changes) == ["customer:7", "customer:8", "order:7/1", "order:8/2"]
    assert object_key("order:{customer}/{id}", customer=7, id=1) == "order:7/1"
    assert not needs_rows(objects, {"orders": ORDERS.key})
    ((_, found), *_) = objects.changed(changes, lambda _: ORDERS)
    assert found == EventToken(0, "-", SequencePosition(5))


def test_objects_are_addressed_by_other_columns_before_and_after() -> None:
    changes = batch(
        {"kind": "update", "key": ["7", "1"], "before": ["1", "7", "3"], "after": ["1", "7", "4"]},
        {"kind": "insert", "key": ["8", "2"], "after": ["2", "8", None]},
    )
    objects = Objects({"shop.orders": ("n:{n}",)})
    assert keys(objects, changes) == ["n:3", "n:4", "n:"]
    assert needs_rows(objects, {"shop.orders": ORDERS.key})


def test_objects_are_addressed_by_a_function_of_the_row() -> None:
    changes = batch(
        {"kind": "update", "key": ["7", "1"], "before": ["1", "7", "3"], "after": ["1", "7", "14"]}
    )
    objects = Objects(function=lambda table, row: [f"{table}:{int(row['n'] or 0) // 10}"])
    assert keys(objects, changes) == ["shop.orders:0", "shop.orders:1"]


def test_a_change_that_does_not_tell_its_row_is_refused() -> None:
    changes = batch({"kind": "update", "key": ["7", "1"], "after": ["1", "7", "4"]})
    with pytest.raises(CannotFinish, match="does not tell its whole row"):
        keys(Objects({"orders": ("n:{n}",)}), changes)


def test_other_tables_are_passed_over() -> None:
    changes = batch({"kind": "insert", "key": ["7", "1"]})
    assert keys(Objects({"customers": ("customer:{id}",)}), changes) == []


def test_a_table_that_is_emptied() -> None:
    with pytest.raises(Emptied):
        keys(Objects({"orders": ("o:{id}",)}), batch({"kind": "truncate"}))
    assert keys(Objects({"customers": ("c:{id}",)}), batch({"kind": "truncate"})) == []


def test_objects_without_columns_and_with_unknown_ones_are_refused() -> None:
    with pytest.raises(UsageError, match="names no column"):
        Objects({"orders": ("all",)})
    with pytest.raises(UsageError, match="has no column colour"):
        keys(Objects({"orders": ("o:{colour}",)}), batch({"kind": "insert", "key": ["7", "1"]}))
