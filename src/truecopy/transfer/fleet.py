"""The legs of a keyspace's task, run together, in steps.

All legs copy before any replicates, since a shard's log must have the whole copy before the first record of
an origin. They are replayed one after the other; the last one to a target makes its indexes, when no row
there goes back in time any more. Then all replicate, each in a thread of the driver.

A row may move from one shard to another: deleted there, inserted here. Between shards there is no order, so what could
go wrong where both legs have the same target, and why it does not:

- The insert is in, and then the delete comes: a leg deletes only rows of its own range, and this one is not.
- The insert comes before the delete: the old row has the key, and the new one is refused. The leg tries again after
  the other one went on, from where the ledger stands.
- Rows moved both ways, and each leg waits for what the other deletes in the same transaction as it inserts: whoever is
  refused takes out first what its batch deletes in the end (`apply.Withdrawing`).
- The row moved on before its insert was applied, and the other leg was quicker: the insert is refused until it
  comes in one batch with the leg's own delete, of which nothing is left to be inserted. It does when the leg reads on,
  up to `max-bytes` of the stream.
- It moved between the copies of two legs, the first of which has the old row: that one is replayed, and then the copy
  goes on.

A row that stays in the way, since somebody else wrote it, or its shard is not the one that it belongs to, ends the run.
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
from truecopy.model.errors import KeyTaken
from truecopy.transfer.continuous.together import validating
from truecopy.transfer.ledger import REPLICATE, SNAPSHOT, Ledger
from truecopy.transfer.progress import Progress
from truecopy.transfer.run import Listener, RunReport, TableState, Transfer
from truecopy.transfer.settings import Settings

_TURN_SECONDS = 1.0
_ROUNDS = 5
"""How often the same rows may be in the way of a leg, while no leg goes on, before it gives up."""
_PATIENCE_SECONDS = 300.0
"""For how long a leg lets the others go on before it counts that."""
_PHASES = (SNAPSHOT, "replay", REPLICATE)

_Stands = Callable[[], list[object]]


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
        for number, leg in enumerate(self._legs):
            if snapshot_only or _phase(leg) == SNAPSHOT:
                reports[leg.task] = self._copy(leg, self._legs[:number])
        if not snapshot_only:
            behind = [leg for leg in self._legs if until_caught_up or _phase(leg) != REPLICATE]
            reports |= self._catch_up(behind)
        if not snapshot_only and not until_caught_up:
            reports |= self._in_turn() if self._is_one_file() else self._replicate()
        return _joined(self._name, reports, time.monotonic() - begun)

    @property
    def _name(self) -> str:
        leg = self._legs[0].leg
        return leg.task if leg else self._legs[0].task

    def _copy(self, leg: Settings, copied: Sequence[Settings]) -> RunReport:
        """The copy of a leg, for which those before it are replayed where they hold rows that it has now."""
        told = ""
        while True:
            try:
                return self._transfer(leg).run(snapshot_only=True)
            except KeyTaken as error:
                if str(error) == told:
                    raise
                told = str(error)
            self._catch_up(copied)

    def _catch_up(self, legs: Sequence[Settings]) -> dict[str, RunReport]:
        """Leg after leg, and all of them again while one is refused a row that another may let go of."""
        reports: dict[str, RunReport] = {}
        refused = _Refused()
        while True:
            refused.next_round()
            for leg in legs:
                try:
                    report = self._transfer(leg).run(until_caught_up=True)
                except KeyTaken as error:
                    refused.note(error)
                else:
                    reports[leg.task] = _after(reports.get(leg.task), report)
            if not refused.errors:
                return reports
            refused.require_news()

    def _transfer(self, leg: Settings) -> Transfer:
        """One run of a leg, which makes the indexes if the other legs to its target have passed their replay."""
        assert leg.leg is not None
        is_last = all(_phase(one) == REPLICATE for one in self._beside(leg))
        return self._told(replace(leg, leg=replace(leg.leg, last=is_last)))

    def _told(self, leg: Settings) -> Transfer:
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

    def _beside(self, leg: Settings) -> list[Settings]:
        """The other legs that have the same target."""
        return [one for one in self._legs if one.target == leg.target and one.task != leg.task]

    def _in_turn(self) -> dict[str, RunReport]:
        """A file has one writer: leg after leg, until this thread is interrupted."""
        with validating(self._legs, self._listener.said, is_new=False):
            while True:
                self._catch_up(self._legs)
                time.sleep(_TURN_SECONDS)

    def _replicate(self) -> dict[str, RunReport]:
        """All legs, until one of them ends or this thread is interrupted; then the others end, too."""
        transfers = {leg.task: self._transfer(leg) for leg in self._legs}
        with ThreadPoolExecutor(len(transfers), "leg") as threads:
            running = {
                leg.task: threads.submit(
                    _keep_up,
                    transfers[leg.task],
                    partial(_stands, [leg]),
                    partial(_stands, self._beside(leg)),
                )
                for leg in self._legs
            }
            try:
                ended = _first_ended(running.values())
            finally:
                for transfer in transfers.values():
                    transfer.stop()
        for future in ended:
            future.result()  # what made the others stop is what went wrong
        return {name: future.result() for name, future in running.items()}


class _Refused:
    """Rows that were in the way, round after round."""

    def __init__(self) -> None:
        self.errors: list[KeyTaken] = []
        self._told: list[str] = []
        self._times = 0

    def next_round(self) -> None:
        self.errors = []

    def note(self, error: KeyTaken) -> None:
        self.errors.append(error)

    def require_news(self) -> None:
        """Raises the last one where the same rows are in the way for too long."""
        told = list(map(str, self.errors))
        self._times = self._times + 1 if told == self._told else 1
        self._told = told
        if self._times == _ROUNDS:
            raise self.errors[-1]


def _keep_up(transfer: Transfer, own: _Stands, of_others: _Stands) -> RunReport:
    """Replicates; a row that is in the way may go when another leg goes on, however far behind that is.

    Args:
        transfer: The leg.
        own: Where it stands.
        of_others: Where those stand that have the same target.
    """
    told, tries, since = "", 0, time.monotonic()
    stood = own(), of_others()
    while True:
        try:
            return transfer.run()
        except KeyTaken as error:
            stands = own(), of_others()
            if str(error) != told or stands[0] != stood[0]:
                told, tries, since = str(error), 0, time.monotonic()
            if stands[1] == stood[1] or time.monotonic() - since > _PATIENCE_SECONDS:
                tries += 1
            if tries == _ROUNDS:
                raise
            stood = stands
        time.sleep(_TURN_SECONDS)


def _stands(legs: Sequence[Settings]) -> list[object]:
    """How far these legs have come."""
    found: list[object] = []
    for leg in legs:
        with pool.lease(parse_endpoint(leg.target)) as session:
            found.append(Ledger(cast(Any, session), leg.task).progress())
    return found


def _after(earlier: RunReport | None, report: RunReport) -> RunReport:
    """The report of a leg that ran again, with the changes of both runs."""
    if earlier is None:
        return report
    tables = {
        name: replace(state, changes_applied=state.changes_applied + before.changes_applied)
        for name, state in report.tables.items()
        if (before := earlier.tables.get(name, TableState()))
    }
    return replace(report, tables=tables)


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
