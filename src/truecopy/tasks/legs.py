"""From a task file to its legs: one transfer for each pair of a source shard and a target that share rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.keyspace import WHOLE, KeyRange, Sharding
from truecopy.tasks.ends import Address, Shards
from truecopy.tasks.file import Task
from truecopy.tasks.transfer import settings_between, transfer_settings
from truecopy.transfer.leg import Leg
from truecopy.transfer.settings import AT_MOST_ONCE, TRANSACTION, Settings


@dataclass(frozen=True)
class _End:
    """A database at one end: a shard by its name, or the only one."""

    name: str
    key_range: KeyRange
    servers: tuple[str, ...]


def transfer_legs(task: Task) -> tuple[Settings, ...]:
    """The transfers that a task is: a single one between two databases."""
    if isinstance(task.source, Address) and isinstance(task.target, Address):
        return (transfer_settings(task),)
    sources, targets = _ends(task.source, "source"), _ends(task.target, "target")
    sharding = {**_sharding(task.source), **_sharding(task.target)}
    pairs = [
        (source, target)
        for target in targets
        for source in sources
        if source.key_range.overlaps(target.key_range)
    ]
    if not pairs:
        raise UsageError(f"{task.path}: no shard of the source has rows for a shard of the target")
    answering = {source: _answering(source) for source, _ in pairs}
    return tuple(
        _leg(task, source, target, answering[source], sharding) for source, target in pairs
    )


def _leg(
    task: Task,
    source: _End,
    target: _End,
    server: str,
    sharding: Mapping[str, Sharding],
) -> Settings:
    names = (task.task, source.name, target.name)
    leg = Leg(
        task.task,
        source.name or str(WHOLE),
        source.key_range,
        target.key_range,
        target.name,
        sharding,
    )
    # A colon is in no task's name, so that a leg is never taken for another task.
    settings = settings_between(task, server, target.servers[0])
    settings = replace(settings, task=":".join(filter(None, names)), leg=leg)
    if not target.name:
        return settings
    if settings.delivery == AT_MOST_ONCE:
        raise UsageError(
            f"{task.path}: delivery: at-most-once cannot be had on a shard, which records what it holds with the rows;"
            " write at-least-once or exactly-once"
        )
    # A shard's log tells by the transaction what came from where, so that a batch is one.
    return replace(settings, consistency=TRANSACTION)


def _ends(end: Address | Shards, which: str) -> tuple[_End, ...]:
    if isinstance(end, Address):
        return (_End("", WHOLE, (end.text,)),)
    whole = end.whole()
    shards = whole.serving if which == "source" else whole.shards
    return tuple(_End(shard.name, shard.key_range, shard.servers) for shard in shards)


def _sharding(end: Address | Shards) -> Mapping[str, Sharding]:
    return {} if isinstance(end, Address) else end.whole().sharding


def _answering(source: _End) -> str:
    """The first server that answers: rows and changes of a leg are read from one, which knows where both stand."""
    failures = []
    for server in source.servers:
        if len(source.servers) == 1:
            return server
        try:
            with connect(parse_endpoint(server)):
                return server
        except CannotFinish as error:
            failures.append(str(error))
    raise CannotFinish(f"no server of shard {source.name} answers: {'; '.join(failures)}")
