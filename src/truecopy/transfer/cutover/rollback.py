"""Back to replicating: writers are let into the old side again, and nobody finishes what was given up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from truecopy.engines import connect
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.transfer.cutover import state
from truecopy.transfer.cutover.downtime import NoAnswer, within
from truecopy.transfer.cutover.facts import CutoverReport
from truecopy.transfer.cutover.stage import Stage
from truecopy.transfer.cutover.writers import Writers
from truecopy.transfer.ledger import Overtaken

T = TypeVar("T")

_TRIES = 5
_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0
_UNDECIDED = (*state.LOCKED, state.SWITCHING)
"""Steps of a cutover that may yet let writers in again."""


def roll_back(stage: Stage, error: BaseException) -> CutoverReport:
    """Lets writers into the old side again, unless somebody else is at it."""
    try:
        _take_back(stage, error)
    except Overtaken as overtaken:
        if stage.is_locking:
            _undo_late_lock(stage, overtaken)
        raise
    reason = str(error) if isinstance(error, TruecopyError) else f"{type(error).__name__}: {error}"
    if stage.downtime.has_begun:
        release(stage, stage.writers, stage.facts.before)
        stage.downtime.end()
        waited = f"{stage.downtime.seconds:.2f} s"
        stage.said(f"{stage.settings.task}: writers are in again ({waited}): {reason}")
    with suppress(NoAnswer):  # whoever comes next removes it
        within(_PATIENCE_SECONDS, stage.back.remove)
    _withdraw_certificate(stage)
    _note_rollback(stage)
    # Whoever has taken the task over replicates it: going on here would take it away again.
    if isinstance(error, Overtaken) or not isinstance(error, Exception):
        raise error
    report = stage.end(state.ROLLED_BACK, reason)
    return replace(report, told=error.told) if isinstance(error, TruecopyError) else report


def release(stage: Stage, writers: Writers, before: Mapping[str, Any]) -> None:
    """Tries for a while, with new sessions: nothing is worse than writers who stay locked out."""
    for attempt in range(1, _TRIES + 1):
        try:
            stage.notes += writers.release(before)
        except TruecopyError as error:
            if attempt == _TRIES:
                raise _locked_out(stage, f"{error}", "lets them in") from error
            time.sleep(_PAUSE_SECONDS * attempt)
            with suppress(TruecopyError):
                stage.here = stage.stack.enter_context(connect(stage.source))
                writers = stage.writers_here(writers.way)
        else:
            return


def _undo_late_lock(stage: Stage, overtaken: Overtaken) -> None:
    """Whoever has taken over knows nothing of this lock, and says that writers are in; unless they have moved since."""
    began = time.monotonic()
    try:
        while (found := _patiently(stage.steps.find)) is not None and found.name in _UNDECIDED:
            if time.monotonic() - began > stage.how.max_downtime:
                break
            time.sleep(_PAUSE_SECONDS)
    except TruecopyError as lost:
        why = f"{overtaken}; and {stage.target} does not say how far that is ({lost})"
        raise _locked_out(stage, why, "finishes it, or lets them in") from None
    if found is not None and found.name in (*_UNDECIDED, state.MOVED, state.SWITCHED):
        raise CannotFinish(
            f"{overtaken}; it is at {found.name}, so that {stage.source} stays locked ({stage.writers.way}), by"
            " this late one as well: see truecopy status, and where writers were not moved, let them in by hand"
        ) from None
    release(stage, stage.writers, stage.facts.before)


def _take_back(stage: Stage, error: BaseException) -> None:
    """Makes sure that nobody finishes what is given up."""
    try:
        if stage.is_deciding:
            _patiently(lambda: stage.steps.give_up(stage.line.epoch))
        found = _patiently(stage.steps.find)
        if found is not None and found.epoch != stage.line.epoch:
            raise Overtaken(f"another cutover of {stage.settings.task} has taken over") from error
        if found is not None and found.name == state.SWITCHING:
            # A process that ends between the release and the rollback leaves what is undone, not finished.
            facts = stage.facts.plain()
            _patiently(lambda: stage.steps.enter(state.TURNED, stage.line.epoch, facts))
    except Overtaken:
        raise
    except TruecopyError as lost:
        # Without an answer it is sure only before it was decided that nobody will finish it.
        if stage.is_deciding:
            raise _locked_out(
                stage,
                f"{error}; and {stage.target} does not say how far it is ({lost})",
                "finishes it, or lets them in",
            ) from error


def _patiently(ask: Callable[[], T]) -> T:
    """Asks the target for a while, in which its connection may be lost; one that stands still is not waited for."""
    began = time.monotonic()
    for attempt in range(1, _TRIES):
        try:
            return within(_PATIENCE_SECONDS, ask)
        except Overtaken:
            raise
        except TruecopyError:
            if time.monotonic() - began > _PATIENCE_SECONDS:
                raise
            time.sleep(_PAUSE_SECONDS * attempt)
    return within(_PATIENCE_SECONDS, ask)


def _withdraw_certificate(stage: Stage) -> None:
    """What was found after it was written, it does not say."""
    if stage.facts.certificate:
        for kind in (".json", ".html"):
            Path(stage.facts.certificate).with_suffix(kind).unlink(missing_ok=True)
        stage.facts.certificate = ""


def _note_rollback(stage: Stage) -> None:
    """Writers are in again by now: a target that does not answer must not hide that."""
    try:
        within(_PATIENCE_SECONDS, lambda: stage.enter(state.ROLLED_BACK))
    except Overtaken:
        raise
    except TruecopyError as error:
        stage.notes.append(
            f"{stage.target} still says that a cutover is under way ({error}): truecopy {stage.command} again, once it"
            " answers, begins anew"
        )


def _locked_out(stage: Stage, why: str, then: str) -> CannotFinish:
    return CannotFinish(
        f"writers are STILL LOCKED OUT of {stage.source} ({stage.writers.way}): {why}; truecopy {stage.command}"
        f" again {then}"
    )
