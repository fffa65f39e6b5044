"""The cutover: the order of its steps, and what happens when one fails.

Until writers are let into the new side, whatever goes wrong ends with their being let into the old one again. From
then on it goes forward, unless it is sure that nothing was written to the new side. A process that is killed leaves
the step that it had come to; the next one undoes it and begins anew, or, from `SWITCHING` on, finishes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, cast

from truecopy import telemetry
from truecopy.engines import connect, pool
from truecopy.engines.protocols import Introspects, Session, SetsSequences
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.spark import session as spark_session
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.offset import Offset
from truecopy.stream.removal import remove
from truecopy.transfer.cutover import state
from truecopy.transfer.cutover.back import is_back, require_reversible, returns, way_back
from truecopy.transfer.cutover.downtime import Downtime, refusing_signals
from truecopy.transfer.cutover.evidence import Evidence
from truecopy.transfer.cutover.facts import CutoverReport, Facts
from truecopy.transfer.cutover.following import Following
from truecopy.transfer.cutover.proof import Proof, Prover
from truecopy.transfer.cutover.returning import Returning
from truecopy.transfer.cutover.settings import CALLBACK, COMMAND, NONE, How
from truecopy.transfer.cutover.state import Step, Steps
from truecopy.transfer.cutover.stillness import changes_after, require_still
from truecopy.transfer.cutover.writers import (
    Hooks,
    Writers,
    find_way,
    require_possible,
    writers_of,
)
from truecopy.transfer.ledger import REPLICATE, Ledger, Overtaken, TaskLine
from truecopy.transfer.proof.checksum import compare_whole
from truecopy.transfer.proof.chosen import CHECKSUM
from truecopy.transfer.proof.observed import AppliedByQuery, observed
from truecopy.transfer.proof.verifier import Scene
from truecopy.transfer.run import Listener, Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.webhook import CUTOVER, Webhook

_TRIES = 5
_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 10.0


class TooFarBehind(CannotFinish):
    """Changes did not get to the target quickly enough, for as long as was waited."""


class WrittenAfterwards(CannotFinish):
    """Rows of the old side are not on the new one, which has taken over: like any difference, it ends with 1."""

    exit_code = 1


class Cutover:
    """One cutover of a task that replicates; `run` does it, from `with` to the end of the block.

    Args:
        settings: The task in the direction that is cut over.
        how: How it is to be done.
        listener: Hears lines for people.
        forth: When `settings` are a way back: those of the way forth.
    """

    def __init__(
        self,
        settings: Settings,
        how: How,
        listener: Listener | None = None,
        forth: Settings | None = None,
    ) -> None:
        self._settings = settings
        self._how = how
        self._listener = listener or Listener()
        self._said = self._listener.said
        self._forth = forth
        self._source: Endpoint = parse_endpoint(settings.source)
        self._target: Endpoint = parse_endpoint(settings.target)
        self._request = settings.request
        self._hooks = Hooks(how, settings.task, "back" if is_back(settings) else "forth")
        self._webhook = Webhook(settings.hook, settings.task, self._said)
        self._stack = ExitStack()
        self._facts = Facts()
        self._downtime = Downtime(how.max_downtime)
        self._notes: list[str] = []
        self._began = time.monotonic()
        self._following: Following | None = None
        self._is_deciding = False
        self._traced = telemetry.Steps(task=settings.task)

    def __enter__(self) -> Cutover:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._webhook.close()

    def run(self, *, rehearse: bool = False) -> CutoverReport:
        """Cuts over, or does everything but that; an earlier cutover that was killed is undone or finished first."""
        with telemetry.span(self._command, task=self._settings.task), self._traced:
            return self._run(rehearse)

    def _run(self, rehearse: bool) -> CutoverReport:
        self._open()
        left = self._steps.find()
        if left is not None and left.name == state.SWITCHED:
            raise UsageError(
                f"{self._settings.task} was cut over already; truecopy switch-back brings writers back"
            )
        if left is None or left.name not in state.UNDER_WAY:
            self._find_way(rehearse)  # refused now, it keeps nobody from replicating
        self._line = self._claim()
        self._steps.take(self._line.epoch)
        if left is not None and left.name in state.UNDER_WAY:
            with refusing_signals(self._said):
                if left.name == state.SWITCHING and self._may_finish(left):
                    return self._finish(left)
                self._undo(left)
        self._prepare(rehearse)
        self._traced.enter("catching-up")
        try:
            self._follow()
            self._come_close()
        except BaseException as error:  # noqa: BLE001 - whatever it is, a slot of the way back must not stay
            return self._roll_back(error)
        with refusing_signals(self._said):
            try:
                self._prove()
                if not rehearse:
                    self._turn()
                    self._decide()
            except BaseException as error:  # noqa: BLE001 - whatever it is, writers must not stay locked out
                return self._roll_back(error)
            return self._end_rehearsal() if rehearse else self._switch()

    # Before writers notice anything

    def _open(self) -> None:
        self._here = self._stack.enter_context(connect(self._source))
        self._transfer = Transfer(self._settings, self._listener)
        self._steps = Steps(self._target, self._settings.task)
        self._steps.create()
        with pool.lease(self._target) as target:
            self._plans = self._transfer.prepare(self._here, target)
        self._facts.returns = returns(self._plans)
        other = self._forth or way_back(self._settings, self._facts.returns)
        self._back = Returning(other, self._stack)

    def _claim(self) -> TaskLine:
        """Takes the task over from whoever replicates it now."""
        with pool.lease(self._target) as target:
            ledger = Ledger(cast(Any, target), self._settings.task)
            line = ledger.find()
            if line is None or line.phase != REPLICATE:
                raise UsageError(
                    f"{self._settings.task} has not copied its tables and caught up yet: truecopy run does that"
                )
            return ledger.claim({})

    def _prepare(self, rehearse: bool) -> None:
        """Finds out what would fail later, while it costs nothing."""
        way = self._find_way(rehearse)
        self._writers = self._writers_of(self._here, way)
        self._facts.way = way
        self._stream = self._stack.enter_context(KeyspaceStream(self._request))
        if lines := self._stream.missing():
            raise CannotFinish("; ".join(lines))
        if self._how.reverse and not rehearse:
            self._facts.opens = self._back.prepare()

    def _find_way(self, rehearse: bool) -> str:
        """How writers will be held off; refuses what can never be done."""
        way = find_way(self._here, self._how)
        if not rehearse:
            require_possible(way, self._how)
        if self._how.reverse:
            require_reversible(self._plans)
        return way

    def _follow(self) -> None:
        spark = spark_session(self._settings.master)
        replication = self._transfer.replication(self._plans, self._line)
        replication.replaying = False
        applied = AppliedByQuery({self._source: self._request.name})
        scene = Scene(self._settings.task, self._settings.annotation, self._plans, spark, applied)
        self._prover = Prover(scene, self._how, self._target)
        self._stack.callback(self._prover.close)
        self._prover.start()
        self._following = self._stack.enter_context(Following(self._request, replication))
        self._following.start(spark, observed(replication.apply, self._prover.verifiers))
        applied.query = self._following.query

    def _come_close(self) -> None:
        """Leaves as little as possible to be applied and verified while writers wait."""
        self._catch_up()
        self._prover.shrink()
        self._catch_up()
        self._prover.work()

    def _catch_up(self) -> None:
        """Waits until a change is on the target sooner than `max_lag` after it was made."""
        assert self._following is not None
        deadline = time.monotonic() + self._how.max_wait
        while True:
            began = time.monotonic()
            is_there = self._following.wait_for(
                self._stream, self._stream.current(), max(deadline - began, 0.0)
            )
            took = time.monotonic() - began
            if is_there and took <= self._how.max_lag:
                return
            if time.monotonic() >= deadline:
                raise TooFarBehind(
                    f"{self._settings.task} was more than {self._how.max_lag:g} s behind for {self._how.max_wait:g} s:"
                    " cut over when the source is written to less, or raise cutover.max-lag or cutover.max-wait"
                )
            self._said(f"{self._settings.task} is {took:.1f} s behind; waiting for less")

    # While writers are locked out

    def _prove(self) -> None:
        """From the lock to the certificate."""
        assert self._following is not None
        before = self._writers.survey()
        self._facts.before = before
        self._enter(state.HOLDING)
        began_at = time.time()
        self._downtime.begin()
        self._writers.hold(before, self._downtime.left)
        self._enter(state.HELD)
        final = self._stream.current()
        self._facts.final = final
        if not self._following.wait_for(self._stream, final, self._downtime.left):
            raise CannotFinish(
                "the changes that were left did not get to the target in time: let the source rest, or raise"
                " cutover.max-downtime"
            )
        self._require_still()
        self._enter(state.DRAINED)
        proof = self._downtime.bound(self._prover.finish)
        self._enter(state.VERIFIED)
        if self._how.sequences:
            self._downtime.bound(self._set_sequences)
        self._enter(state.NUMBERED)
        self._require_still()
        self._facts.certificate = self._evidence(proof, final, began_at).issue()
        self._enter(state.CERTIFIED)
        self._downtime.check()

    def _require_still(self) -> None:
        assert self._facts.final is not None
        require_still(self._stream, self._facts.final, self._plans)

    def _set_sequences(self) -> None:
        with connect(self._source) as source, connect(self._target) as target:
            if not isinstance(target, SetsSequences):
                return
            for plan in self._plans.values():
                table = cast(Introspects, source).describe(plan.mapping.source)
                named = replace(table, name=plan.target.tables[0])
                target.set_sequences(named, annotation=self._settings.annotation)

    def _evidence(self, proof: Proof, final: Offset, began_at: float) -> Evidence:
        with pool.lease(self._target) as target:
            onto = cast(Introspects, target).position()
            copied = Ledger(cast(Any, target), self._settings.task).copied()
        return Evidence(
            self._settings.task,
            self._source,
            self._target,
            self._plans,
            proof,
            final,
            onto,
            self._writers.way,
            began_at,
            self._downtime.seconds,
            {name: one.rows for name, one in copied.items()},
        )

    def _turn(self) -> None:
        """Lets the way back begin here: nobody writes, so the end of the target's log is where both are equal."""
        if not self._back.is_ready:
            self._facts.returns = {}
            return
        self._facts.origin = self._back.origin()
        self._enter(state.TURNED)
        self._writers.ease()
        self._begin_back()
        self._downtime.check()

    def _begin_back(self) -> None:
        tables = [str(plan.target.tables[0]) for plan in self._plans.values()]
        self._back.begin(self._facts.origin, tables)

    def _decide(self) -> None:
        """For the new side; until writers are let in there, it can still be taken back."""
        self._is_deciding = True
        self._steps.switch(self._line.epoch, self._facts.plain())
        self._traced.enter(state.SWITCHING)

    # Where it ends

    def _switch(self) -> CutoverReport:
        try:
            self._let_in()
        except TruecopyError as error:
            if self._is_unused():
                self._lock_again()
                return self._roll_back(error)
            raise CannotFinish(
                f"writers may have been let into {self._target}, but not for sure, and are STILL LOCKED OUT of"
                f" {self._source} ({self._writers.way}): {error}; mend that, and truecopy {self._command} again"
                " finishes it"
            ) from None
        return self._switched()

    def _is_unused(self) -> bool:
        """Whether it is sure that nothing was written to the new side: its log tells, or both being equal still."""
        again = Downtime(self._how.max_downtime)
        again.begin()
        try:
            if self._facts.origin:
                return self._back.is_unused(self._facts.origin, self._facts.returns)
            return again.bound(self._are_equal)
        except TruecopyError:
            return False

    def _are_equal(self) -> bool:
        """Compares whole tables: where they are equal, nothing is lost on either side."""
        spark = spark_session(self._settings.master)
        scene = Scene(self._settings.task, self._settings.annotation, self._plans, spark)
        return not compare_whole(CHECKSUM, scene, list(self._plans.values())).found

    def _let_in(self) -> None:
        """Writers into the new side. What was locked there, when it was the old one, is opened first."""
        with self._locked_before(self._facts) as (writers, before):
            writers.release(before)
        self._hooks.switch(self._how.max_downtime)
        self._downtime.end()

    def _lock_again(self) -> None:
        with self._locked_before(self._facts) as (writers, before):
            writers.hold(before, self._how.max_downtime)

    @contextmanager
    def _locked_before(self, facts: Facts) -> Iterator[tuple[Writers, Mapping[str, Any]]]:
        """The writers of the new side, as the last switch left them."""
        way = facts.opens.get("way", NONE)
        if way in (COMMAND, CALLBACK):  # theirs is the switch itself
            way = NONE
        tables = [plan.target.tables[0] for plan in self._plans.values()]
        with pool.lease(self._target) as target:
            yield (
                writers_of(target, way, tables, self._hooks),
                facts.opens.get("before", {}),
            )

    def _switched(self) -> CutoverReport:
        self._notes.append(self._writers.leave())
        self._stop_reading()
        if self._facts.origin:
            self._back.open_again()
            self._notes.append(
                f"truecopy run now replicates from {self._target} back to {self._source}, and"
                f" truecopy {'cutover' if is_back(self._settings) else 'switch-back'} brings writers back"
            )
        self._enter(state.SWITCHED)
        self._tell(state.SWITCHED)
        return self._report(state.SWITCHED)

    def _stop_reading(self) -> None:
        """Nothing is read from the old side any more: a slot that was left there would hold its log for ever."""
        if self._following is not None:
            self._following.stop()
            self._stream.close()
        with suppress(TruecopyError):
            remove(self._request)

    def _end_rehearsal(self) -> CutoverReport:
        self._downtime.end()
        self._release(self._writers, self._facts.before)
        self._enter(state.REHEARSED)
        self._tell(state.REHEARSED)
        return self._report(state.REHEARSED)

    def _roll_back(self, error: BaseException) -> CutoverReport:
        """Lets writers into the old side again, unless somebody else is at it."""
        self._take_back(error)
        if self._downtime.has_begun:
            self._release(self._writers, self._facts.before)
            self._downtime.end()
        if not self._facts.opens:
            self._back.remove()
        self._note_rollback()
        # Whoever has taken the task over replicates it: going on here would take it away again.
        if isinstance(error, Overtaken) or not isinstance(error, Exception):
            raise error
        reason = (
            str(error) if isinstance(error, TruecopyError) else f"{type(error).__name__}: {error}"
        )
        self._tell(state.ROLLED_BACK, reason)
        return self._report(state.ROLLED_BACK, reason)

    def _take_back(self, error: BaseException) -> None:
        """Makes sure that nobody finishes what is given up."""
        try:
            found = self._ask_step()
            if found is not None and found.epoch != self._line.epoch:
                raise Overtaken(
                    f"another cutover of {self._settings.task} has taken over"
                ) from error
            if found is not None and found.name == state.SWITCHING:
                # A process that ends between the release and the rollback leaves what is undone, not finished.
                self._steps.enter(state.TURNED, self._line.epoch, self._facts.plain())
        except Overtaken:
            raise
        except TruecopyError as lost:
            # Without an answer it is sure only before it was decided that nobody will finish it.
            if self._is_deciding:
                raise self._locked_out(
                    f"{error}; and {self._target} does not say how far it is ({lost})",
                    "finishes it, or lets them in",
                ) from error

    def _ask_step(self) -> Step | None:
        """Asks for a while: the connection to a target that is there may be lost."""
        began = time.monotonic()
        for attempt in range(1, _TRIES):
            try:
                return self._steps.find()
            except TruecopyError:
                if time.monotonic() - began > _PATIENCE_SECONDS:
                    raise
                time.sleep(_PAUSE_SECONDS * attempt)
        return self._steps.find()

    def _note_rollback(self) -> None:
        """Writers are in again by now: a target that does not answer must not hide that."""
        try:
            self._enter(state.ROLLED_BACK)
        except Overtaken:
            raise
        except TruecopyError as error:
            self._notes.append(
                f"{self._target} still says that a cutover is under way ({error}): truecopy {self._command} again,"
                " once it answers, begins anew"
            )

    def _release(self, writers: Writers, before: Mapping[str, Any]) -> None:
        """Tries for a while, with new sessions: nothing is worse than writers who stay locked out."""
        for attempt in range(1, _TRIES + 1):
            try:
                writers.release(before)
            except TruecopyError as error:
                if attempt == _TRIES:
                    raise self._locked_out(f"{error}", "lets them in") from error
                time.sleep(_PAUSE_SECONDS * attempt)
                with suppress(TruecopyError):
                    self._here = self._stack.enter_context(connect(self._source))
                    writers = self._writers_of(self._here, writers.way)
            else:
                return

    def _locked_out(self, why: str, then: str) -> CannotFinish:
        return CannotFinish(
            f"writers are STILL LOCKED OUT of {self._source} ({self._writers.way}): {why}; truecopy {self._command}"
            f" again {then}"
        )

    # After a kill

    def _undo(self, left: Step) -> None:
        facts = Facts.parse(left.detail)
        if left.name == state.SWITCHING:
            # Ended once more, it must not be finished with writers let in.
            self._steps.enter(state.TURNED, self._line.epoch, left.detail)
        self._writers = self._writers_of(self._here, facts.way)
        self._release(self._writers, facts.before)
        self._downtime = Downtime(self._how.max_downtime)
        self._steps.enter(state.ROLLED_BACK, self._line.epoch, left.detail)
        self._said(
            f"an earlier {self._command} of {self._settings.task} ended at {left.name}: writers were let in again on"
            f" {self._source}"
        )

    def _may_finish(self, left: Step) -> bool:
        """Whether what was decided still holds: a lock may have ended with its process, and the old side gone on.

        False where nothing was written to the new side: it can be undone. Refuses where both were written to.
        """
        facts = Facts.parse(left.detail)
        assert facts.final is not None
        self._writers = self._writers_of(self._here, facts.way)
        self._downtime.begin()
        if facts.way not in (
            COMMAND,
            CALLBACK,
        ):  # theirs lasts, and may reach those who are at the new side
            self._writers.hold(facts.before, self._how.max_downtime)
        with KeyspaceStream(self._request) as stream:
            late = changes_after(stream, facts.final, self._plans)
        if not late or self._are_equal():
            return True
        if facts.origin and self._back.is_unused(facts.origin, facts.returns):
            with self._locked_before(facts) as (writers, before):
                writers.hold(before, self._how.max_downtime)
            return False
        raise WrittenAfterwards(
            f"{late.total()} changes were made on {self._source} after writers were locked out"
            f" ({', '.join(f'{number} of {table}' for table, number in late.most_common())}), and are NOT on"
            f" {self._target}, which may have been written to since: hold writers of both off, make the tables equal"
            f" (truecopy verify --repair), and truecopy {self._command} again finishes it"
        )

    def _finish(self, left: Step) -> CutoverReport:
        """An earlier one had decided for the new side: what it had still to do is done again."""
        self._facts = Facts.parse(left.detail)
        self._said(
            f"an earlier {self._command} of {self._settings.task} ended at {left.name}: finishing it"
        )
        self._writers.ease()
        if self._facts.origin:
            self._begin_back()
        return self._switch()

    # Inside

    def _writers_of(self, session: Session, way: str) -> Writers:
        tables = [plan.mapping.source for plan in self._plans.values()]
        return writers_of(session, way, tables, self._hooks)

    def _enter(self, name: str) -> None:
        self._steps.enter(name, self._line.epoch, self._facts.plain())
        self._traced.enter(name)
        self._said(f"{self._settings.task}: {name} ({self._downtime.seconds:.2f} s)")

    def _tell(self, name: str, reason: str = "") -> None:
        facts: dict[str, Any] = {"reason": reason} if reason else {}
        seconds = round(self._downtime.seconds, 3)
        self._webhook.tell(CUTOVER, state=name, downtime_seconds=seconds, **facts)

    def _report(self, name: str, reason: str = "") -> CutoverReport:
        final = self._facts.final
        return CutoverReport(
            self._settings.task,
            name,
            self._downtime.seconds,
            "; ".join(mark.position for mark in final.marks.values()) if final else "",
            self._facts.certificate,
            reason,
            tuple(self._notes),
            time.monotonic() - self._began,
            over=name == state.SWITCHED and not self._facts.returns and not is_back(self._settings),
        )

    @property
    def _command(self) -> str:
        return "switch-back" if is_back(self._settings) else "cutover"
