"""The cutover, step by step: what speaks for it, what each step does, where it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from truecopy.metastore.tasks import RUNNING, TASK
from truecopy.metastore.validation_errors import NEW
from truecopy.model.errors import TruecopyError
from truecopy.server import models
from truecopy.server.control import Control
from truecopy.server.pages.buttons import TWINS, run_button
from truecopy.server.pages.rendering import seconds, show
from truecopy.server.pages.task import head
from truecopy.server.routing import NameInPath, Plane, Viewer
from truecopy.tasks.accepting import kept_task
from truecopy.tasks.commands import CHECK, CUTOVER, REHEARSE, SWITCH_BACK, VERIFY
from truecopy.tasks.file import Task
from truecopy.transfer.cutover import state
from truecopy.verify.report import EQUAL

router = APIRouter(prefix="/tasks/{name}/cutover")

RIGHT, WRONG, OPEN = "right", "wrong", "open"


@dataclass(frozen=True)
class Sign:
    """One thing that speaks for a cutover or against it; `open` where nobody looked."""

    place: str
    label: str
    said: str


@dataclass(frozen=True)
class Step:
    """A step; `place` is `done`, `here` or `ahead`."""

    label: str
    about: str
    place: str


@router.get("")
def cutover_page(name: NameInPath, request: Request, who: Viewer, plane: Plane) -> Response:
    """What the checks say, the steps, and the guarded button."""
    shown = head(plane, name, "cutover")
    task = kept_task(plane.line(name))
    try:
        found, problem = plane.cutover(name), ""
    except TruecopyError as error:
        found, problem = models.CutoverState(task=name, legs=[], runs=[]), str(error)
    leg = found.legs[0] if found.legs else {}
    forth, back = (leg.get(side) or {} for side in ("cutover", "switch_back"))
    switched = forth.get("step") == state.SWITCHED
    returning = switched and bool(back)
    kind = SWITCH_BACK if switched else CUTOVER
    here = back if returning else forth
    signs = list(_signs(plane, shown["task"], task))
    return show(
        request,
        who,
        "cutover",
        **shown,
        kind=kind,
        twin=TWINS[kind].format(name),
        signs=signs,
        doubts=any(sign.place != RIGHT for sign in signs),
        steps=_steps(here.get("step"), task),
        here=here,
        switched=switched,
        returning=returning,
        reverse=task.cutover.reverse,
        certificate=(forth.get("certificate") or "").rpartition("/")[2].removesuffix(".json"),
        problem=problem,
        open_run=next((run for run in found.runs if run.state != "ended"), None),
        runs=found.runs,
        rehearse=run_button("Rehearse", name, REHEARSE),
        check=run_button("Check", name, CHECK),
        verify=run_button("Verify", name, VERIFY),
    )


def _signs(plane: Control, shown: models.TaskDetail, task: Task) -> Iterator[Sign]:
    name, progress = shown.name, shown.progress
    running = shown.state == RUNNING
    yield Sign(RIGHT if running else OPEN, "The task runs", shown.message or shown.state)
    phase = progress.phase if progress else None
    replicates = phase == "replicate"
    yield Sign(RIGHT if replicates else WRONG, "All rows are copied", f"phase: {phase or 'none'}")
    lag = progress.lag_seconds if progress and running else None
    most = task.cutover.max_lag
    near = OPEN if lag is None else RIGHT if lag <= most else WRONG
    yield Sign(near, "The target is close behind", f"lag {seconds(lag)}, at most {seconds(most)}")
    yield _verdict(shown.verdict)
    yield _errors(plane, name)
    yield _last(plane, name, CHECK, "The check found nothing to mend")
    yield _last(plane, name, REHEARSE, "A rehearsal went well")


def _verdict(verdict: str | None) -> Sign:
    place = OPEN if verdict is None else RIGHT if verdict == EQUAL else WRONG
    said = (verdict or "not verified so far").replace("_", " ")
    return Sign(place, "The last verification found both sides equal", said)


def _errors(plane: Control, name: str) -> Sign:
    new = plane.errors(name, (NEW,), 0, 1).counts[NEW]
    place = WRONG if new else RIGHT
    return Sign(place, "Validation has no new errors", f"{new:,} new" if new else "none")


def _last(plane: Control, name: str, kind: str, label: str) -> Sign:
    run = next(iter(plane.runs.latest(name, TASK, (kind,), limit=1)), None)
    if run is None or not run.ended_at:
        return Sign(OPEN, label, "not done so far" if run is None else "under way")
    said = run.result.get("reason") or run.message or "done"
    if kind == REHEARSE and "downtime_seconds" in run.result:
        said = f"the write downtime would have been {seconds(run.result['downtime_seconds'])}"
    return Sign(RIGHT if run.exit_code == 0 else WRONG, label, said)


def _steps(at: str | None, task: Task) -> list[Step]:
    """The way of a cutover as its target notes it down."""
    how = task.cutover
    numbers = "go on where those of the source stand" if how.sequences else "stay as they are"
    turn = (
        "The way back begins: changes can be replicated back."
        if how.reverse
        else "There will be no way back, as the file says."
    )
    prove = (
        "What the verifiers have left is compared; the log must show that nobody wrote meanwhile."
    )
    steps = (
        (state.HOLDING, "Lock writers out", f"{_LOCKS[how.lock]} The write downtime begins."),
        (state.HELD, "Drain", "The source's log is asked for its end; all up to there is applied."),
        (state.DRAINED, "Prove", prove),
        (state.VERIFIED, "Number", f"Sequences and AUTO_INCREMENT of the target {numbers}."),
        (state.NUMBERED, "Certify", "The log is read once more, and the certificate is written."),
        (state.CERTIFIED, "Turn", turn),
        (state.TURNED, "Switch", "Writers are let into the new side. The write downtime ends."),
    )
    names = [name for name, _, _ in steps]
    if at in (state.MOVED, state.SWITCHED):
        done = len(steps)
    elif at == state.SWITCHING:
        done = len(steps) - 1
    else:
        done = names.index(at) if at in names else -1
    return [
        Step(label, about, "done" if i < done else "here" if i == done else "ahead")
        for i, (_, label, about) in enumerate(steps)
    ]


_LOCKS: dict[str, str] = {
    "auto": "As the source's engine does it best: a read-only server, or rights that are taken back.",
    "read-only": "The source's server becomes read-only.",
    "tables": "The tables are locked; writers wait.",
    "revoke": "Rights to write are taken from every role but our own.",
    "command": "The command of the file is run.",
    "callback": "The address of the file is told.",
    "none": "By hand: see to it before you begin.",
}
