"""From a task file to its continuous validation."""

from __future__ import annotations

from dataclasses import replace

from truecopy.model.errors import UsageError
from truecopy.tasks.file import Task
from truecopy.tasks.legs import transfer_legs
from truecopy.tasks.sections import Continuous
from truecopy.tasks.transfer import continuous_options
from truecopy.transfer.continuous.options import AUTO, TASK, ContinuousOptions
from truecopy.transfer.settings import Settings


def validation_legs(task: Task) -> tuple[Settings, ...]:
    """What is validated: the transfers of a task, whoever carries them out."""
    return transfer_legs(task.model_copy(update={"validate_only": False}))


def validation_options(task: Task) -> ContinuousOptions:
    """How it is validated; by default as if the file said `continuous: true`."""
    asked = task.verify.continuous or Continuous()
    if asked.applied == "task" and task.validate_only:
        raise UsageError(
            f"{task.path}: applied: task: with validate-only another tool replicates; write replica or lag"
        )
    options = continuous_options(asked)
    # What a task of ours has applied its target knows; before the task has begun, a lag would be a guess.
    is_ours = options.applied == AUTO and not task.validate_only
    return replace(options, applied=TASK) if is_ours else options
