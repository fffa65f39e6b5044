"""From a task file to its continuous validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from truecopy.model.errors import UsageError
from truecopy.tasks.file import Task
from truecopy.tasks.legs import transfer_legs
from truecopy.tasks.sections import Continuous
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.continuous.validator import Validator
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
    given = {name: getattr(asked, name) for name in ContinuousOptions.__dataclass_fields__}
    return ContinuousOptions(
        **given | {"connections": asked.connections or 0, "rate": asked.rate or 0}
    )


def validators_beside(
    task: Task, legs: Sequence[Settings], said: Callable[[str], None]
) -> list[Validator]:
    """Those that run with the task; none where it does not ask for it.

    A leg that was turned around by a cutover replicates back: it is another one than the file describes.
    """
    if task.verify.continuous is None:
        return []
    forth = {leg.source for leg in transfer_legs(task)}
    options = validation_options(task)
    return [Validator(leg, options, said) for leg in legs if leg.source in forth]
