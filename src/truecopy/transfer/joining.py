"""Where a run goes on: exactly at the target's progress, which must be the one that the task left there.

The target's progress is written in the transaction of the rows, so it cannot be wrong by a crash. It can be wrong by
hand, or be older than what the task has seen, where a target was restored from a backup: then changes would be skipped,
or positions that others have taken from the task would not hold any more. So what the task knows is kept in the
metastore, too, and both must join:

- What was noted after a batch is on the target. A target that does not contain it has gone back.
- The end of a batch is noted before it is applied. A target that is beyond every such end was put there by somebody.

A kill between any two steps leaves both true: of a batch that was begun, the target has all, some parts or nothing. A
run from elsewhere, with another metastore, makes the second one unknown here, and the first one stays true. A task that
began anew has another origin, and nothing to join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from truecopy.engines.protocols import Session
from truecopy.metastore.known_progress import Known, KnownProgress
from truecopy.model.errors import CannotFinish
from truecopy.model.position import Comparison, compare, contains, parse_position
from truecopy.stream.offset import Offset
from truecopy.transfer.apply import Place, shard_of
from truecopy.transfer.ledger import Ledger, TaskLine


class DoesNotJoin(CannotFinish):
    """The target's progress is not where the task left it."""


def require_joined(target: Session, task: str) -> None:
    """Refuses a target whose progress is not the one that the task left there; changes nothing."""
    notes = KnownProgress(task)
    before = notes.find()
    ledger = Ledger(cast(Any, target), task)
    line, progress = ledger.find(), ledger.progress()
    # Another run may be at work: what it did between the looks has moved its notes along with the target.
    after = notes.find()
    if line is None or before is None or after is None:
        return
    identity = target.endpoint.identity
    reason = ""
    if _is_of(before, line, identity):
        reason = gone_back(before, line, progress)
    if not reason and _is_of(after, line, identity) and after.epoch == line.epoch:
        reason = gone_ahead(after, progress)
    if reason:
        raise DoesNotJoin(
            f"{task} cannot go on at {target.endpoint}: {reason}; bring back the target and"
            " the metastore that it ran with last, or copy anew: truecopy delete, then truecopy run"
        )


def begin_notes(target: Session, task: str, line: TaskLine) -> None:
    """Takes the target's progress over, once the task is ours."""
    progress = Ledger(cast(Any, target), task).progress()
    known = Known(
        target.endpoint.identity,
        line.origin,
        line.epoch,
        {part: position for part, (position, _) in progress.items()},
        {},
    )
    KnownProgress(task).begin(known)


class Notes:
    """What the replication of a task notes of its own batches, as the one with this epoch."""

    def __init__(self, task: str, epoch: int) -> None:
        self._known = KnownProgress(task)
        self._epoch = epoch
        self._reached: dict[str, list[str]] = {}

    def begin(self, ends: Mapping[str, Place]) -> None:
        """Before a batch is applied that ends there."""
        for shard, (position, _) in ends.items():
            others = [one for one in self._reached.get(shard, ()) if not _contains(position, one)]
            self._reached[shard] = [*others, position]
        self._known.note_reached(self._reached, self._epoch)

    def end(self, progress: Mapping[str, Place]) -> None:
        """After it was; `progress` is that of all parts."""
        applied = {part: position for part, (position, _) in progress.items()}
        self._known.note_applied(applied, self._epoch)


def gone_back(known: Known, line: TaskLine, progress: Mapping[str, Place]) -> str:
    """Why the target has less than the task had applied; empty where it has all of it."""
    if line.epoch < known.epoch:
        return "a later run of the task has written there than the last one that it knows of"
    origin = _positions(line.origin)
    for part, position in known.applied.items():
        shard = shard_of(part)
        now = progress[part][0] if part in progress else origin.get(shard, "")
        how = compare(parse_position(now), parse_position(position))
        # Of cursors, the order may not be known: the end of a batch that was begun is known by itself.
        may_be = how is Comparison.UNKNOWN and now in known.reached.get(shard, ())
        if how in (Comparison.OLDER, Comparison.UNKNOWN) and not may_be:
            return f"changes of {part} were applied up to {position}, and it stands at {now}"
    return ""


def gone_ahead(known: Known, progress: Mapping[str, Place]) -> str:
    """Why the target cannot have got where it says; empty where it can."""
    origin = _positions(known.origin)
    for part, (position, _) in progress.items():
        shard = shard_of(part)
        allowed: Sequence[str | None] = [
            *known.reached.get(shard, ()),
            *(at for one, at in known.applied.items() if shard_of(one) == shard),
            origin.get(shard),
        ]
        if not any(at is not None and _contains(at, position) for at in allowed):
            return f"it says that changes of {part} were applied up to {position}, which no run has done"
    return ""


def _is_of(known: Known, line: TaskLine, identity: str) -> bool:
    return known.target == identity and known.origin == line.origin


def _positions(origin: Mapping[str, Any]) -> dict[str, str]:
    return {shard: mark.position for shard, mark in Offset.parse(origin).marks.items()}


def _contains(a: str, b: str) -> bool:
    return contains(parse_position(a), parse_position(b))
