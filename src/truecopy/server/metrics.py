"""The figures of all tasks in the text form that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truecopy.metastore.tasks import (
    FAILED,
    RESTARTING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
)
from truecopy.model.exposition import Metric, Sample, exposition
from truecopy.server.control import Control
from truecopy.server.models import TaskSummary
from truecopy.transfer.continuous.standing import Validation
from truecopy.transfer.continuous.standing import prometheus as validation_figures

_STATES = (RUNNING, STARTING, RESTARTING, STOPPING, STOPPED, FAILED)
_VERDICTS = ("equal", "different", "not_compared")
METRICS = (
    Metric("tasks", "gauge", "Tasks that there are."),
    Metric("task_state", "gauge", "1 for the state that the task is in."),
    Metric("task_wanted", "gauge", "1 where the task is to run."),
    Metric("task_lag_seconds", "gauge", "How far the target is behind the source."),
    Metric("task_rate", "gauge", "Rows per second while rows are copied, else changes."),
    Metric("task_rows_copied", "gauge", "Rows that were copied."),
    Metric("task_rows_about", "gauge", "Rows that there were to copy, as the source guessed."),
    Metric("task_changes_applied_total", "counter", "Changes that were applied."),
    Metric("task_verdict", "gauge", "1 for what the last verification said."),
)


def prometheus(plane: Control) -> str:
    """All figures."""
    figures = exposition("truecopy_", METRICS, _samples(plane.summaries()))
    return figures + validation_figures([Validation(*one) for one in plane.validations.all()])


def _samples(summaries: Sequence[TaskSummary]) -> Iterator[Sample]:
    yield "tasks", {}, len(summaries)
    for one in summaries:
        yield from _of_task(one)


def _of_task(one: TaskSummary) -> Iterator[Sample]:
    task = {"task": one.name}
    for state in _STATES:
        yield "task_state", {**task, "state": state}, int(one.state == state)
    yield "task_wanted", task, int(one.wanted == RUNNING)
    if one.verdict is not None:
        for verdict in _VERDICTS:
            yield "task_verdict", {**task, "verdict": verdict}, int(one.verdict == verdict)
    if one.progress is not None:
        # What a run said that is gone is no figure of now.
        now = one.progress if one.state == RUNNING else None
        yield "task_lag_seconds", task, now.lag_seconds if now else None
        yield "task_rate", task, now.rate if now else None
        yield "task_rows_copied", task, one.progress.rows_copied
        yield "task_rows_about", task, one.progress.rows_about
        yield "task_changes_applied_total", task, one.progress.changes_applied
