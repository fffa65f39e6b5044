"""What all steps of one cutover share: its ends, what is open, what became known, and who is told."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from truecopy import telemetry
from truecopy.engines import connect, pool
from truecopy.engines.protocols import Session
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.transfer.cutover import state
from truecopy.transfer.cutover.back import is_back, returns, way_back
from truecopy.transfer.cutover.downtime import Downtime
from truecopy.transfer.cutover.facts import CutoverReport, Facts
from truecopy.transfer.cutover.following import Following
from truecopy.transfer.cutover.returning import Returning
from truecopy.transfer.cutover.settings import How
from truecopy.transfer.cutover.state import Step, Steps
from truecopy.transfer.cutover.writers import Hooks, Writers, writers_of
from truecopy.transfer.ledger import TaskLine
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.run import Listener, Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.webhook import CUTOVER, Webhook


class Stage:
    """One cutover; what `open` and the steps after it find out is set as they come to it.

    Attributes:
        here: A session of the old side, which may hold its writers off.
        line: The task in the target's ledger, taken over by this cutover.
        writers: Those of the old side.
        is_locking: A lock of the old side was asked for, and nobody else knows yet that it came to be.
        is_deciding: Whether the new side may have been told by now that it takes over.
    """

    here: Session
    transfer: Transfer
    plans: Mapping[str, TablePlan]
    steps: Steps
    back: Returning
    line: TaskLine
    writers: Writers
    stream: KeyspaceStream

    def __init__(
        self, settings: Settings, how: How, listener: Listener, forth: Settings | None
    ) -> None:
        self.settings = settings
        self.how = how
        self.said = listener.said
        self.source: Endpoint = parse_endpoint(settings.source)
        self.target: Endpoint = parse_endpoint(settings.target)
        self.request = settings.request
        self.hooks = Hooks(how, settings.task, "back" if is_back(settings) else "forth")
        self.stack = ExitStack()
        self.facts = Facts()
        self.downtime = Downtime(how.max_downtime)
        self.notes: list[str] = []
        self.following: Following | None = None
        self.is_locking = False
        self.is_deciding = False
        self.traced = telemetry.Steps(task=settings.task)
        self._listener = listener
        self._forth = forth
        self._webhook = Webhook(settings.hook, settings.task, self.said)
        self._began = time.monotonic()

    @property
    def command(self) -> str:
        return "switch-back" if is_back(self.settings) else "cutover"

    def open(self) -> None:
        self.here = self.stack.enter_context(connect(self.source))
        self.transfer = Transfer(self.settings, self._listener)
        self.steps = Steps(self.target, self.settings.task)
        self.steps.create()
        with pool.lease(self.target) as target:
            self.plans = self.transfer.prepare(self.here, target)
        self.facts.returns = returns(self.plans)
        self.back = self._returning()

    def open_without_source(self, left: Step) -> None:
        """What is needed to end a cutover whose writers are in the new side."""
        self.steps = Steps(self.target, self.settings.task)
        self.facts = Facts.parse(left.detail)
        self.back = self._returning()

    def _returning(self) -> Returning:
        return Returning(self._forth or way_back(self.settings, self.facts.returns), self.stack)

    def close(self) -> None:
        self.stack.close()
        self._webhook.close()

    def writers_here(self, way: str) -> Writers:
        """The writers of the old side."""
        return self._writers_of(self.here, way)

    def require_held(self) -> None:
        """Asked by whom it was locked, and anew: another server may have its place and address by now."""
        with connect(self.source) as session:
            anew = self._writers_of(session, self.facts.way)
            if not self.writers.is_held() or not anew.is_held():
                raise CannotFinish(
                    f"{self.source} does not hold writers off any more, or is another server than the one that did:"
                    " find out which is the primary, and cut over again"
                )

    def _writers_of(self, session: Session, way: str) -> Writers:
        tables = [plan.mapping.source for plan in self.plans.values()]
        return writers_of(session, way, tables, self.hooks)

    def begin_back(self) -> None:
        """Lets the way back begin where both sides were equal; may be done again."""
        tables = [str(plan.target.tables[0]) for plan in self.plans.values()]
        self.back.begin(self.facts.origin, tables)

    def enter(self, name: str) -> None:
        """Writes a step down, with what is known by now."""
        facts = self.facts.plain()
        self.downtime.bound(lambda: self.steps.enter(name, self.line.epoch, facts))
        self.tell(name)
        self.said(f"{self.settings.task}: {name} ({self.downtime.seconds:.2f} s)")

    def decide(self) -> None:
        """Writes down that it is for the new side, and keeps every replication from writing there."""
        self.is_deciding = True
        facts = self.facts.plain()
        self.downtime.bound(lambda: self.steps.switch(self.line.epoch, facts))
        self.tell(state.SWITCHING)

    def tell(self, name: str) -> None:
        """Of a step, to whom the task names; nobody waits for that."""
        self.traced.enter(name)
        seconds = round(self.downtime.seconds, 3)
        self._webhook.tell(CUTOVER, step=name, downtime_seconds=seconds)

    def end(self, name: str, reason: str = "") -> CutoverReport:
        """Tells whom the task names, and gives what it came to."""
        facts: dict[str, Any] = {"reason": reason} if reason else {}
        seconds = round(self.downtime.seconds, 3)
        self._webhook.tell(CUTOVER, state=name, downtime_seconds=seconds, **facts)
        final = self.facts.final
        return CutoverReport(
            self.settings.task,
            name,
            self.downtime.seconds,
            "; ".join(mark.position for mark in final.marks.values()) if final else "",
            self.facts.certificate,
            reason,
            tuple(self.notes),
            time.monotonic() - self._began,
            over=name == state.SWITCHED and not self.facts.returns and not is_back(self.settings),
        )
