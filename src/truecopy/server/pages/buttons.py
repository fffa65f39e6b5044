"""What can be done with a task, each with the command that does the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from truecopy.metastore.tasks import RUNNING
from truecopy.server.models import RunModel, TaskSummary
from truecopy.tasks.commands import CHECK, CUTOVER, REHEARSE, SWITCH_BACK, VERIFY

HELD = "paused"
"""How a run that was paused begins to say what it waits for."""


@dataclass(frozen=True)
class Button:
    """A form of one button.

    Attributes:
        twin: The command that does the same.
        fields: What is sent besides.
        style: `main`, `danger` or nothing.
    """

    label: str
    path: str
    twin: str
    fields: Mapping[str, str] = field(default_factory=dict)
    style: str = ""


TWINS = {
    VERIFY: "truecopy verify --task {}.yaml",
    CHECK: "truecopy check {}.yaml",
    REHEARSE: "truecopy cutover {}.yaml --rehearse",
    CUTOVER: "truecopy cutover {}.yaml",
    SWITCH_BACK: "truecopy switch-back {}.yaml",
}
"""The commands of runs; the task's file goes into them."""


def buttons_of(task: TaskSummary) -> Iterator[Button]:
    """Those of a task as it stands."""
    name, home = task.name, f"/tasks/{task.name}"
    if task.wanted == RUNNING:
        yield Button("Stop", f"{home}/stop", f"truecopy task stop {name}")
        waits = (task.progress and task.progress.waits) or ""
        if waits.startswith(HELD):
            yield Button("Resume", f"{home}/resume", f"truecopy resume {name}.yaml", style="main")
        else:
            yield Button("Pause", f"{home}/pause", f"truecopy pause {name}.yaml")
    else:
        yield Button("Start", f"{home}/start", f"truecopy task start {name}", style="main")
    yield run_button("Verify", name, VERIFY)
    yield run_button("Check", name, CHECK)


def run_button(label: str, name: str, kind: str) -> Button:
    """What asks for a run."""
    return Button(label, f"/tasks/{name}/runs", TWINS[kind].format(name), {"kind": kind})


def stop_button(run: RunModel) -> Button | None:
    """What ends a run; a cutover ends by itself."""
    if run.state == "ended" or (run.kind in (CUTOVER, REHEARSE, SWITCH_BACK) and run.started_at):
        return None
    twin = f"truecopy task stop-run {run.id}"
    return Button("Stop this run", f"/runs/{run.id}/stop", twin)
