"""The legs of a keyspace's task, run together, in steps.

All legs copy before any replicates, since a shard's log must have the whole copy before the first record of
an origin. They are replayed one after the other; the last one to a target makes its indexes, when no row
there goes back in time any more. Then all replicate, each in a thread of the driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any, cast

from truecopy.engines import pool
from truecopy.model.endpoint import parse_endpoint
from truecopy.transfer.continuous.together import validating
from truecopy.transfer.ledger import REPLICATE, SNAPSHOT, Ledger
from truecopy.transfer.progress import Progress
from truecopy.transfer.run import Listener, RunReport, TableState, Transfer
from truecopy.transfer.settings import Settings

_TURN_SECONDS = 1.0
_PHASES = (SNAPSHOT, "replay", REPLICATE)


class Fleet:
    """One run of a task of several legs."""

    def __init__(self, legs: Sequence[Settings], listener: Listener | None = None) -> None:
        self._legs = legs
        self._listener = listener or Listener()
        self._progress: dict[str, Progress] = {}

    def run(self, *, snapshot_only: bool = False, until_caught_up: bool = False) -> RunReport:
        """Goes on where the ledgers say that the legs stand, to the end that was asked for."""
        begun = time.monotonic()
        reports: dict[str, RunReport] = {}
        for leg in self._legs:
            if snapshot_only or _phase(leg) == SNAPSHOT:
                reports[leg.task] = self._transfer(leg).run(snapshot_only=True)
        for leg in self._legs:
            if until_caught_up or (not snapshot_only and _phase(leg) != REPLICATE):
                reports[leg.task] = self._transfer(leg).run(until_caught_up=True)
        if not snapshot_only and not until_caught_up:
            reports |= self._in_turn() if self._is_one_file() else self._replicate()
        return _joined(self._name, reports, time.monotonic() - begun)

    @property
    def _name(self) -> str:
        leg = self._legs[0].leg
        return leg.task if leg else self._legs[0].task

    def _transfer(self, leg: Settings) -> Transfer:
        listener = Listener(
            said=lambda line: self._listener.said(f"{leg.task}: {line}"),
            progress=partial(self._hear, leg.task),
        )
        return Transfer(leg, listener)

    def _hear(self, leg: str, progress: Progress) -> None:
        self._progress = {**self._progress, leg: progress}
        self._listener.progress(joined_progress(self._name, self._progress))

    def _is_one_file(self) -> bool:
        with pool.lease(parse_endpoint(self._legs[0].target)) as target:
            return target.driver_local

    def _in_turn(self) -> dict[str, RunReport]:
        """A file has one writer: leg after leg, until this thread is interrupted."""
        with validating(self._legs, self._listener.said, is_new=False):
            while True:
                for leg in self._legs:
                    self._transfer(leg).run(until_caught_up=True)
                time.sleep(_TURN_SECONDS)

    def _replicate(self) -> dict[str, RunReport]:
        """All legs, until one of them ends or this thread is interrupted; then the others end, too."""
        transfers = {leg.task: self._transfer(leg) for leg in self._legs}
        with ThreadPoolExecutor(len(transfers), "leg") as threads:
            running = {name: threads.submit(one.run) for name, one in transfers.items()}
            try:
                ended = _first_ended(running.values())
            finally:
                for transfer in transfers.values():
                    transfer.stop()
        for future in ended:
            future.result()  # what made the others stop is what went wrong
        return {name: future.result() for name, future in running.items()}


def joined_progress(task: str, legs: Mapping[str, Progress]) -> Progress:
    """How far all legs are together: as far as the one that is furthest behind."""
    told = list(legs.values())
    left = [one.seconds_left for one in told if one.seconds_left is not None]
    lags = [one.lag_seconds for one in told if one.lag_seconds is not None]
    return Progress(
        task,
        min((one.phase for one in told), key=_order),
        max(one.epoch for one in told),
        waits=next((one.waits for one in told if one.waits), ""),
        rate=sum(one.rate for one in told),
        seconds_left=sum(left) if left else None,
        lag_seconds=max(lags, default=None),
        tables={f"{leg} {name}": t for leg, one in legs.items() for name, t in one.tables.items()},
    )


def _first_ended(futures: Iterable[Future[RunReport]]) -> set[Future[RunReport]]:
    waiting = list(futures)
    while True:
        # In turns, since a signal is heard of between two of them only.
        done, _ = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
        if done:
            return done


def _phase(leg: Settings) -> str:
    with pool.lease(parse_endpoint(leg.target)) as session:
        ledger = Ledger(cast(Any, session), leg.task)
        ledger.create()
        line = ledger.find()
    return line.phase if line else SNAPSHOT


def _joined(task: str, legs: Mapping[str, RunReport], seconds: float) -> RunReport:
    """One report: rows and changes of a table summed up, its version by leg."""
    tables: dict[str, TableState] = {}
    for leg, report in legs.items():
        for name, state in report.tables.items():
            known = tables.get(name, TableState(version={}))
            tables[name] = replace(
                known,
                rows_copied=known.rows_copied + state.rows_copied,
                changes_applied=known.changes_applied + state.changes_applied,
                version={**(known.version or {}), leg: state.version},
            )
    states = [report.state for report in legs.values()]
    lags = [report.lag_seconds for report in legs.values() if report.lag_seconds is not None]
    return RunReport(
        task,
        min(states, key=_order),
        max(lags, default=None),
        tables,
        seconds,
        sum(report.rows_waiting for report in legs.values()),
        sum(report.refused for report in legs.values()),
    )


def _order(phase: str) -> int:
    return _PHASES.index(phase) if phase in _PHASES else len(_PHASES)


Run = Callable[..., RunReport]


def runner(legs: Sequence[Settings], listener: Listener) -> Run:
    """What runs a task: a transfer, or a fleet of them."""
    return Transfer(legs[0], listener).run if len(legs) == 1 else Fleet(legs, listener).run
