"""Between a run and the world: the gate that may hold it up, the pulse that tells how far it is, the webhook."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from truecopy import ending
from truecopy.engines import pool
from truecopy.model.endpoint import Endpoint, mask_secrets, parse_endpoint
from truecopy.model.errors import TruecopyError
from truecopy.transfer import webhook
from truecopy.transfer.control import Control, Wishes
from truecopy.transfer.gate import Gate
from truecopy.transfer.jobs import beside
from truecopy.transfer.ledger import Ledger, taken_over
from truecopy.transfer.pacing import Cut, Pace
from truecopy.transfer.packing import Apply, Packed
from truecopy.transfer.proof.observed import end_offset
from truecopy.transfer.pulse import Pulse, Tell
from truecopy.transfer.settings import Settings
from truecopy.transfer.snapshot import CopyTask
from truecopy.transfer.webhook import Webhook

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS = 1


class Steering:
    """Of one run, which has claimed the task under an epoch.

    Args:
        tell: Hears every few seconds how far it is.
        said: Hears lines for people.
    """

    def __init__(
        self,
        settings: Settings,
        epoch: int,
        target: Endpoint,
        tell: Tell = lambda _: None,
        said: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._task = settings.task
        self._epoch = epoch
        self._target = target
        self._secrets = tuple(map(parse_endpoint, (settings.source, *settings.limits.replicas)))
        self._writing = threading.Lock()
        self.hook = Webhook(settings.hook, settings.task, said)
        self.pulse = Pulse(settings.task, epoch, target, tell)
        self.gate = Gate(settings.limits, self._wishes, self.pulse.beat, self._held_up)
        self.pulse.waits = lambda: self.gate.reason

    @contextmanager
    def running(self, *, beside: bool) -> Iterator[None]:
        """The run; `beside` whether the driver may write to the target while workers do, which a file forbids."""
        try:
            with self.pulse.running(beside=beside):
                yield
        except TruecopyError as error:
            message = mask_secrets(str(error), (self._target, *self._secrets))
            self.hook.tell(webhook.ERROR, message=message)
            raise
        finally:
            self.gate.close()
            self.hook.tell(webhook.STATE, state="stopped")
            self.hook.close()

    def enter(self, phase: str) -> None:
        """The task has come to a phase."""
        self.pulse.enter(phase)
        self.hook.tell(webhook.STATE, state=phase)

    def expect(self, rows: Mapping[str, int]) -> None:
        """The tables, with about how many rows each had."""
        with pool.lease(self._target) as session:
            copied = Ledger(cast(Any, session), self._task).copied()
        self.pulse.expect(rows, copied)

    def pace(self, tasks: Iterable[CopyTask], lanes: int, cut: Cut) -> Pace:
        """The chunks as they may be copied."""

        def counted(task: CopyTask, rows: int) -> list[CopyTask]:
            smaller = list(cut(task, rows))
            self.pulse.cut(task.plan.source_name, len(smaller) - 1)
            return smaller

        return Pace(tasks, self.gate, lanes, counted)

    def held(self, apply: Apply, applied: Mapping[str, int]) -> Apply:
        """For `foreachBatch`: asks the gate before each batch; `applied` counts changes by table."""

        def apply_held(changes: Packed, number: int) -> None:
            with self.pulse.applying(applied):
                self.gate.before_changes()
                with self._writing:
                    apply(changes, number)

        return apply_held

    def follow(self, query: StreamingQuery, check: Callable[[], None] = lambda: None) -> None:
        """Waits for the end of a query, and hears how far it is behind; an interruption stops the query.

        Args:
            query: What replicates.
            check: Called every second, since an idle source gives no batch that could; what it raises stops the
                query.
        """

        def look() -> None:
            self.pulse.lags(_lag(query))
            if end := end_offset(query):
                self.pulse.reaches({shard: mark.position for shard, mark in end.marks.items()})

        def wait() -> None:
            while not query.awaitTermination(_LOOK_SECONDS):
                look()
                self._beat_when_idle()
                try:
                    ending.require_none()
                    check()
                except BaseException:
                    self.stop(query)
                    raise
            look()

        beside(wait, lambda: self.stop(query))

    def stop(self, query: StreamingQuery) -> None:
        """Ends a query after the batch that it is at."""
        self.gate.close()  # a batch that waits there would keep the query from stopping
        query.stop()

    def _beat_when_idle(self) -> None:
        """A file has no pulse beside the work, but between two batches it may."""
        if self._writing.acquire(blocking=False):
            try:
                self.pulse.beat()
            finally:
                self._writing.release()

    def _wishes(self) -> Wishes:
        with pool.lease(self._target) as session:
            line = Ledger(cast(Any, session), self._task).find()
            if line is not None and line.epoch != self._epoch:
                raise taken_over(self._task)
            return Control(cast(Any, session), self._task).wishes()

    def _held_up(self, reason: str) -> None:
        if not reason:
            self.pulse.go_on()
        state = "waiting" if reason else self.pulse.phase
        self.hook.tell(webhook.STATE, state=state, **({"reason": reason} if reason else {}))


def _lag(query: StreamingQuery) -> float | None:
    """Seconds, as the source reported with the last batch."""
    done = query.lastProgress
    for source in done.sources if done is not None else ():
        told = json.loads(source.latestOffset or "null")
        if isinstance(told, dict) and "lag_ms" in told:
            return float(told["lag_ms"]) / 1000
    return None
