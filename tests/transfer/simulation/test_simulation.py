"""Thousands of random schedules of a transfer, by the rules and with one rule broken.

A schedule is decided by its seed: what is printed with a failure runs it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.transfer.simulation.attempts import Attempt
from tests.transfer.simulation.driver import REPLICATE, Driver
from tests.transfer.simulation.rules import Broken, Case
from tests.transfer.simulation.source import HALVES, WHOLE, Change
from tests.transfer.simulation.target import Target
from tests.transfer.simulation.world import (
    CAUGHT,
    EQUAL,
    FALSE_ALARM,
    UNDETECTED,
    Outcome,
    Schedule,
    run_schedule,
)
from truecopy.transfer.ledger import Overtaken

SCHEDULES = 3000
DELIVERIES = "exactly-once", "at-least-once", "at-most-once"
VERIFIERS = "none", "none", "checksum", "iterative", "inline", "full"

WHERE: dict[Broken, dict[str, Any]] = {
    # Positions alone tell who is late, until two shards bring changes of the same row.
    Broken.NO_EPOCH: {"reshards": True},
    Broken.OPENED_BY_ANYBODY: {"reshards": True, "consistency": "row"},
    Broken.UNFENCED_ROWS: {"delivery": "at-most-once"},
    Broken.SET_FOR_COUNT: {"verify": "inline", "has_faults": True},
    Broken.UNSEEN_REVERIFIED: {"verify": "inline", "has_faults": True},
    Broken.LAST_WRITES_UNWATCHED: {"verify": "full", "has_faults": True},
    Broken.NO_PASS_AT_CUTOVER: {"verify": "inline", "has_faults": True},
    Broken.SLICED_BY_SPELLING: {"consistency": "row", "has_names": True},
    Broken.MERGED_APART: {"consistency": "table", "has_names": True},
}
"""What a schedule must be like for a rule to matter; the others matter anywhere."""


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.close()


def draw_case(seed: int) -> Case:
    rng = Random(seed)
    verify = rng.choice(VERIFIERS)
    return Case(
        rng.choice(DELIVERIES),
        rng.choice(("row", "table", "transaction")),
        verify,
        has_faults=verify != "none" and rng.random() < 0.5,
        reshards=rng.random() < 0.4,
        has_names=rng.random() < 0.3,
    )


def check(schedules: int, target: Target, **given: Any) -> list[Outcome]:
    """Runs schedules by the rules; each must end equal, or be stopped for a good reason."""
    outcomes = []
    for seed in range(schedules):
        case = replace(draw_case(seed), **given)
        outcome = run_schedule(seed, case, target)
        assert not outcome.is_flaw, f"run_schedule({seed}, {case}, target) ends in {outcome}"
        outcomes.append(outcome)
    return outcomes


def find(broken: Broken, most: int, target: Target) -> int:
    """How many schedules it takes until a broken rule makes a difference that nobody notices."""
    for seed in range(most):
        case = replace(draw_case(seed), broken=broken, **WHERE.get(broken, {}))
        if run_schedule(seed, case, target).kind == UNDETECTED:
            return seed + 1
    raise AssertionError(f"{broken}: no harm was seen in {most} schedules")


def test_no_schedule_ends_in_an_undetected_difference(target: Target) -> None:
    kinds = [outcome.kind for outcome in check(SCHEDULES, target)]
    # That nothing was caught, or everything, would say that the schedules are no good.
    assert 0.05 < kinds.count(CAUGHT) / SCHEDULES < 0.3
    assert kinds.count(EQUAL) + kinds.count(CAUGHT) == SCHEDULES


def test_without_faults_every_schedule_ends_equal(target: Target) -> None:
    for delivery in ("exactly-once", "at-least-once"):
        outcomes = check(SCHEDULES // 6, target, delivery=delivery, has_faults=False)
        assert {outcome.kind for outcome in outcomes} == {EQUAL}


def test_exactly_once_gives_each_row_without_a_key_once(target: Target) -> None:
    outcomes = check(
        SCHEDULES // 3,
        target,
        delivery="exactly-once",
        verify="none",
        has_faults=False,
        reshards=False,
    )
    assert sum(outcome.lost + outcome.doubled for outcome in outcomes) == 0


def test_at_least_once_gives_rows_twice_and_loses_none(target: Target) -> None:
    outcomes = check(
        SCHEDULES // 3,
        target,
        delivery="at-least-once",
        verify="none",
        has_faults=False,
        has_transactions=False,
    )
    assert sum(outcome.lost for outcome in outcomes) == 0
    assert sum(outcome.doubled for outcome in outcomes) > 0


def test_at_most_once_loses_rows_and_gives_none_twice(target: Target) -> None:
    outcomes = check(
        SCHEDULES // 3,
        target,
        delivery="at-most-once",
        verify="none",
        has_faults=False,
        reshards=False,
    )
    assert sum(outcome.doubled for outcome in outcomes) == 0
    assert sum(outcome.lost for outcome in outcomes) > 0


@pytest.mark.parametrize("verify", ["checksum", "iterative", "inline", "full"])
def test_somebody_else_writes_and_is_found_out(verify: str, target: Target) -> None:
    outcomes = check(SCHEDULES // 10, target, verify=verify, has_faults=True)
    assert any("not ours" in outcome.reason for outcome in outcomes) == (verify == "full")
    assert any(outcome.kind == CAUGHT for outcome in outcomes)


@pytest.mark.parametrize(
    "broken", [rule for rule in Broken if rule is not Broken.OPEN_LINES], ids=lambda rule: rule.name
)
def test_breaking_a_rule_shows(broken: Broken, target: Target) -> None:
    seen = find(broken, 2 * SCHEDULES, target)
    print(f"{broken.value}: seen after {seen} schedules")  # noqa: T201 - shown by `pytest -rP`


def test_a_row_that_the_source_does_not_show_yet_would_be_a_false_alarm(target: Target) -> None:
    """The target rightly holds what the log has: comparing it with what can be read now is of no use."""
    rules: dict[str, Any] = {
        "verify": "inline",
        "has_faults": False,
        "delivery": "exactly-once",
    }
    outcomes = [
        run_schedule(seed, replace(draw_case(seed), broken=broken, **rules), target)
        for broken in (Broken.UNSEEN_REVERIFIED, None)
        for seed in range(SCHEDULES // 10)
    ]
    half = len(outcomes) // 2
    assert any(outcome.kind == FALSE_ALARM for outcome in outcomes[:half])
    assert {outcome.kind for outcome in outcomes[half:]} == {EQUAL}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_schedules(target: Target) -> None:
    check(100_000, target)


@pytest.mark.parametrize("broken", [None, Broken.OPENED_BY_ANYBODY])
def test_a_driver_that_was_replaced_opens_no_line(broken: Broken | None, target: Target) -> None:
    target.clear()
    schedule = Schedule(Random(1), Case("exactly-once", "row", "none", broken=broken), target)
    source = schedule.source
    late = Driver(schedule)
    work_until(lambda: late.phase == REPLICATE, late, schedule)
    source.reshard()
    newer = Driver(schedule)
    work_until(lambda: WHOLE not in newer.offset, newer, schedule)
    late.is_late = True
    source.shards[WHOLE].commit([Change(7, 1001)], is_visible=True)
    for value in (1001, 1002):
        source.shards[HALVES[1]].commit([Change(7, value)], is_visible=True)
    work_until(newer.is_drained, newer, schedule)
    with pytest.raises(Overtaken) if broken is None else nullcontext():
        work_until(lambda: target.row(7) == 1001, late, schedule)
    assert target.row(7) == (1002 if broken is None else 1001)


@pytest.mark.parametrize("broken", [None, Broken.OPEN_LINES])
def test_nothing_is_written_under_the_lines_of_a_shard_that_was_left(
    broken: Broken | None, target: Target
) -> None:
    """It takes so much to happen at once that random schedules hardly ever come upon it."""
    target.clear()
    schedule = Schedule(Random(1), Case("at-most-once", "row", "none", broken=broken), target)
    source = schedule.source
    driver = Driver(schedule)
    work_until(lambda: driver.phase == REPLICATE, driver, schedule)
    source.shards[WHOLE].commit([Change(7, 1001)], is_visible=True)
    driver.go_on()
    late = next(attempt for attempt in schedule.attempts if not attempt.is_over)
    late.go_on()
    late.go_on()  # its line is moved, and its rows are to come
    schedule.attempts = [Attempt(late.work)]
    work_until(driver.is_drained, driver, schedule)
    source.reshard()
    source.shards[HALVES[1]].commit([Change(7, 1002)], is_visible=True)
    work_until(driver.is_drained, driver, schedule)
    late.go_on()
    assert target.row(7) == (1002 if broken is None else 1001)


def work_until(is_reached: Callable[[], bool], driver: Driver, schedule: Schedule) -> None:
    for _ in range(1000):
        if is_reached():
            return
        driver.go_on()
        for attempt in schedule.attempts:
            if not attempt.is_over:
                attempt.go_on()
    raise AssertionError("nothing moves any more")
