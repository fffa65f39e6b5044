"""Writers of the new side: let in there, or, where the switch has failed, kept from it; and whether one has written."""

from __future__ import annotations

from contextlib import suppress

from truecopy.engines import pool
from truecopy.engines.protocols import Session
from truecopy.engines.writers import READ_ONLY, TABLES, HoldsOffWriters
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.spark import session as spark_session
from truecopy.transfer.cutover import state
from truecopy.transfer.cutover.downtime import within
from truecopy.transfer.cutover.settings import CALLBACK, COMMAND, NONE, How
from truecopy.transfer.cutover.stage import Stage
from truecopy.transfer.cutover.writers import Writers, find_way, writers_of
from truecopy.transfer.proof.checksum import compare_whole
from truecopy.transfer.proof.chosen import CHECKSUM
from truecopy.transfer.proof.verifier import Scene


def require_open(stage: Stage, way: str) -> None:
    """Refuses what would end with writers on neither side: nobody could be let in there."""
    with pool.lease(stage.target) as target:
        if not isinstance(target, HoldsOffWriters):
            return
        there = target.writers()
        if isinstance(stage.here, HoldsOffWriters) and stage.here.writers().closes(way, target):
            raise UsageError(
                f"{stage.source} and {stage.target} are on one server, and lock: {way} would close all of it: use"
                " cutover.lock: tables, or a command"
            )
        is_opened = _locks_itself(stage) or stage.how.commands.switch or stage.how.callback
        if READ_ONLY in there.ways and not is_opened and there.is_held(READ_ONLY, ()):
            raise UsageError(
                f"{stage.target} is read-only, and nobody could be let in there: SET GLOBAL read_only = 0, or give"
                " cutover.commands.switch, which opens it"
            )


def let_in(stage: Stage) -> None:
    """Writers into the new side. What was locked there, when it was the old one, is opened first."""
    within(stage.how.max_downtime, lambda: _open(stage))
    stage.hooks.switch(stage.how.max_downtime)
    stage.downtime.end()


def lock(stage: Stage) -> list[str]:
    """Whoever was let in there must not write when it is undone; gives what somebody should know of it."""
    if stage.facts.way in (COMMAND, CALLBACK, NONE) and not _locks_itself(stage):
        return []  # who let writers in there brings them back as well
    was_open = not _locks_itself(stage)
    try:
        within(stage.how.max_downtime, lambda: _lock(stage))
    except TruecopyError as error:
        if was_open:
            open_again(stage)
        return [
            f"{stage.target} could not be locked ({error}): make sure that nobody was moved there"
        ]
    way = stage.facts.opens["way"]
    return [
        f"{stage.target} is locked ({way}): writers may have been moved there; the next {stage.command} opens it"
    ]


def _lock(stage: Stage) -> None:
    with pool.lease(stage.target) as target:
        if not _locks_itself(stage):
            way = find_way(target, How())
            if isinstance(stage.here, HoldsOffWriters) and stage.here.writers().closes(way, target):
                raise CannotFinish(f"{way} would close {stage.source} as well, on the same server")
            before = _writers(stage, target, way).survey()
            stage.facts.opens = {"way": way, "before": before}
        # Written down before, so that whoever comes next can open it; and after, since we must go on writing.
        _note(stage)
        writers = _writers(stage, target, stage.facts.opens["way"])
        writers.hold(stage.facts.opens["before"], stage.how.max_downtime)
        writers.ease()
        _note(stage)


def open_again(stage: Stage) -> None:
    """Lets those go on who are there already; where that fails, the next cutover does it."""
    with suppress(TruecopyError):
        within(stage.how.max_downtime, lambda: _open(stage))


def is_unused(stage: Stage) -> bool:
    """Whether it is sure that nothing was written there: its log tells, or both sides being equal still."""
    origin, returns = stage.facts.origin, stage.facts.returns
    is_so = (lambda: stage.back.is_unused(origin, returns)) if origin else lambda: are_equal(stage)
    try:
        return within(stage.how.max_downtime, is_so)
    except TruecopyError:
        return False


def are_equal(stage: Stage) -> bool:
    """Compares whole tables: where they are equal, nothing is lost on either side."""
    spark = spark_session(stage.settings.master)
    scene = Scene(stage.settings.task, stage.settings.annotation, stage.plans, spark)
    return not compare_whole(CHECKSUM, scene, list(stage.plans.values())).found


def _open(stage: Stage) -> None:
    if _locks_itself(stage):
        with pool.lease(stage.target) as target:
            opens = stage.facts.opens
            writers = _writers(stage, target, opens["way"])
            stage.notes += writers.release(opens.get("before", {}))


def _locks_itself(stage: Stage) -> bool:
    """Whether the new side was told to hold writers off by itself, for as long as it takes."""
    return stage.facts.opens.get("way", NONE) not in (COMMAND, CALLBACK, NONE, TABLES)


def _writers(stage: Stage, target: Session, way: str) -> Writers:
    tables = [plan.target.tables[0] for plan in stage.plans.values()]
    return writers_of(target, way, tables, stage.hooks)


def _note(stage: Stage) -> None:
    stage.steps.enter(state.SWITCHING, stage.line.epoch, stage.facts.plain())
