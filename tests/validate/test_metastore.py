"""What the metastore promises: all of a round or nothing, and only from the one who has the task."""

from __future__ import annotations

from pathlib import Path

import pytest

from truecopy.metastore.validation_errors import IGNORED, NEW, RESOLVED, Found
from truecopy.metastore.validations import PendingPart, TakenOver, Validations
from truecopy.model.errors import UsageError

AT = {"s": ("0-1-5", 5)}


@pytest.fixture
def store(tmp_path: Path) -> Validations:
    return Validations(f"sqlite:///{tmp_path / 'state.db'}")


def found(name: str, **more: object) -> Found:
    return Found(name, "t", kind="differs", key={"id": name}, **more)  # type: ignore[arg-type]


def part(name: str, due_at: int = 1) -> PendingPart:
    return PendingPart(name, b"payload", {"update": 2}, 0, due_at, {"update": 1})


def test_a_round_is_stored_whole(store: Validations) -> None:
    epoch = store.claim("x", "full", AT).epoch
    later = {"s": ("0-1-9", 9)}
    store.store("x", epoch, later, {"insert": 3}, ["a"], [part("a")], [found("1")], caught_up=True)
    standing = store.find("x")
    assert standing is not None
    assert standing.position == later
    assert standing.processed == {"insert": 3, "update": 0, "delete": 0}
    assert standing.caught_up
    assert store.pending("x").rows == {"insert": 0, "update": 2, "delete": 0}
    assert store.pending("x").failed == {"insert": 0, "update": 1, "delete": 0}
    assert [error.key for error in store.errors.of("x")] == [{"id": "1"}]


def test_an_older_process_stores_nothing(store: Validations) -> None:
    old = store.claim("x", "full", AT).epoch
    new = store.claim("x", "full", AT).epoch
    with pytest.raises(TakenOver):
        store.store("x", old, AT, {"insert": 3}, ["a"], [part("a")], [found("1")], caught_up=True)
    assert not list(store.errors.of("x"))
    assert store.pending("x").total == 0
    store.store("x", new, AT, {}, [], [], [], caught_up=False)


def test_beginning_elsewhere_takes_over_in_the_same_step(store: Validations) -> None:
    old = store.claim("x", "full", AT).epoch
    store.store("x", old, {}, {}, ["a"], [part("a")], [], caught_up=True)
    later = {"s": ("0-1-9", 9)}
    standing = store.claim_anew("x", "full", later)
    assert (standing.position, standing.caught_up) == (later, False)
    assert store.pending("x").total == 0
    # A process that ran until then would put it back to where it was.
    with pytest.raises(TakenOver):
        store.store("x", old, AT, {}, ["a"], [part("a")], [], caught_up=True)
    store.store("x", standing.epoch, {}, {}, ["a"], [part("a")], [], caught_up=True)
    back = store.claim_back("x", "fast", AT)
    assert (back.position, back.mode, store.pending("x").total) == (AT, "fast", 2)


def test_beginning_elsewhere_is_refused_while_errors_are_open(store: Validations) -> None:
    epoch = store.claim("x", "full", AT).epoch
    store.store("x", epoch, {}, {}, ["a"], [part("a")], [found("1")], caught_up=True)
    with pytest.raises(UsageError, match="1 errors of x are open"):
        store.claim_anew("x", "full", {"s": ("0-1-9", 9)})
    # The one that runs goes on.
    store.store("x", epoch, {}, {}, [], [], [], caught_up=True)
    assert store.pending("x").total == 2


def test_a_failure_on_the_way_leaves_everything_as_it_was(store: Validations) -> None:
    epoch = store.claim("x", "full", AT).epoch

    def broken() -> object:
        yield part("a")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        store.store(
            "x",
            epoch,
            {"s": ("0-1-9", 9)},
            {"insert": 3},
            ["a"],
            broken(),  # type: ignore[arg-type]
            [],
            caught_up=True,
        )
    standing = store.find("x")
    assert standing is not None
    assert standing.position == AT
    assert standing.processed["insert"] == 0
    assert store.pending("x").total == 0


def test_an_error_is_there_once_and_comes_anew_after_it_was_resolved(store: Validations) -> None:
    epoch = store.claim("x", "full", AT).epoch
    for at in (1, 2, 3):
        event = found("1", first_failed_at=1, last_failed_at=at)
        store.store("x", epoch, AT, {}, [], [], [event], caught_up=True)
    (error,) = store.errors.of("x")
    assert (error.first_failed_at, error.last_failed_at, error.status) == (1, 3, NEW)
    gone = Found("1", "t", resolved=True)
    store.store("x", epoch, AT, {}, [], [], [gone], caught_up=True)
    store.store("x", epoch, AT, {}, [], [], [found("1")], caught_up=True)
    assert [error.status for error in store.errors.of("x")] == [RESOLVED, NEW]


def test_wishes_wait_for_the_validator(store: Validations) -> None:
    epoch = store.claim("x", "full", AT).epoch
    store.store("x", epoch, AT, {}, [], [], [found(str(n)) for n in range(4)], caught_up=True)
    one, two, three, four = (error.id for error in store.errors.of("x"))
    assert store.errors.ignore("x", [one]) == 1
    assert store.errors.resolve("x", [two]) == 1
    assert store.errors.clear("x", [three]) == 1
    assert store.errors.recheck("x", [four]) == 1
    assert store.errors.counts("x") == {NEW: 1, IGNORED: 1, RESOLVED: 1}
    wishes = store.errors.wishes("x")
    assert wishes.asked == {"3"}
    assert wishes.released == {"1": {"s": "0-1-5"}, "2": {"s": "0-1-5"}}
    store.store("x", epoch, AT, {}, [], [], [], caught_up=True, obeyed=wishes)
    assert not store.errors.wishes("x")
    assert [error.id for error in store.errors.of("x")] == [one, two, four]


def test_a_round_that_was_under_way_does_not_bring_back_what_was_settled(
    store: Validations,
) -> None:
    epoch = store.claim("x", "full", AT).epoch
    both = [found("1"), found("2")]
    store.store("x", epoch, AT, {}, [], [], both, caught_up=True)
    one, two = (error.id for error in store.errors.of("x"))
    store.errors.resolve("x", [one])
    store.errors.clear("x", [two])
    store.store("x", epoch, AT, {}, [], [], both, caught_up=True)  # it had looked before
    assert [(error.id, error.status) for error in store.errors.of("x")] == [(one, RESOLVED)]
    obeyed = store.errors.wishes("x")
    store.store("x", epoch, AT, {}, [], [], [found("1")], caught_up=True, obeyed=obeyed)
    assert [error.status for error in store.errors.of("x")] == [RESOLVED, NEW]


def test_what_is_released_is_what_was_taken_up_when_it_was_asked_for(store: Validations) -> None:
    epoch = store.claim("x", "full", AT).epoch
    store.store("x", epoch, AT, {}, [], [], [found("1")], caught_up=True)
    store.errors.resolve("x", None)
    later = {"s": ("0-1-9", 9)}
    store.store("x", epoch, later, {}, [], [], [found("1")], caught_up=True)  # it had begun before
    assert store.errors.wishes("x").released == {"1": {"s": "0-1-5"}}


def test_wishes_that_come_while_a_round_follows_others_are_not_forgotten(
    store: Validations,
) -> None:
    epoch = store.claim("x", "full", AT).epoch
    store.store("x", epoch, AT, {}, [], [], [found("1"), found("2")], caught_up=True)
    one, two = (error.id for error in store.errors.of("x"))
    store.errors.recheck("x", None)
    followed = store.errors.wishes("x")
    assert store.errors.clear("x", [one]) == 1
    assert store.errors.recheck("x", [two]) == 1
    store.store("x", epoch, AT, {}, [], [], [], caught_up=True, obeyed=followed)
    assert store.errors.wishes("x").released.keys() == {"1"}
    assert store.errors.wishes("x").asked == {"2"}


def test_only_parts_that_are_due_or_named_are_read(store: Validations) -> None:
    epoch = store.claim("x", "full", AT).epoch
    parts = [part("a", 10), part("b", 20), part("b", 5), part("c", 30)]
    store.store("x", epoch, AT, {}, "abc", parts, [], caught_up=True)
    assert sorted(name for name, _ in store.parts("x", [], 10)) == ["a", "b", "b"]
    assert sorted(name for name, _ in store.parts("x", ["c"], 0)) == ["c"]
    store.store("x", epoch, AT, {}, "b", [], [], caught_up=True)
    assert sorted(name for name, _ in store.parts("x", [], 99)) == ["a", "c"]


def test_deleting_forgets_everything(store: Validations) -> None:
    epoch = store.claim("x", "full", AT).epoch
    store.store("x", epoch, AT, {}, ["a"], [part("a")], [found("1")], caught_up=True)
    assert store.delete("x")
    assert store.find("x") is None
    assert not list(store.errors.of("x"))
    with pytest.raises(TakenOver):
        store.hear("x", epoch, {})
