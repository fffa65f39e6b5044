"""The gate: the driver asks it before each group of chunks, each batch of changes and each look of a verifier.

It may keep whoever asks waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from truecopy import ending
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.transfer.control import Wishes
from truecopy.transfer.ledger import Overtaken
from truecopy.transfer.limits import Limits
from truecopy.verify.throttle import lag_of

LOOK_SECONDS = 1.0
"""How old what the gate knows may be."""
_POLL_SECONDS = 0.5
_BURST_SECONDS = 1.0


class Closed(CannotFinish):
    """The run ends while it waits."""


class Gate:
    """Says whether the work may go on, and how fast; asked by any thread of the driver.

    Args:
        limits: Those of the task file.
        wishes: Asks what was wished for from outside; `Overtaken` ends the run.
        meanwhile: Called whenever rows or changes are asked for, and again and again while they wait.
        told: Hears why, and nothing when it goes on.
    """

    def __init__(
        self,
        limits: Limits,
        wishes: Callable[[], Wishes] = Wishes,
        meanwhile: Callable[[], None] = lambda: None,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._given = limits
        self._ask = wishes
        self._meanwhile = meanwhile
        self._told = told
        self._replicas = tuple(map(parse_endpoint, limits.replicas))
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._wishes = Wishes()
        self._laggard = ""
        self._allowance = Allowance()
        self.limits = limits
        self.reason = ""

    def before_chunks(self) -> None:
        """Returns when more rows may be read."""
        self._wait(copies=True)

    def before_changes(self) -> None:
        """Returns when more changes may be applied; hours and rate are those of the copy alone."""
        self._wait(copies=False)

    def before_looks(self) -> None:
        """Returns when verifiers may read on: they wait for what changes wait for."""
        while self._is_held_up(copies=False):
            self._closed.wait(_POLL_SECONDS)

    def note_read(self, rows: int) -> None:
        """Rows that the copy has read."""
        with self._lock:
            self._allowance.spend(rows)

    def close(self) -> None:
        """Ends all waiting: the run is over."""
        self._closed.set()

    def _wait(self, *, copies: bool) -> None:
        while True:
            idle = _POLL_SECONDS if self._is_held_up(copies=copies) else 0.0
            if copies and not idle:
                with self._lock:
                    idle = min(self._allowance.seconds(self.limits.rate), _POLL_SECONDS)
            self._meanwhile()
            if not idle:
                return
            self._closed.wait(idle)

    def _is_held_up(self, *, copies: bool) -> bool:
        """Looks, and tells where that is not as it was."""
        if self._closed.is_set():
            raise Closed("stopped while it waited; the same command goes on")
        ending.require_none()
        with self._lock:
            self._look()
            before, self.reason = self.reason, self._why(copies)
            reason = self.reason
        if bool(reason) != bool(before):
            self._told(reason)
        return bool(reason)

    def _look(self) -> None:
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        try:
            self._wishes = self._ask()
        except Overtaken:
            raise
        except CannotFinish:
            pass  # the target is gone, which the work itself finds out
        self.limits = self._given.changed(self._wishes.throttle)
        self._laggard = _find_laggard(self._replicas, self.limits.max_lag)
        self._looked_at = time.monotonic()

    def _why(self, copies: bool) -> str:
        if self._wishes.paused_at:
            return "paused by hand"
        if self._laggard:
            return self._laggard
        if copies and not self.limits.may_copy_at(datetime.now(UTC)):
            hours = ", ".join(map(str, self.limits.hours))
            return f"rows are copied in the hours {hours} ({self.limits.timezone})"
        return ""


class Allowance:
    """Rows that may be read now: it grows with the rate, and what is read beyond it must be waited for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at: float | None = None  # nothing is saved up before the first rows are asked for
        self._rows = 0.0

    def spend(self, rows: int) -> None:
        self._rows -= rows

    def seconds(self, rate: int) -> float:
        """How long to wait before reading on; a rate of 0 is none."""
        now = self._clock()
        passed, self._at = now - (now if self._at is None else self._at), now
        if not rate:
            self._rows = 0.0
            return 0.0
        self._rows = min(self._rows + passed * rate, rate * _BURST_SECONDS)
        return max(-self._rows / rate, 0.0)


def _find_laggard(replicas: Sequence[Endpoint], most: float) -> str:
    """What to say of a replica that is too far behind; empty where there is none."""
    for replica in replicas:
        try:
            lag = lag_of(replica)
        except UsageError:
            raise
        except CannotFinish as error:
            return f"the replica {replica} does not tell its lag: {error}"
        if lag is None:
            return f"the replica {replica} does not replicate"
        if lag > most:
            return f"the replica {replica} is {lag:.1f} s behind, and {most:g} s are allowed"
    return ""
