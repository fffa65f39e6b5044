"""Sees to it that every task of which something is wanted has a keeper; as many supervisors as you like may do so."""

from __future__ import annotations

import logging
import random
import subprocess
import threading
import time
from collections.abc import Sequence

from sqlalchemy.exc import SQLAlchemyError

from truecopy.metastore.events import Events
from truecopy.metastore.leases import LeaseLine, Leases
from truecopy.metastore.task_runs import TaskRuns
from truecopy.metastore.tasks import RUNNING, Tasks
from truecopy.tasks.keeper import LEASE_SECONDS, start_keeper
from truecopy.tasks.processes import ProcessId

EVENTS_DAYS, AUDIT_DAYS = 90.0, 365.0
_TURN_SECONDS = 1.0
_PRUNE_SECONDS = 3600.0
_GRACE_SECONDS = 60.0
"""A keeper that was started takes its time to take the lease."""

_PAUSE_SECONDS = 10.0
"""After a keeper that failed by itself."""

_DICE = random.SystemRandom()
_log = logging.getLogger("truecopy.server")


class Supervisor:
    """Starts keepers. It remembers nothing that matters: the metastore does.

    Args:
        program: What the commands of tasks are of.
        lease_seconds: For how long keepers hold their leases.
        events_days, audit_days: For how long events and the audit log are kept; 0 for ever.
    """

    def __init__(
        self,
        program: Sequence[str] | None = None,
        lease_seconds: float = LEASE_SECONDS,
        events_days: float = EVENTS_DAYS,
        audit_days: float = AUDIT_DAYS,
    ) -> None:
        self._program = program
        self._seconds = lease_seconds
        self._days = events_days, audit_days
        self._tasks, self._runs, self._leases = Tasks(), TaskRuns(), Leases()
        self._events, self._pruned_at = Events(), float("-inf")
        self._started: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        self._end = threading.Event()

    def watch(self) -> None:
        """Looks again and again, until it is closed."""
        while not self._end.is_set():
            try:
                self.look()
                self._prune()
            except SQLAlchemyError as error:
                _log.warning("the metastore cannot be used: %s", type(error).__name__)
            # Two supervisors that started together do not stay in step.
            self._end.wait(_TURN_SECONDS * _DICE.uniform(0.75, 1.25))

    def close(self) -> None:
        """Ends the looking; keepers go on."""
        self._end.set()

    def look(self) -> None:
        """Starts the keepers that are missing now."""
        leases = self._leases.lines()
        asked = {(run.task, run.task_kind) for run in self._runs.open() if not run.started_at}
        for line in self._tasks.all():
            if line.wanted != RUNNING and (line.name, line.kind) not in asked:
                continue
            if not self._is_kept(leases.get(line.lease)) and not self._is_starting(line.lease):
                _log.info("starts a keeper", extra={"task": line.name})
                process = start_keeper(line.name, line.kind, self._program, self._seconds)
                self._started[line.lease] = process, time.monotonic()
        self._reap()

    def _prune(self) -> None:
        if time.monotonic() - self._pruned_at > _PRUNE_SECONDS:
            self._pruned_at = time.monotonic()
            self._events.prune(*self._days)

    def _is_kept(self, lease: LeaseLine | None) -> bool:
        if lease is None or lease.seconds_left <= 0:
            return False
        holder = ProcessId.parse(lease.holder)
        if holder is None or not holder.is_here or holder.is_alive:
            return True
        # Nobody has to wait for a process of this machine that is known to be gone.
        self._leases.revoke(lease.name, lease.epoch)
        return False

    def _is_starting(self, lease: str) -> bool:
        """Whether to wait for one that was started, or that has just failed."""
        if lease not in self._started:
            return False
        process, at = self._started[lease]
        patience = _GRACE_SECONDS if process.poll() is None else _PAUSE_SECONDS
        return time.monotonic() - at < patience

    def _reap(self) -> None:
        """Forgets those that ended well: another keeper was quicker, or nothing was left to do."""
        for name, (process, _) in list(self._started.items()):
            if process.poll() == 0:
                del self._started[name]
