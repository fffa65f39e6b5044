"""The figures of all tasks in the text form that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterator

from truecopy.metastore.tasks import (
    FAILED,
    RESTARTING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
)
from truecopy.model.errors import UsageError
from truecopy.server.control import Control
from truecopy.server.models import TaskSummary
from truecopy.transfer.continuous.standing import prometheus as validation_figures
from truecopy.transfer.continuous.standing import read_validation

_STATES = (RUNNING, STARTING, RESTARTING, STOPPING, STOPPED, FAILED)
_VERDICTS = ("equal", "different", "not_compared")
_METRICS = (
    ("state", "gauge", "1 for the state that the task is in."),
    ("wanted", "gauge", "1 where the task is to run."),
    ("lag_seconds", "gauge", "How far the target is behind the source."),
    ("rate", "gauge", "Rows per second while rows are copied, else changes."),
    ("rows_copied", "gauge", "Rows that were copied."),
    ("rows_about", "gauge", "Rows that there were to copy, as the source guessed."),
    ("changes_applied_total", "counter", "Changes that were applied."),
    ("verdict", "gauge", "1 for what the last verification said."),
)


def prometheus(plane: Control) -> str:
    """All figures."""
    summaries = plane.summaries()
    lines = []
    for name, kind, about in _METRICS:
        full = f"truecopy_task_{name}"
        samples = [
            f"{full}{{{labels}}} {value}"
            for one in summaries
            for sample, labels, value in _samples(one)
            if sample == name and value is not None
        ]
        if samples:
            lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}", *samples]
    validations = []
    for one in summaries:
        try:
            validations.append(read_validation(one.name))
        except UsageError:
            continue  # it is not validated
    lines.append(f"truecopy_tasks {len(summaries)}")
    return "\n".join(lines) + "\n" + (validation_figures(validations) if validations else "")


def _samples(one: TaskSummary) -> Iterator[tuple[str, str, float | None]]:
    task = f'task="{one.name}"'
    for state in _STATES:
        yield "state", f'{task},state="{state}"', int(one.state == state)
    yield "wanted", task, int(one.wanted == RUNNING)
    if one.verdict is not None:
        for verdict in _VERDICTS:
            yield "verdict", f'{task},verdict="{verdict}"', int(one.verdict == verdict)
    if one.progress is not None:
        # What a run said that is gone is no figure of now.
        now = one.progress if one.state == RUNNING else None
        yield "lag_seconds", task, now.lag_seconds if now else None
        yield "rate", task, now.rate if now else None
        yield "rows_copied", task, one.progress.rows_copied
        yield "rows_about", task, one.progress.rows_about
        yield "changes_applied_total", task, one.progress.changes_applied
