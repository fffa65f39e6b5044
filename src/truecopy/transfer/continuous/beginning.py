"""Where a validation begins: now, at a time or a token, where it stood, or with what a run of the task replicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from truecopy.engines import pool
from truecopy.metastore.validations import Standing, Validations
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import contains, parse_position
from truecopy.model.token import EventToken, KeyspacePosition
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.log import LogGone
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request, parse_point
from truecopy.transfer.continuous.applied import Place, require_views
from truecopy.transfer.control import COUNTS, Control
from truecopy.transfer.ledger import REPLICATE, TASKS, Ledger
from truecopy.transfer.settings import Settings
from truecopy.transfer.status import is_running

BATCH_BYTES = 32 << 20
"""The most that a batch reads of the log, where a task does not say less: what workers hold at a time."""


def stream_of(settings: Settings) -> Request:
    """The stream of the source, beside that of the replication: with a slot of its own where there are slots.

    It lets go of nothing by itself: a batch that Spark has done with may be held, and is not stored.
    """
    request = settings.request
    own = {**request.settings, "slot": settings.slot("validate ")}
    most = min(request.max_bytes, BATCH_BYTES)
    return replace(request, settings=own, max_bytes=most, releases=False)


def keep_log(settings: Settings) -> None:
    """Has the source keep its log for the validation from now on, where it keeps one for each who reads."""
    with KeyspaceStream(stream_of(settings)) as stream:
        if not stream.missing():
            stream.current()


def claim(
    settings: Settings, mode: str, start: str | None, at: Mapping[str, Place] | None
) -> Standing:
    """Takes a validation over, or begins it.

    Args:
        settings: The task.
        mode: How it compares from now on.
        start: `current`, a time or a token; None to go on.
        at: Where one begins that is new, or as near as the log reaches back; None for now.
    """
    _require_target(settings)
    store = Validations()
    standing = store.find(settings.task)
    if standing is not None and start is None:
        return store.claim(settings.task, mode, standing.position)
    wanted = None if start is not None else at
    position = _reached(settings, wanted) if wanted else _find(settings, start or "current")
    if standing is None:
        return store.claim(settings.task, mode, position)
    if _is_back(position, standing.position):
        return store.claim_back(settings.task, mode, position)
    return store.claim_anew(settings.task, mode, position)


def _is_back(position: Mapping[str, Place], stands: Mapping[str, Place]) -> bool:
    """Whether it stands further on, in every shard, or as far."""
    pairs = [
        (parse_position(at), parse_position(stands[shard][0]))
        for shard, (at, _) in position.items()
        if shard in stands
    ]
    is_elsewhere = any(new != old for new, old in pairs)
    return is_elsewhere and len(pairs) == len(stands) and all(contains(b, a) for a, b in pairs)


def replicated_from(settings: Settings, is_new: bool) -> dict[str, Place] | None:
    """Where the changes begin that this run brings, by which the task may have begun; None before it replicates."""
    with pool.lease(parse_endpoint(settings.target)) as session:
        target: Any = session
        if target.find(TASKS) is None:
            return None
        ledger = Ledger(target, settings.task)
        line, progress = ledger.find(), ledger.progress()
    if line is None or line.phase != REPLICATE:
        return None
    found = _places(Offset.parse(line.origin))
    # Later runs do not go back to the copy: its log may be gone.
    for part, place in progress.items() if not is_new else ():
        if part in found:
            found[part] = place
    return found


def _require_target(settings: Settings) -> None:
    """Refuses a target that cannot be looked at, and a task that only copies: it has no changes to be looked at."""
    with pool.lease(parse_endpoint(settings.target)) as session:
        require_views(session)
        found: Any = session
        if found.find(TASKS) is None:
            return
        line = Ledger(found, settings.task).find()
        control = Control(found, settings.task)
        report = control.report() if found.find(COUNTS) is not None else None
    # A copy that is under way may go on to replicate: validation waits for that.
    if line is not None and line.phase != REPLICATE and not is_running(line, report):
        raise UsageError(
            f"{settings.task} has only copied rows so far, and replicates nothing that could be validated: run it"
            " without --snapshot-only"
        )


def _find(settings: Settings, start: str) -> dict[str, Place]:
    point = parse_point(start, ("current",))
    with KeyspaceStream(stream_of(settings)) as stream:
        if lines := stream.missing():
            raise CannotFinish("; ".join(lines))
        return _places(stream.start(point))


def _reached(settings: Settings, at: Mapping[str, Place]) -> Mapping[str, Place]:
    """The places, or where the log begins that does not reach back to them."""
    with KeyspaceStream(stream_of(settings)) as stream:
        try:
            stream.start(position_of(at))
        except LogGone:
            return _places(stream.start("start"))
    return at


def position_of(places: Mapping[str, Place]) -> KeyspacePosition:
    """Places by shard as a point of the stream."""
    return KeyspacePosition(
        tuple(
            EventToken(committed_at, shard, parse_position(position))
            for shard, (position, committed_at) in places.items()
        )
    )


def _places(offset: Offset) -> dict[str, Place]:
    return {shard: (mark.position, mark.committed_at) for shard, mark in offset.marks.items()}
