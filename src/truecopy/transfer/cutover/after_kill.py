"""What an earlier cutover left that was killed: it is undone, or, once it had decided for the new side, finished."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

from truecopy.engines import pool
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.transfer.cutover import new_side, rollback, state, switch
from truecopy.transfer.cutover.back import returns
from truecopy.transfer.cutover.downtime import Downtime
from truecopy.transfer.cutover.facts import CutoverReport, Facts
from truecopy.transfer.cutover.settings import CALLBACK, COMMAND
from truecopy.transfer.cutover.stage import Stage
from truecopy.transfer.cutover.state import Step, Steps
from truecopy.transfer.cutover.stillness import changes_after
from truecopy.transfer.ledger import Ledger


class WrittenAfterwards(CannotFinish):
    """Rows of the old side are not on the new one, which has taken over: like any difference, it ends with 1."""

    exit_code = 1


def settle(stage: Stage, left: Step) -> CutoverReport | None:
    """Finishes what is under way, or undoes it; None where it can begin anew."""
    stage.facts = Facts.parse(left.detail)
    if left.name == state.MOVED:
        return _finish_moved(stage)
    if left.name == state.SWITCHING and _may_finish(stage):
        return _finish(stage)
    _undo(stage, left)
    return None


def _undo(stage: Stage, left: Step) -> None:
    if left.name == state.SWITCHING:
        # Ended once more, it must not be finished with writers let in.
        stage.steps.enter(state.TURNED, stage.line.epoch, stage.facts.plain())
    stage.writers = stage.writers_here(stage.facts.way)
    rollback.release(stage, stage.writers, stage.facts.before)
    stage.back.remove()
    stage.downtime = Downtime(stage.how.max_downtime)
    stage.steps.enter(state.ROLLED_BACK, stage.line.epoch, stage.facts.plain())
    stage.facts = Facts(opens=stage.facts.opens, returns=returns(stage.plans))
    stage.said(
        f"an earlier {stage.command} of {stage.settings.task} ended at {left.name}: writers were let in again on"
        f" {stage.source}"
    )


def _may_finish(stage: Stage) -> bool:
    """Whether what was decided still holds: a lock may have ended with its process, and the old side gone on.

    False where nothing was written to the new side: it can be undone. Refuses where both were written to.
    """
    facts = stage.facts
    assert facts.final is not None
    stage.writers = stage.writers_here(facts.way)
    stage.downtime.begin(facts.locked_at)
    if facts.way not in (COMMAND, CALLBACK):  # theirs lasts, and may reach those at the new side
        stage.writers.hold(facts.before, stage.how.max_downtime)
    with KeyspaceStream(stage.request) as stream:
        late = changes_after(stream, facts.final, stage.plans)
    if not late or new_side.are_equal(stage):
        return True
    if facts.origin:
        new_side.lock(stage)
        if new_side.is_unused(stage):
            return False
        new_side.open_again(stage)
    raise WrittenAfterwards(
        f"{late.total()} changes were made on {stage.source} after writers were locked out"
        f" ({', '.join(f'{number} of {table}' for table, number in late.most_common())}), and are NOT on"
        f" {stage.target}, which may have been written to since: hold writers of both off, make the tables equal"
        f" (truecopy verify --repair), and truecopy {stage.command} again finishes it"
    )


def _finish(stage: Stage) -> CutoverReport:
    """What an earlier one had still to do after its decision is done again."""
    _say_finishing(stage, state.SWITCHING)
    stage.writers.ease()
    if stage.facts.origin:
        stage.begin_back()
    return switch.switch(stage)


def _finish_moved(stage: Stage) -> CutoverReport:
    """Writers are in the new side, and have written there."""
    _say_finishing(stage, state.MOVED)
    stage.downtime = Downtime.over(stage.facts.downtime)
    stage.writers = stage.writers_here(stage.facts.way)
    stage.notes.append(stage.writers.leave())
    return switch.let_go(stage)


def finish_without_source(stage: Stage, lost: CannotFinish) -> CutoverReport:
    """Ends what has moved writers already; before that nothing can be done without the old side, and that is raised."""
    left = Steps(stage.target, stage.settings.task).find()
    if left is None or left.name != state.MOVED:
        raise lost
    stage.open_without_source(left)
    _say_finishing(stage, state.MOVED)
    stage.downtime = Downtime.over(stage.facts.downtime)
    with pool.lease(stage.target) as target:
        stage.line = Ledger(cast(Any, target), stage.settings.task).claim({})
    stage.steps.take(stage.line.epoch)
    stage.notes.append(
        f"nothing more was done on {stage.source} ({lost}): what was made there to read its changes holds its log for"
        " as long as it is there; truecopy delete removes it"
    )
    with suppress(TruecopyError):
        stage.back.open_again()
    stage.enter(state.SWITCHED)
    return stage.end(state.SWITCHED)


def _say_finishing(stage: Stage, step: str) -> None:
    stage.said(f"an earlier {stage.command} of {stage.settings.task} ended at {step}: finishing it")
