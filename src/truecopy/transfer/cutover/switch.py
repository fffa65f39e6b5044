"""The switch: writers are let into the new side, and what reads the old one is let go."""

from __future__ import annotations

from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.stream.removal import remove
from truecopy.transfer.cutover import new_side, rollback, state
from truecopy.transfer.cutover.back import is_back
from truecopy.transfer.cutover.facts import CutoverReport
from truecopy.transfer.cutover.stage import Stage


def switch(stage: Stage) -> CutoverReport:
    """It was decided for the new side; taken back only where it is sure that nobody has written there."""
    try:
        new_side.let_in(stage)
    except TruecopyError as error:
        locked = new_side.lock(stage)
        if new_side.is_unused(stage):
            stage.notes += locked
            return rollback.roll_back(stage, error)
        new_side.open_again(stage)
        raise CannotFinish(
            f"writers may have been let into {stage.target}, but not for sure, and are STILL LOCKED OUT of"
            f" {stage.source} ({stage.writers.way}): {error}; mend that, and truecopy {stage.command} again"
            " finishes it"
        ) from None
    stage.facts.downtime = stage.downtime.seconds
    _leave(stage)
    stage.enter(state.MOVED)
    return let_go(stage)


def _leave(stage: Stage) -> None:
    """A lock may be gone with its session: then somebody may have written there since it was last asked for."""
    try:
        stage.notes.append(stage.writers.leave())
    except TruecopyError as error:
        raise CannotFinish(
            f"writers are in {stage.target} since {stage.facts.downtime:.2f} s after the lock, but {stage.source}"
            f" cannot be asked whether it kept others off until then: {error}; truecopy {stage.command} again looks"
            " into its log, and finishes it"
        ) from None


def let_go(stage: Stage) -> CutoverReport:
    """Nothing of the old side is needed any more; may be done again."""
    _stop_reading(stage)
    if stage.facts.origin:
        stage.back.open_again()
        stage.notes.append(
            f"truecopy run now replicates from {stage.target} back to {stage.source}, and"
            f" truecopy {'cutover' if is_back(stage.settings) else 'switch-back'} brings writers back"
        )
    stage.enter(state.SWITCHED)
    return stage.end(state.SWITCHED)


def _stop_reading(stage: Stage) -> None:
    """A slot that was left on the old side would hold its log for ever."""
    if stage.following is not None:
        stage.following.stop()
        stage.stream.close()
    try:
        remove(stage.request)
    except TruecopyError as error:
        stage.notes.append(
            f"what was made on {stage.source} to read its changes could not be removed ({error}): remove it,"
            " since it holds the log"
        )
