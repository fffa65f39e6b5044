"""The pulse of a run: how far it is, told every few seconds to whoever listens and, in the target, to whoever asks."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, cast

from truecopy.engines import pool
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import TruecopyError
from truecopy.transfer.control import Control, Count
from truecopy.transfer.ledger import CopiedSoFar
from truecopy.transfer.progress import Meter, Progress, TableProgress
from truecopy.transfer.redefinition import DefinitionChanged
from truecopy.transfer.snapshot import Copied

BEAT_SECONDS = 2.0
_MOST_RATES = 100
"""Tables whose rates are kept where others read them: those that move most."""

Tell = Callable[[Progress], None]


class Pulse:
    """What the driver counts. Methods may be called by any of its threads.

    Args:
        tell: Hears of every beat.
    """

    def __init__(self, task: str, epoch: int, target: Endpoint, tell: Tell) -> None:
        self._task = task
        self._epoch = epoch
        self._target = target
        self._tell = tell
        self._beating = threading.Lock()
        self._beat_at = 0.0
        self._tables: dict[str, TableProgress] = {}
        self._meter, self._meters = Meter(), dict[str, Meter]()
        self._since = time.monotonic()
        self._applied = Counter[str]()
        self._said = Counter[str]()
        self._lag: float | None = None
        self._offered_at: float | None = None
        self._reached: Mapping[str, str] = {}
        self.phase = ""
        self.waits: Callable[[], str] = str

    @contextmanager
    def running(self, *, beside: bool) -> Iterator[None]:
        """Beats until the block ends, `beside` the work in a thread of its own, and says at last how it ended."""
        stop = threading.Event()

        def beats() -> None:
            while not stop.wait(BEAT_SECONDS):
                self.beat()

        thread = threading.Thread(target=beats, name="pulse", daemon=True)
        if beside:
            thread.start()
        ended, is_paused = "interrupted", False
        try:
            yield
            ended = "done"
        except TruecopyError as error:
            ended, is_paused = str(error), isinstance(error, DefinitionChanged)
            raise
        finally:
            stop.set()
            if beside:
                thread.join()
            self._end(ended, {"paused": True} if is_paused else {})

    # What happens

    def enter(self, phase: str) -> None:
        """Another phase, with a rate of its own."""
        self.phase = phase
        self.go_on()

    def go_on(self) -> None:
        """After a time in which nothing moved, which is no part of the rate."""
        self._meter, self._meters = Meter(), {}
        self._since = time.monotonic()

    def expect(self, about: Mapping[str, int], copied: Mapping[str, CopiedSoFar]) -> None:
        """What is to be copied, and what of it an earlier run has copied."""
        counts = dict[str, Count]()
        with suppress(TruecopyError), self._control() as control:
            control.expect(about)
            counts = control.counts()
        for name, rows in about.items():
            done, known = copied.get(name, CopiedSoFar(0, 0, 0)), counts.get(name, Count(rows))
            self._tables[name] = TableProgress(
                done.rows, known.about, done.chunks, done.chunks_copied, known.changes
            )

    def cut(self, table: str, more: int) -> None:
        """A table has more chunks than was planned."""
        known = self._tables[table]
        self._tables[table] = replace(known, chunks=known.chunks + more)

    def copied(self, chunk: Copied) -> None:
        """A chunk is in."""
        known = self._tables.get(chunk.table, TableProgress())
        self._tables[chunk.table] = replace(
            known,
            rows_copied=known.rows_copied + chunk.rows,
            chunks_copied=known.chunks_copied + 1,
        )
        self._count({chunk.table: chunk.rows})

    @contextmanager
    def applying(self, applied: Mapping[str, int]) -> Iterator[None]:
        """While a batch of changes waits or is applied; `applied` counts them by table, since the run began."""
        self._offered_at = time.monotonic()
        try:
            yield
        finally:
            self._count(Counter(applied) - self._applied)
            self._applied = Counter(applied)
            self._offered_at = None

    def lags(self, seconds: float | None) -> None:
        """How far the source's log was ahead of what was read last."""
        self._lag = seconds

    def reaches(self, positions: Mapping[str, str]) -> None:
        """Everything up to these positions of the source's shards is on the target."""
        self._reached = positions

    def _count(self, moved: Mapping[str, int]) -> None:
        """Rows or changes, by table."""
        self._meter.add(sum(moved.values()))
        for table, count in moved.items():
            if table not in self._meters:
                self._meters[table] = Meter(since=self._since)
            self._meters[table].add(count)

    # What is told

    def progress(self) -> Progress:
        """As it is now."""
        waits = self.waits()
        rate = 0.0 if waits else self._meter.rate()
        meters = {} if waits else dict(self._meters)
        tables = {
            name: replace(
                known,
                changes_applied=known.changes_applied + self._applied[name],
                rate=meters[name].rate() if name in meters else 0.0,
            )
            for name, known in self._tables.items()
        }
        now = Progress(self._task, self.phase, self._epoch, waits, rate, tables=tables)
        left = now.rows_about - now.rows_copied
        return replace(
            now,
            seconds_left=left / rate if left and rate and self.phase == "snapshot" else None,
            lag_seconds=self._lag_now(),
        )

    def _lag_now(self) -> float | None:
        if self._offered_at is None:
            return self._lag
        return (self._lag or 0.0) + time.monotonic() - self._offered_at

    def beat(self) -> None:
        """Tells how far it is, if that was not told lately. What goes wrong here harms nothing."""
        if time.monotonic() - self._beat_at < BEAT_SECONDS or not self.phase:
            return
        if not self._beating.acquire(blocking=False):
            return
        try:
            self._beat_at = time.monotonic()
            progress = self.progress()
            self._tell(progress)
            with suppress(TruecopyError):
                self._say(self._report(progress))
        finally:
            self._beating.release()

    def _end(self, how: str, more: Mapping[str, Any]) -> None:
        with suppress(TruecopyError):
            said = self._report(self.progress())
            self._say({**said, "waits": "", "rate": 0.0, "rates": {}, "ended": how, **more})

    def _report(self, progress: Progress) -> dict[str, Any]:
        """What the ledger does not know itself."""
        return {
            "phase": progress.phase,
            "waits": progress.waits,
            "rate": progress.rate,
            "rates": _largest({name: table.rate for name, table in progress.tables.items()}),
            "seconds_left": progress.seconds_left,
            "lag_seconds": progress.lag_seconds,
            "reached": dict(self._reached),
        }

    def _say(self, document: Mapping[str, Any]) -> None:
        counted = Counter(self._applied)
        with self._control() as control:
            control.say(document, counted - self._said, self._epoch)
        self._said = counted

    @contextmanager
    def _control(self) -> Iterator[Control]:
        with pool.lease(self._target) as session:
            yield Control(cast(Any, session), self._task)


def _largest(rates: Mapping[str, float]) -> dict[str, float]:
    moving = sorted(((rate, name) for name, rate in rates.items() if rate), reverse=True)
    return {name: round(rate, 1) for rate, name in moving[:_MOST_RATES]}
