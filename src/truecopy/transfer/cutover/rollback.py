"""Back to replicating: writers are let into the old side again, and nobody finishes what was given up."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from truecopy.engines import connect
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.transfer.cutover import state
from truecopy.transfer.cutover.facts import CutoverReport
from truecopy.transfer.cutover.stage import Stage
from truecopy.transfer.cutover.state import Step
from truecopy.transfer.cutover.writers import Writers
from truecopy.transfer.ledger import Overtaken

_TRIES = 5
_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 10.0


def roll_back(stage: Stage, error: BaseException) -> CutoverReport:
    """Lets writers into the old side again, unless somebody else is at it."""
    try:
        _take_back(stage, error)
    except Overtaken:
        if stage.is_locking:
            # Whoever has taken over let writers in before this lock came to be, and says that they are in.
            release(stage, stage.writers, stage.facts.before)
        raise
    if stage.downtime.has_begun:
        release(stage, stage.writers, stage.facts.before)
        stage.downtime.end()
    stage.back.remove()
    _withdraw_certificate(stage)
    _note_rollback(stage)
    # Whoever has taken the task over replicates it: going on here would take it away again.
    if isinstance(error, Overtaken) or not isinstance(error, Exception):
        raise error
    reason = str(error) if isinstance(error, TruecopyError) else f"{type(error).__name__}: {error}"
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


def _take_back(stage: Stage, error: BaseException) -> None:
    """Makes sure that nobody finishes what is given up."""
    try:
        found = _ask_step(stage)
        if found is not None and found.epoch != stage.line.epoch:
            raise Overtaken(f"another cutover of {stage.settings.task} has taken over") from error
        if found is not None and found.name == state.SWITCHING:
            # A process that ends between the release and the rollback leaves what is undone, not finished.
            stage.steps.enter(state.TURNED, stage.line.epoch, stage.facts.plain())
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


def _ask_step(stage: Stage) -> Step | None:
    """Asks for a while: the connection to a target that is there may be lost."""
    began = time.monotonic()
    for attempt in range(1, _TRIES):
        try:
            return stage.steps.find()
        except TruecopyError:
            if time.monotonic() - began > _PATIENCE_SECONDS:
                raise
            time.sleep(_PAUSE_SECONDS * attempt)
    return stage.steps.find()


def _withdraw_certificate(stage: Stage) -> None:
    """What was found after it was written, it does not say."""
    if stage.facts.certificate:
        for kind in (".json", ".html"):
            Path(stage.facts.certificate).with_suffix(kind).unlink(missing_ok=True)
        stage.facts.certificate = ""


def _note_rollback(stage: Stage) -> None:
    """Writers are in again by now: a target that does not answer must not hide that."""
    try:
        stage.enter(state.ROLLED_BACK)
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
