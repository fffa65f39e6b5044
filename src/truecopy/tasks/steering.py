"""A task from outside, by its file: how it stands, held up and let go on, its errors settled and repaired."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from truecopy.engines import connect
from truecopy.metastore.validation_errors import IGNORED, NEW
from truecopy.metastore.validations import Validations
from truecopy.model.endpoint import Endpoint, mask_secrets, parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.tasks.file import Task
from truecopy.tasks.legs import transfer_legs
from truecopy.tasks.validation import validation_legs
from truecopy.transfer.control import Control
from truecopy.transfer.cutover.back import back_name
from truecopy.transfer.cutover.standing import heading
from truecopy.transfer.cutover.state import UNDER_WAY, Step, Steps
from truecopy.transfer.limits import Limits
from truecopy.transfer.settings import Settings
from truecopy.transfer.status import read_status

_VERIFIERS = ("inline", "iterative", "checksum", "target", "continuous")


def verifiers(task: Task) -> list[str]:
    """Those that the task file chooses."""
    return [name for name in _VERIFIERS if getattr(task.verify, name)]


def status_documents(task: Task) -> list[dict[str, Any]]:
    """How each leg stands, as its target knows; without secrets."""
    chosen, legs = verifiers(task), heading_legs(task)
    found = [
        {**read_status(leg).plain(), "cutover": _step(step), "verifiers": chosen}
        for leg, step in legs
    ]
    masked: list[dict[str, Any]] = without_secrets(found, [leg for leg, _ in legs])
    return masked


def heading_legs(task: Task) -> list[tuple[Settings, Step | None]]:
    """Each leg as it goes now, forth or back, and how far its cutover is."""
    return [heading(leg) for leg in transfer_legs(task)]


def controls(task: Task) -> Iterator[tuple[Settings, Control]]:
    """The settings of each leg, and its wishes in the target; tables are made there for one that has not begun."""
    for settings, _ in heading_legs(task):
        with connect(parse_endpoint(settings.target)) as target:
            control = Control(cast(Any, target), settings.task)
            control.create()
            yield settings, control


def throttle(
    task: Task, changes: Mapping[str, Any], *, reset: bool
) -> Iterator[tuple[str, Limits, Mapping[str, Any]]]:
    """Changes the pace of each leg; what is in force from now on, and what of it is not as in the file.

    Args:
        task: Whose pace.
        changes: As `Limits.plain` names them; none to be told only.
        reset: First go back to what the file says.
    """
    for settings, control in controls(task):
        before = {} if reset else dict(control.wishes().throttle)
        after = {**before, **changes}
        limits = settings.limits.changed(after)  # refuses what makes no sense before it is kept
        if reset or changes:
            control.throttle(after)
        yield settings.task, limits, after


def cutover_documents(task: Task) -> list[dict[str, Any]]:
    """How far the cutover of each leg is, and that of its way back."""
    found = []
    for leg in transfer_legs(task):
        forth = Steps(parse_endpoint(leg.target), leg.task).find()
        back = Steps(parse_endpoint(leg.source), back_name(leg.task)).find()
        found.append({"task": leg.task, "cutover": _step(forth), "switch_back": _step(back)})
    return found


def repair_errors(
    task: Task, ids: Sequence[int] | None, *, all_open: bool, apply: bool
) -> tuple[int, str]:
    """How many statements bring the rows of errors right, and their script; or they are run on the target.

    Args:
        task: Whose errors.
        ids: Some of them; None for all that are new.
        all_open: Those that are ignored, too.
        apply: Run them, without a script.
    """
    from truecopy.transfer.continuous.repair import apply_repair, plan_repair, write_repair

    store, legs = Validations(), validation_legs(task)
    statuses = (NEW, IGNORED) if ids or all_open else (NEW,)
    count, scripts = 0, []
    found = [list(store.errors.of(leg.task, statuses, ids or None)) for leg in legs]
    if ids and not any(found):
        raise UsageError(f"no open error has one of these numbers: {', '.join(map(str, ids))}")
    for leg, errors in zip(legs, found, strict=True):
        planned = plan_repair(leg, errors, None) if errors else None
        if planned is None:
            continue
        count += planned.statements
        if apply:
            apply_repair(leg, planned)
            store.errors.recheck(leg.task, [error.id for error in errors])
        else:
            scripts.append(write_repair(leg, planned))
    return count, "\n".join(scripts)


def without_secrets(document: Any, legs: Sequence[Settings]) -> Any:
    """A document in which no secret of an end stands."""
    ends: tuple[Endpoint, ...] = tuple(
        parse_endpoint(end) for leg in legs for end in (leg.source, leg.target)
    )
    return json.loads(mask_secrets(json.dumps(document, ensure_ascii=False), ends))


def _step(step: Step | None) -> dict[str, Any] | None:
    if step is None:
        return None
    return {
        "step": step.name,
        "since": step.when,
        "under_way": step.name in UNDER_WAY,
        "certificate": step.detail.get("certificate") or None,
    }
