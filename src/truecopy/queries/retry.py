"""Failures that pass: which are tried again, and how long to wait in between.

A policy is a function from a failure to whether another try makes sense, registered under
`truecopy.queries.retries`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from truecopy.engines.queries.failure import Failure, Kind, QueryFailed

T = TypeVar("T")
Policy = Callable[[Failure], bool]

LONGEST_PAUSE = 30.0


def passing(failure: Failure) -> bool:
    """Lost connections, and what engines call temporary."""
    return failure.kind in (Kind.CONNECTION, Kind.TRANSIENT)


def retried(
    action: Callable[[], T],
    stage: Callable[[], str],
    policy: Policy,
    tries: int,
    pause: float,
    failures: list[Failure],
) -> T:
    """The answer of an action that may fail in passing; every failure is kept in `failures`.

    `stage` tells, after a failure, what it was that failed.
    """
    for attempt in range(1, tries + 1):
        try:
            return action()
        except QueryFailed as error:
            failure = replace(error.failure, stage=stage(), attempt=attempt)
            failures.append(failure)
            if attempt == tries or not policy(failure):
                raise QueryFailed(failure) from None
        time.sleep(min(pause * 2 ** (attempt - 1), LONGEST_PAUSE))
    raise AssertionError("at least one try")
