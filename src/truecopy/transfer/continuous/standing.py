"""How validations stand, for people, programs and Prometheus: what the metastore says of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from truecopy.metastore.validation_errors import ErrorRow
from truecopy.metastore.validations import RUNNING, STOPPED, Pending, Stage, Standing, Validations
from truecopy.model.errors import UsageError
from truecopy.model.exposition import Metric, Sample, exposition
from truecopy.model.position import distance, parse_position
from truecopy.transfer.continuous.judge import MICROSECONDS

FRESH_SECONDS = 20.0
"""A process that has said nothing for so long is gone."""


@dataclass(frozen=True)
class Validation:
    """One validation as the metastore knows it."""

    standing: Standing
    pending: Pending
    errors: Mapping[str, int]
    tables: Mapping[str, Stage]

    @property
    def is_lost(self) -> bool:
        """Whether it should run, and its process is gone."""
        silent = time.time() - self.standing.heard_at / MICROSECONDS
        return self.standing.state == RUNNING and silent > FRESH_SECONDS

    @property
    def state(self) -> str:
        return STOPPED if self.is_lost else self.standing.state

    @property
    def message(self) -> str:
        if self.is_lost:
            return "its process is gone: validate start goes on where it was"
        return self.standing.message

    @property
    def lag_seconds(self) -> float | None:
        """How far behind the source's changes it is; None where nobody knows."""
        lag = self.standing.report.get("lag_seconds")
        return None if self.state != RUNNING or lag is None else float(lag)

    @property
    def lag_positions(self) -> int | None:
        """The same in the log's own measure: transactions, or bytes; None where that cannot be told."""
        checked, ends = (self.standing.report.get(name) or {} for name in ("checked", "log_end"))
        if not checked or checked.keys() != ends.keys() or self.state != RUNNING:
            return None
        found = [distance(parse_position(checked[s]), parse_position(ends[s])) for s in ends]
        return None if None in found else sum(filter(None, found))

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        standing = self.standing
        return {
            "task": standing.task,
            "state": self.state,
            "message": self.message,
            "mode": standing.mode,
            "processed": dict(standing.processed),
            "pending": dict(self.pending.rows),
            "failed": dict(self.pending.failed),
            "pending_bytes": self.pending.size,
            "errors": dict(self.errors),
            "caught_up": standing.caught_up,
            "lag_seconds": self.lag_seconds,
            "lag_positions": self.lag_positions,
            "rows_per_second": standing.report.get("rows_per_second"),
            "waits": standing.report.get("waits") or None,
            "applied_by": standing.report.get("applied_by"),
            "position": {shard: position for shard, (position, _) in standing.position.items()},
            "started_at": moment(standing.started_at),
            "heard_at": moment(standing.heard_at),
            "tables": {
                stage.name: {"stage": stage.stage, "message": stage.message}
                for stage in self.tables.values()
            },
        }


def read_validation(task: str) -> Validation:
    """What the metastore says of a validation; refused where there is none."""
    store = Validations()
    standing = store.find(task)
    if standing is None:
        raise UsageError(f"{task} is not validated: truecopy validate start begins it")
    return Validation(standing, store.pending(task), store.errors.counts(task), store.stages(task))


def plain_error(error: ErrorRow) -> dict[str, Any]:
    """An error for JSON."""
    return {
        "id": error.id,
        "table": error.table,
        "key": dict(error.key),
        "kind": error.kind,
        "status": error.status,
        "columns": list(error.columns),
        "source": error.source,
        "target": error.target,
        "first_failed_at": moment(error.first_failed_at),
        "last_failed_at": moment(error.last_failed_at),
    }


def prometheus(validations: Sequence[Validation]) -> str:
    """The figures in the text form that Prometheus scrapes."""
    samples = (sample for one in validations for sample in _samples(one))
    return exposition("truecopy_validate_", METRICS, samples)


METRICS = (
    Metric("running", "gauge", "1 while a process validates the task."),
    Metric("caught_up", "gauge", "1 once the validation has caught up with the source."),
    Metric("processed_total", "counter", "Row changes taken up, by kind."),
    Metric("pending_rows", "gauge", "Row changes that are not settled, by kind."),
    Metric("failed_rows", "gauge", "Those of them that were seen wrong so far, by kind."),
    Metric("pending_bytes", "gauge", "What the metastore keeps of them."),
    Metric("errors", "gauge", "Rows that failed for longer than the delay, by status."),
    Metric("lag_seconds", "gauge", "Age of the last checked change, while there are newer ones."),
    Metric(
        "lag_positions",
        "gauge",
        "Transactions, or bytes, between what was checked and the end of the log.",
    ),
    Metric("rows_per_second", "gauge", "Changes per second in the last check."),
    Metric("tables_stopped", "gauge", "Tables that stand still, with a message in the status."),
    Metric("heard_timestamp_seconds", "gauge", "When the process was heard of last."),
)


def _samples(one: Validation) -> Iterator[Sample]:
    standing, task = one.standing, {"task": one.standing.task}
    yield "running", task, int(one.state == RUNNING)
    yield "caught_up", task, int(standing.caught_up)
    for kind, count in standing.processed.items():
        yield "processed_total", {**task, "kind": kind}, count
    for kind, count in one.pending.rows.items():
        yield "pending_rows", {**task, "kind": kind}, count
    for kind, count in one.pending.failed.items():
        yield "failed_rows", {**task, "kind": kind}, count
    yield "pending_bytes", task, one.pending.size
    for status, count in one.errors.items():
        yield "errors", {**task, "status": status}, count
    yield "lag_seconds", task, one.lag_seconds
    yield "lag_positions", task, one.lag_positions
    yield "rows_per_second", task, standing.report.get("rows_per_second")
    yield "tables_stopped", task, sum(stage.stage == STOPPED for stage in one.tables.values())
    yield "heard_timestamp_seconds", task, standing.heard_at / MICROSECONDS


def moment(microseconds: int) -> str | None:
    """A time for programs; None for never."""
    if not microseconds:
        return None
    return datetime.fromtimestamp(microseconds / MICROSECONDS, UTC).isoformat()
