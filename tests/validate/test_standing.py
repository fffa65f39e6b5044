"""What is told of a validation: how far it is behind, and that nobody knows once its process is gone."""

from __future__ import annotations

import time
from dataclasses import replace

from truecopy.metastore.validations import RUNNING, Pending, Standing
from truecopy.transfer.continuous.standing import Validation, prometheus


def standing(report: dict[str, object]) -> Standing:
    now = time.time_ns() // 1000
    return Standing(
        task="shop",
        epoch=1,
        state=RUNNING,
        message="",
        stop_asked=False,
        mode="full",
        position={"s": ("0-1-5", now)},
        processed={"insert": 1, "update": 0, "delete": 0},
        caught_up=True,
        started_at=now,
        heard_at=now,
        report=report,
    )


def _validation(report: dict[str, object]) -> Validation:
    return Validation(
        standing(report), Pending({"insert": 3}, {"insert": 2}, 0, 0, None), {"new": 0}, {}
    )


def test_the_lag_is_told_in_seconds_and_in_transactions() -> None:
    report = {"lag_seconds": 2.5, "checked": {"s": "0-1-5"}, "log_end": {"s": "0-1-9"}}
    found = _validation(report)
    assert (found.lag_seconds, found.lag_positions) == (2.5, 4)
    figures = prometheus([found])
    assert 'truecopy_validate_lag_seconds{task="shop"} 2.5' in figures
    assert 'truecopy_validate_lag_positions{task="shop"} 4' in figures


def test_rows_that_were_seen_wrong_are_counted_beside_all_that_are_pending() -> None:
    found = _validation({})
    assert (found.plain()["pending"], found.plain()["failed"]) == ({"insert": 3}, {"insert": 2})
    figures = prometheus([found])
    assert 'truecopy_validate_pending_rows{task="shop",kind="insert"} 3' in figures
    assert 'truecopy_validate_failed_rows{task="shop",kind="insert"} 2' in figures


def test_nobody_knows_the_lag_of_a_process_that_is_gone() -> None:
    report = {"lag_seconds": 0.0, "checked": {"s": "0-1-5"}, "log_end": {"s": "0-1-5"}}
    found = _validation(report)
    silent = replace(found.standing, heard_at=found.standing.heard_at - 60_000_000)
    lost = replace(found, standing=silent)
    assert (lost.lag_seconds, lost.lag_positions, lost.state) == (None, None, "stopped")
    assert "its process is gone" in lost.message
