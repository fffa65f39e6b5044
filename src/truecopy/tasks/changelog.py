"""From a task file to a change log of its source, in its target."""

from __future__ import annotations

from dataclasses import dataclass, field

from truecopy.model.errors import UsageError
from truecopy.stream.request import Request
from truecopy.tasks.ends import Address
from truecopy.tasks.file import Task


@dataclass(frozen=True)
class LogTask:
    """What is recorded, and where: a lake's folder, or tables of a database that go by the task's name."""

    request: Request
    to: str = field(repr=False)
    log: str


def log_task(task: Task) -> LogTask:
    """A task's change log, which keeps rows as they came: what would change them is refused."""
    ignored = {
        "routes": task.routes,
        "transformers": task.transformers,
        "tables.rules": task.tables.rules,
        "tables.exclude": task.tables.exclude,
    }
    if given := [name for name, value in ignored.items() if value]:
        raise UsageError(
            f"{task.path}: {given[0]}: a change log keeps rows as they came; leave it out, or name the tables under"
            " tables.include"
        )
    if not isinstance(task.target, Address):
        raise UsageError(f"{task.path}: target: a change log is kept in one place; name a URL")
    how, settings = task.stream, dict(task.stream.settings)
    if task.cascades == "target":
        raise UsageError(
            f"{task.path}: cascades: target: a change log has no foreign keys that cascade; leave those tables out"
        )
    request = Request(
        task.stream_endpoint,
        shard=how.shard or "",
        tables=task.tables.include if task.tables.include != ("*",) else (),
        max_bytes=how.max_bytes,
        parts=how.parts,
        skew=how.skew,
        max_lag=how.max_lag,
        settings=settings,
    )
    return LogTask(request, task.target.text, task.task.replace(".", "-"))
