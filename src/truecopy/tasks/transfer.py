"""From a task file to what a transfer does."""

from __future__ import annotations

from truecopy.model.errors import UsageError
from truecopy.tasks.ends import Address
from truecopy.tasks.file import Task
from truecopy.tasks.sections import Continuous, Throttle, Verify
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.limits import Limits
from truecopy.transfer.settings import Reading, Settings
from truecopy.transfer.webhook import Hook


def transfer_settings(task: Task) -> Settings:
    """The settings of a task between two databases."""
    if not isinstance(task.source, Address) or not isinstance(task.target, Address):
        raise UsageError(
            f"{task.path}: this is for tasks between two databases; a keyspace takes over shard by shard, when its file"
            " says which of them serve"
        )
    return settings_between(task, task.source.text, task.target.text)


def settings_between(task: Task, source: str, target: str) -> Settings:
    """The settings of a task, or of a part of it, between two URLs."""
    if task.validate_only:
        raise UsageError(f"{task.path}: validate-only writes nothing, so there is nothing to run")
    return Settings(
        task=task.task,
        source=source,
        target=target,
        tables=task.tables.include if task.tables.include != ("*",) else (),
        exclude=task.tables.exclude,
        rules=task.mapping_rules(),
        delivery=task.delivery,
        consistency=task.consistency,
        ddl=task.ddl,
        cascades=task.cascades,
        verify=chosen_verifiers(task.verify),
        continuous=continuous_options(task.verify.continuous) if task.verify.continuous else None,
        limits=transfer_limits(task.throttle),
        hook=Hook(task.webhook.url, task.webhook.events) if task.webhook else None,
        reading=Reading(
            task.stream.shard or "",
            task.stream.max_bytes,
            task.stream.parts,
            task.stream.skew,
            task.stream.max_lag,
            task.stream.settings,
        ),
        chunk_rows=task.chunks.rows or 0,
        chunk_bytes=task.chunks.bytes or 0,
        master=task.spark.master,
        spark=task.spark.settings,
        metastore=task.metastore,
    )


def chosen_verifiers(verify: Verify) -> tuple[str, ...]:
    """The names of the verifiers that a task asks for."""
    names = ("inline", "iterative", "checksum", "target")
    return tuple(name for name in names if getattr(verify, name))


def continuous_options(asked: Continuous) -> ContinuousOptions:
    """What a task's section `continuous` says."""
    given = {name: getattr(asked, name) for name in ContinuousOptions.__dataclass_fields__}
    return ContinuousOptions(
        **given | {"connections": asked.connections or 0, "rate": asked.rate or 0}
    )


def transfer_limits(throttle: Throttle) -> Limits:
    """What a task's `throttle` section says."""
    return Limits(
        rate=throttle.rate or 0,
        connections=throttle.connections or 0,
        statement_seconds=throttle.statement_seconds,
        replicas=tuple(replica.text for replica in throttle.replicas),
        max_lag=throttle.max_lag,
        hours=throttle.hours,
        timezone=throttle.timezone,
    )
