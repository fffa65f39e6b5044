"""The cutover: the order of its steps, and what happens when one fails.

Until writers are let into the new side, whatever goes wrong ends with their being let into the old one again. From
then on it goes forward, unless it is sure that nothing was written to the new side. A process that is killed leaves
the step that it had come to; the next one undoes it and begins anew, or, from `SWITCHING` on, finishes it.
Whoever comes after the switch needs nothing of the old side: `MOVED` is written down before its log is let go.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

from truecopy import telemetry
from truecopy.engines import pool
from truecopy.engines.protocols import Introspects
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.spark import session as spark_session
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.offset import Offset
from truecopy.transfer.control import Control, Wishes
from truecopy.transfer.cutover import after_kill, new_side, rollback, state, switch
from truecopy.transfer.cutover.back import require_reversible
from truecopy.transfer.cutover.downtime import refusing_signals
from truecopy.transfer.cutover.evidence import Evidence
from truecopy.transfer.cutover.facts import CutoverReport, Facts
from truecopy.transfer.cutover.following import Following
from truecopy.transfer.cutover.numbering import set_numbers
from truecopy.transfer.cutover.proof import Proof, Prover
from truecopy.transfer.cutover.settings import How
from truecopy.transfer.cutover.stage import Stage
from truecopy.transfer.cutover.state import Step
from truecopy.transfer.cutover.stillness import require_still
from truecopy.transfer.cutover.writers import (
    Writers,
    find_way,
    named,
    require_possible,
    require_reach,
)
from truecopy.transfer.gate import Gate
from truecopy.transfer.joining import begin_notes, require_joined
from truecopy.transfer.ledger import REPLICATE, Ledger, TaskLine
from truecopy.transfer.proof.observed import AppliedByQuery, observed
from truecopy.transfer.proof.verifier import Scene
from truecopy.transfer.run import Listener
from truecopy.transfer.settings import Settings


class TooFarBehind(CannotFinish):
    """Changes did not get to the target quickly enough, for as long as was waited."""


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
        self._stage = Stage(settings, how, listener or Listener(), forth)

    def __enter__(self) -> Cutover:
        return self

    def __exit__(self, *_: object) -> None:
        self._stage.close()

    def run(self, *, rehearse: bool = False) -> CutoverReport:
        """Cuts over, or does everything but that; an earlier cutover that was killed is undone or finished first."""
        stage = self._stage
        with telemetry.span(stage.command, task=stage.settings.task), stage.traced:
            return self._run(rehearse)

    def _run(self, rehearse: bool) -> CutoverReport:
        stage = self._stage
        try:
            stage.open()
        except CannotFinish as lost:
            return after_kill.finish_without_source(stage, lost)
        left = self._find_left()
        if left is None or left.name not in state.UNDER_WAY:
            self._refuse()  # now it keeps nobody from replicating
        stage.line = self._claim()
        stage.steps.take(stage.line.epoch)
        left = self._find_left()  # now that nobody else can go on with it
        if left is not None and left.name in state.UNDER_WAY:
            with refusing_signals(stage.said):
                if report := after_kill.settle(stage, left):
                    return report
        elif left is not None and left.name == state.CATCHING_UP:
            stage.back.remove()
        self._prepare(self._refuse())
        try:
            self._follow()
            self._come_close()
        except BaseException as error:  # noqa: BLE001 - whatever it is, a slot of the way back must not stay
            return rollback.roll_back(stage, error)
        with refusing_signals(stage.said):
            try:
                self._prove()
                if not rehearse:
                    self._turn()
                stage.downtime.bound(self._prover.stop_watching)
                if not rehearse:
                    self._decide()
            except BaseException as error:  # noqa: BLE001 - whatever it is, writers must not stay locked out
                return rollback.roll_back(stage, error)
            return self._end_rehearsal() if rehearse else switch.switch(stage)

    # Before writers notice anything

    def _find_left(self) -> Step | None:
        """What an earlier cutover has left; the new side may be locked by it."""
        stage = self._stage
        left = stage.steps.find()
        if left is None:
            return None
        if left.name == state.SWITCHED:
            raise UsageError(
                f"{stage.settings.task} was cut over already; truecopy switch-back brings writers back"
            )
        stage.facts.opens = Facts.parse(left.detail).opens
        return left

    def _claim(self) -> TaskLine:
        """Takes the task over from whoever replicates it now."""
        stage = self._stage
        with pool.lease(stage.target) as target:
            ledger = Ledger(cast(Any, target), stage.settings.task)
            line = ledger.find()
            if line is None or line.phase != REPLICATE:
                raise UsageError(
                    f"{stage.settings.task} has not copied its tables and caught up yet: truecopy run does that"
                )
            require_joined(target, stage.settings.task)
            claimed = stage.transfer.claim(ledger, {})
            begin_notes(target, stage.settings.task, claimed)
            return claimed

    def _refuse(self) -> Writers:
        """Finds out what can never be done; gives whom to hold off, and how."""
        stage = self._stage
        self._require_wanted()
        stage.facts.opens = stage.facts.opens or stage.back.locked()
        way = self._find_way()
        new_side.require_open(stage, way)
        writers = stage.writers_here(way)
        require_reach(writers, stage.source)
        return writers

    def _prepare(self, writers: Writers) -> None:
        """Finds out what would fail later, while it costs nothing."""
        stage = self._stage
        way = writers.way
        stage.writers, stage.facts.way = writers, way
        if writers.lasts and writers.is_held():
            stage.said(
                f"{stage.source} lets no other user write already ({way}), before this {stage.command}, nor will it"
                " where this is given up"
            )
        if beyond := writers.beyond():
            stage.said(
                f"{way} does not keep {named(beyond)} from writing: what they write before the switch is noticed, and"
                " rolls this back; what they write afterwards is not"
            )
        stage.stream = stage.stack.enter_context(KeyspaceStream(stage.request))
        if lines := stage.stream.missing():
            raise CannotFinish("; ".join(lines))
        stage.enter(state.CATCHING_UP)
        if stage.how.reverse:
            stage.back.prepare()

    def _require_wanted(self) -> None:
        """Refuses to replicate, and lock writers out, for a task that somebody holds up."""
        if self._wishes().paused_at:
            raise UsageError(
                f"{self._stage.settings.task} is paused: truecopy resume lets it go on, and then it can be cut over"
            )

    def _wishes(self) -> Wishes:
        with pool.lease(self._stage.target) as target:
            control = Control(cast(Any, target), self._stage.settings.task)
            control.create()
            return control.wishes()

    def _throttle(self) -> Wishes:
        """The ceilings alone: a task that is paused meanwhile is given up before writers are locked out."""
        return replace(self._wishes(), paused_at=0)

    def _held_up(self, reason: str) -> None:
        if reason:
            self._stage.said(f"{self._stage.settings.task} waits: {reason}")

    def _find_way(self) -> str:
        """How writers will be held off; refuses what can never be done."""
        stage = self._stage
        way = find_way(stage.here, stage.how)
        require_possible(way, stage.how)
        if stage.how.reverse:
            require_reversible(stage.plans)
        return way

    def _follow(self) -> None:
        stage = self._stage
        spark = spark_session(stage.settings.master)
        replication = stage.transfer.replication(stage.plans, stage.line)
        replication.replaying = False
        gate = Gate(stage.settings.limits, self._throttle, told=self._held_up)
        gate.before_looks()
        replication.connections = lambda: gate.limits.connections
        applied = AppliedByQuery({stage.source: stage.request.name})
        settings = stage.settings
        scene = Scene(settings.task, settings.annotation, stage.plans, spark, applied, gate)
        self._prover = Prover(scene, stage.how, stage.target)
        stage.stack.callback(self._prover.close)
        self._prover.start()
        stage.following = stage.stack.enter_context(Following(stage.request, replication))
        stage.following.start(spark, observed(replication.apply, self._prover.verifiers))
        applied.query = stage.following.query

    def _come_close(self) -> None:
        """Leaves as little as possible to be applied and verified while writers wait."""
        self._catch_up()
        self._prover.shrink()
        self._catch_up()
        self._prover.work()
        self._require_wanted()

    def _catch_up(self) -> None:
        """Waits until a change is on the target sooner than `max_lag` after it was made."""
        stage = self._stage
        assert stage.following is not None
        deadline = time.monotonic() + stage.how.max_wait
        while True:
            began = time.monotonic()
            is_there = stage.following.wait_for(
                stage.stream, stage.stream.current(), max(deadline - began, 0.0)
            )
            took = time.monotonic() - began
            if is_there and took <= stage.how.max_lag:
                return
            if time.monotonic() >= deadline:
                raise TooFarBehind(
                    f"{stage.settings.task} was more than {stage.how.max_lag:g} s behind for {stage.how.max_wait:g} s:"
                    " cut over when the source is written to less, or raise cutover.max-lag or cutover.max-wait"
                )
            stage.said(f"{stage.settings.task} is {took:.1f} s behind; waiting for less")

    # While writers are locked out

    def _prove(self) -> None:
        """From the lock to the certificate."""
        stage = self._stage
        assert stage.following is not None
        before = stage.writers.survey()
        stage.facts.before, stage.facts.locked_at = before, time.time()
        stage.enter(state.HOLDING)
        stage.downtime.begin()
        stage.is_locking = True
        stage.writers.hold(before, stage.downtime.left)
        stage.enter(state.HELD)
        stage.is_locking = False
        final = stage.stream.current()
        stage.facts.final = final
        if not stage.following.wait_for(stage.stream, final, stage.downtime.left):
            raise CannotFinish(
                "the changes that were left did not get to the target in time: let the source rest, or raise"
                " cutover.max-downtime"
            )
        self._require_still()
        stage.enter(state.DRAINED)
        proof = stage.downtime.bound(self._prover.finish)
        stage.enter(state.VERIFIED)
        if stage.how.sequences:
            stage.downtime.bound(lambda: set_numbers(stage))
        stage.enter(state.NUMBERED)
        self._require_still()
        stage.facts.certificate = stage.downtime.bound(lambda: self._evidence(proof, final)).issue()
        stage.enter(state.CERTIFIED)
        stage.downtime.check()

    def _require_still(self) -> None:
        stage = self._stage
        assert stage.facts.final is not None
        final = stage.facts.final
        stage.downtime.bound(lambda: require_still(stage.stream, final, stage.plans))

    def _evidence(self, proof: Proof, final: Offset) -> Evidence:
        stage = self._stage
        with pool.lease(stage.target) as target:
            onto = cast(Introspects, target).position()
            copied = Ledger(cast(Any, target), stage.settings.task).copied()
        return Evidence(
            stage.settings.task,
            stage.source,
            stage.target,
            stage.plans,
            proof,
            final,
            onto,
            stage.writers.way,
            stage.facts.locked_at,
            stage.downtime.seconds,
            {name: one.rows for name, one in copied.items()},
        )

    def _turn(self) -> None:
        """Lets the way back begin here: nobody writes, so the end of the target's log is where both are equal."""
        stage = self._stage
        if not stage.back.is_ready:
            stage.facts.returns = {}
            return
        stage.facts.origin = stage.downtime.bound(stage.back.origin)
        stage.enter(state.TURNED)
        stage.writers.ease()
        stage.begin_back()
        stage.downtime.check()

    def _decide(self) -> None:
        """For the new side; until writers are let in there, it can still be taken back."""
        stage = self._stage
        stage.require_held()
        stage.decide()

    def _end_rehearsal(self) -> CutoverReport:
        stage = self._stage
        stage.downtime.end()
        rollback.release(stage, stage.writers, stage.facts.before)
        stage.back.remove()
        stage.enter(state.REHEARSED)
        return stage.end(state.REHEARSED)
