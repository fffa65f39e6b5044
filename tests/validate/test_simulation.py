"""The rules of validation, over random schedules: nothing right is called wrong, nothing wrong stays hidden."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.validate.simulated import (
    DELAY,
    INTERVAL,
    SCHEMA,
    SECOND,
    SHARD,
    TABLE,
    World,
    comparer,
    schedule,
)
from truecopy.transfer.continuous.entries import CHANGE, CLOCK, ENTRIES
from truecopy.transfer.continuous.judge import Round, Rules


@pytest.mark.parametrize("exact", [True, False], ids=["position", "lag"])
@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 400), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_every_verdict_is_true(seeds: range, exact: bool) -> None:
    for seed in seeds:
        world = schedule(seed, exact=exact)
        _no_false_error(world, seed)
        _nothing_hidden(world, seed)


def _no_false_error(world: World, seed: int) -> None:
    for event in world.told:
        if event.resolved:
            continue
        key = event.image["key"][0]
        looks = {at: right for at, right, _ in world.looks[key]}
        assert not looks[event.first_failed_at], (seed, key, event)
        assert not looks[event.last_failed_at], (seed, key, event)


def _nothing_hidden(world: World, seed: int) -> None:
    pending = {key[0] for key in world.entries.column("key").to_pylist()}
    for key in {key for key, _ in world.log[: world.read]}:
        _, last_look_right, looked_at = world.looks[key][-1]
        changed_at = max(
            at for at, (other, _) in enumerate(world.log[: world.read], 1) if other == key
        )
        assert looked_at >= changed_at, (seed, key)
        if key in pending:
            assert not world.is_right(key), (seed, key)
            assert key in world.errors, (seed, key)
        elif world.exact or world.target.get(key) == "bad":
            # By a lag alone, a wrong value that some late change may have written cannot be told from it.
            assert last_look_right, (seed, key)
    for key in world.errors:
        assert key in pending, (seed, key)
        assert not world.is_right(key), (seed, key)


def test_a_busy_row_that_is_right_is_no_error() -> None:
    world = World()
    for step in range(200):
        world.now += INTERVAL // 5
        for n in range(20):
            world.write("busy", f"v{step}-{n}")
        world.replicate(18)
        world.round(max(world.read, world.applied - 9))
    assert not world.told
    assert len(world.looks["busy"]) > 10


def test_a_busy_row_that_is_pinned_wrong_is_an_error() -> None:
    world = World()
    begun = 0
    for step in range(200):
        world.now += INTERVAL // 5
        for n in range(20):
            world.write("busy", f"v{step}-{n}")
        if step == 50:
            world.corrupt("busy", "pinned", pin=True)
            begun = world.now
        world.replicate(18)
        world.round(max(world.read, world.applied - 9))
    first = world.told[0]
    assert not first.resolved
    assert first.seen == ["busy", "pinned"]
    assert first.first_failed_at >= begun
    assert first.last_failed_at <= begun + DELAY + 2 * INTERVAL


def test_a_row_that_is_pinned_to_an_old_value_is_an_error() -> None:
    world = World()
    world.write("k", "old")
    world.replicate(1)
    world.round(1)
    world.corrupt("k", "old", pin=True)
    for step in range(60):
        world.now += INTERVAL
        world.write("k", f"new {step}")
        world.replicate(1)
        world.round(world.applied)
    assert "k" in world.errors


def test_the_clock_survives_a_new_change_and_a_restart() -> None:
    world = World()
    world.corrupt("k", "bad", pin=True)
    for step in range(12):
        world.now += INTERVAL
        world.write("k", f"v{step}")
        world.replicate(1)
        world.round(world.applied, crash=step % 3 == 1)
    assert world.errors["k"].first_failed_at == world.looks["k"][0][0]


def test_no_error_is_told_before_it_has_caught_up() -> None:
    world = World()
    world.write("k", "v")
    world.replicate(1)
    world.corrupt("k", "bad")
    for _ in range(9):
        world.now += INTERVAL
        world.round(world.applied, marks=False)
    assert not world.errors
    assert world.entries.num_rows == 1
    world.now += INTERVAL
    world.round(world.applied)
    assert world.errors["k"].first_failed_at == world.looks["k"][0][0]


def test_an_error_that_is_repaired_resolves_itself() -> None:
    world = World()
    world.write("k", "v")
    world.replicate(1)
    world.corrupt("k", "bad")
    for _ in range(9):
        world.now += INTERVAL
        world.round(world.applied)
    assert set(world.errors) == {"k"}
    world.repair("k")
    for _ in range(60):
        world.now += INTERVAL
        world.round(world.applied)
    assert not world.errors
    assert world.told[-1].resolved
    assert world.entries.num_rows == 0


def test_errors_are_looked_at_less_and_less_often() -> None:
    world = World()
    world.write("k", "v")
    world.replicate(1)
    world.corrupt("k", None)
    for _ in range(2000):
        world.now += INTERVAL
        world.round(world.applied)
    gaps = [b[0] - a[0] for a, b in zip(world.looks["k"], world.looks["k"][1:], strict=False)]
    assert gaps[-1] == 3600 * SECOND
    assert len(gaps) < 30


def failing() -> World:
    """A row whose change has failed for so long that it is an error."""
    world = World()
    world.write("k", "v")
    world.replicate(1)
    world.corrupt("k", "bad", pin=True)
    for _ in range(9):
        world.now += INTERVAL
        world.round(world.applied)
    assert set(world.errors) == {"k"}
    return world


def test_an_error_that_is_let_go_of_is_forgotten_until_its_row_changes() -> None:
    world = failing()
    world.round(world.applied, released={"k": world.read})
    assert world.entries.num_rows == 0
    world.write("k", "new")
    world.replicate(1)
    world.round(world.applied)
    assert world.entries.num_rows == 1


def test_letting_go_of_an_error_keeps_a_change_that_a_round_had_taken_up_meanwhile() -> None:
    world = failing()
    said_at = world.read  # by hand, while the round below is under way, which does not know
    world.write("k", "new")
    world.replicate(1)
    world.round(world.applied)
    world.now += INTERVAL
    let_go = world.now
    world.round(world.applied, released={"k": said_at})
    assert world.entries.num_rows == 1
    assert not world.errors  # its clock begins anew
    for _ in range(9):
        world.now += INTERVAL
        world.round(world.applied)
    assert world.errors["k"].first_failed_at == let_go


def test_letting_go_of_an_error_keeps_that_its_table_was_emptied_meanwhile() -> None:
    world = failing()
    said_at = world.read
    world.write("other", None)  # the position at which the table is emptied
    world.replicate(1)
    looks = len(world.looks["k"])
    world.round(world.applied, emptied=True)
    assert len(world.looks["k"]) == looks + 1
    world.now += INTERVAL
    world.round(world.applied, released={"k": said_at})
    (kind,) = world.entries.column("kind").to_pylist()
    assert kind == "delete"


def test_an_error_that_is_let_go_of_is_not_told_again_by_an_earlier_look() -> None:
    world = failing()
    world.write("k", "new")
    world.write("other", "v")
    world.replicate(2)
    world.now += INTERVAL
    world.round(world.applied - 1)  # it sees a later state, and cannot judge it yet
    before = len(world.told)
    world.now += INTERVAL
    world.round(world.applied, released={"k": world.read})
    assert [event.resolved for event in world.told[before:]] == [True]
    assert world.entries.num_rows == 0


def test_a_replica_that_is_late_in_one_domain_is_not_judged_by_too_old_a_change() -> None:
    """It applies domain 1 up to its 20th transaction before the 8th of domain 0, which the source had earlier."""
    log = [("0-1-8,1-1-10", "ten"), ("0-1-9,1-1-20", "twenty"), ("0-1-10,1-1-30", "thirty")]
    image = {"shard": SHARD, "table": TABLE, "slice": 0, "schema_id": SCHEMA, "kind": "update"}
    old = {**image, "key": ["k"], "row": ["k", "old"], "position": "0-1-5,1-1-5"}
    entry = {**old, **dict.fromkeys(CLOCK.names, 0), "is_error": False}
    forms = comparer().forms(pa.chunked_array([[SCHEMA]])).to_pylist()
    sight = {"seen_at": "0-1-7,1-1-20", "seen_time": 1, "seen_exact": True, "seen_schema": forms[0]}
    changes = [
        {**old, "row": ["k", value], "position": at, "commit_order": n, "seq": 0, "step": 0}
        for n, (at, value) in enumerate(log)
    ]
    rules = Rules(10 * SECOND, INTERVAL, DELAY, DELAY, {SHARD: log[-1][0]})

    def failed(seen: str) -> bool:
        looked = pa.Table.from_pylist([{**entry, **sight, "seen_row": ["k", seen]}], schema=ENTRIES)
        done = Round(looked, pa.Table.from_pylist(changes, schema=CHANGE), rules, comparer())
        return bool(done.left().column("first_failed_at").to_pylist()[0])

    assert not failed("twenty")
    assert failed("thirty")
    assert failed("wrong")
