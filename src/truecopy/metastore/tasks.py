"""The tasks of a control plane: their files, what is wanted of them, and how they stand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from truecopy.metastore.control import now
from truecopy.metastore.control import sample as _sample
from truecopy.metastore.control import task as _task
from truecopy.metastore.database import open_metastore
from truecopy.model.errors import UsageError
from truecopy.telemetry import traceparent

TASK, SUITE = "task", "suite"
"""Kinds: a task file, and a suite of queries."""
RUNNING, STOPPED = "running", "stopped"
"""What can be wanted, and two of the states that a task can be in."""
STARTING, RESTARTING, STOPPING, FAILED = "starting", "restarting", "stopping", "failed"
KEPT_SECONDS = 24 * 3600
"""For how long samples are kept."""
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class TaskLine:
    """A task as the metastore knows it.

    Attributes:
        text: The file. It says where secrets are, and holds none.
        command: What runs it: `run`, or `validate` for a file that only validates.
        master: Where Spark runs it, if the file does not say; empty for the server's own choice.
        hook: Where its changes of state are told: `url`, as a reference, and `events`; empty for nowhere.
        wanted: `running` or `stopped`.
        state: What its keeper said last, with a `message`.
        progress: What the run said last, and when.
        trace: The span that its start was asked for in; empty without one.
    """

    name: str
    kind: str
    text: str = field(repr=False)
    command: str = "run"
    master: str = ""
    hook: Mapping[str, Any] = field(default_factory=dict, repr=False)
    wanted: str = STOPPED
    state: str = STOPPED
    message: str = ""
    progress: Mapping[str, Any] = field(default_factory=dict)
    progress_at: int = 0
    made_by: str = ""
    made_at: int = 0
    trace: str = ""

    @property
    def lease(self) -> str:
        """The name of the lease of whoever runs it."""
        return lease_name(self.kind, self.name)


@dataclass(frozen=True)
class Sample:
    """How a task stood at a moment, for charts."""

    at: int
    lag_seconds: float | None
    rate: float
    rows_copied: int
    changes_applied: int


def lease_name(kind: str, name: str) -> str:
    """The lease of whoever runs a task."""
    return f"{kind}:{name}"


class Tasks:
    """The tasks of a metastore."""

    def __init__(self, url: str | None = None) -> None:
        self._engine = open_metastore(url)

    def add(self, line: TaskLine) -> TaskLine:
        values = {**vars(line), "made_at": now()}
        values |= {name: json.dumps(values[name]) for name in ("hook", "progress")}
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(_task).values(**values))
        except IntegrityError:
            raise UsageError(f"there is a {line.kind} {line.name} already") from None
        found = self.find(line.name, line.kind)
        assert found is not None
        return found

    def find(self, name: str, kind: str = TASK) -> TaskLine | None:
        wanted = select(_task).where(_task.c.name == name, _task.c.kind == kind)
        with self._engine.connect() as connection:
            row = connection.execute(wanted).mappings().first()
        return _line(row) if row else None

    def all(self, kind: str | None = None) -> list[TaskLine]:
        wanted = select(_task).order_by(_task.c.kind, _task.c.name)
        if kind is not None:
            wanted = wanted.where(_task.c.kind == kind)
        with self._engine.connect() as connection:
            return [_line(row) for row in connection.execute(wanted).mappings()]

    def want(self, name: str, wanted: str, kind: str = TASK) -> None:
        """Says whether a task is to run."""
        mine = update(_task).where(_task.c.name == name, _task.c.kind == kind)
        with self._engine.begin() as connection:
            connection.execute(mine.values(wanted=wanted, trace=traceparent()))

    def remove(self, name: str, kind: str = TASK) -> bool:
        with self._engine.begin() as connection:
            connection.execute(delete(_sample).where(_sample.c.task == name))
            gone = delete(_task).where(_task.c.name == name, _task.c.kind == kind)
            return connection.execute(gone).rowcount > 0

    def samples(self, name: str, since: int = 0) -> list[Sample]:
        """Those of a task from a moment on, the oldest first."""
        c = _sample.c
        wanted = select(c.at, c.lag_seconds, c.rate, c.rows_copied, c.changes_applied)
        wanted = wanted.where(c.task == name, c.at > since).order_by(c.at)
        with self._engine.connect() as connection:
            return [Sample(*row) for row in connection.execute(wanted)]


# What the keeper of a task says, in transactions that its lease holds together


def say_state(connection: Connection, line: TaskLine, state: str, message: str) -> None:
    """How the task stands."""
    mine = update(_task).where(_task.c.name == line.name, _task.c.kind == line.kind)
    connection.execute(mine.values(state=state, message=message))


def say_wanted(connection: Connection, line: TaskLine, wanted: str) -> None:
    """That the task is not to run any more, since it cannot."""
    mine = update(_task).where(_task.c.name == line.name, _task.c.kind == line.kind)
    connection.execute(mine.values(wanted=wanted))


def say_progress(connection: Connection, line: TaskLine, progress: Mapping[str, Any]) -> None:
    """How far its run is."""
    mine = update(_task).where(_task.c.name == line.name, _task.c.kind == line.kind)
    text = json.dumps(dict(progress), ensure_ascii=False)
    connection.execute(mine.values(progress=text, progress_at=now()))


def add_sample(connection: Connection, line: TaskLine, progress: Mapping[str, Any]) -> None:
    """The same for charts; those of yesterday go."""
    at = now()
    old = delete(_sample).where(
        _sample.c.task == line.name, _sample.c.at < at - KEPT_SECONDS * _MICROSECONDS
    )
    connection.execute(old)
    connection.execute(
        insert(_sample).values(
            task=line.name,
            at=at,
            lag_seconds=progress.get("lag_seconds"),
            rate=progress.get("rate") or 0.0,
            rows_copied=progress.get("rows_copied") or 0,
            changes_applied=progress.get("changes_applied") or 0,
        )
    )


def _line(row: RowMapping) -> TaskLine:
    parsed = {name: json.loads(row[name]) for name in ("hook", "progress")}
    return TaskLine(**{**row, **parsed})
