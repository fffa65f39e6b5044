"""What continuous validation must not lose: how far it is, what is pending, and the errors it has found.

A round is stored in one transaction: position, pending rows, errors and counters, all of it or nothing. Whoever
stores must be the last one that claimed the task: an older process finds its epoch gone, and stores nothing.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, func, insert, or_, select, update

from truecopy.metastore.database import open_metastore
from truecopy.metastore.validation_errors import (
    NEW,
    STATUSES,
    Found,
    ValidationErrors,
    Wishes,
    note_error,
    tick_off,
)
from truecopy.metastore.validation_schema import ERROR, KINDS, PENDING, TABLE, VALIDATION, of_task
from truecopy.model.errors import CannotFinish, UsageError

RUNNING, STOPPED = "running", "stopped"
_SUMS = (
    *(func.coalesce(func.sum(PENDING.c[f"{kind}_rows"]), 0) for kind in KINDS),
    *(func.coalesce(func.sum(PENDING.c[f"{kind}_failed"]), 0) for kind in KINDS),
    func.coalesce(func.sum(PENDING.c.error_rows), 0),
    func.coalesce(func.sum(PENDING.c.size), 0),
    func.min(PENDING.c.due_at),
)
"""What is pending, in numbers; see `_summed`."""


class TakenOver(CannotFinish):
    """Another process validates the task by now."""


@dataclass(frozen=True)
class Standing:
    """How a validation stands; times in microseconds.

    Attributes:
        position: By shard: the position up to which changes were taken up, and the commit time there.
        processed: Changes by kind, since it was first started.
        report: What the running process said last: lag, rates, what it waits for.
    """

    task: str
    epoch: int
    state: str
    message: str
    stop_asked: bool
    mode: str
    position: Mapping[str, tuple[str, int]]
    processed: Mapping[str, int]
    caught_up: bool
    started_at: int
    heard_at: int
    report: Mapping[str, Any]


@dataclass(frozen=True)
class Stage:
    """How one table stands."""

    name: str
    stage: str = RUNNING
    message: str = ""


@dataclass(frozen=True)
class PendingPart:
    """Pending rows of one part of the keys: a blob, and what it holds. A part may have several.

    Attributes:
        counts: Rows by kind of change, without errors.
        failed: Those of them that were seen wrong.
    """

    part: str
    payload: bytes
    counts: Mapping[str, int]
    errors: int
    due_at: int
    failed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Pending:
    """What is pending, in numbers; errors under watch are counted apart.

    Attributes:
        rows: By kind of change.
        failed: Those of them that were seen wrong, and may become errors.
    """

    rows: Mapping[str, int]
    failed: Mapping[str, int]
    errors: int
    size: int
    due_at: int | None

    @property
    def total(self) -> int:
        return sum(self.rows.values())


class Validations:
    """The validations of all tasks; by default in a file of the state folder.

    Attributes:
        errors: What they have found.
    """

    def __init__(self, url: str | None = None) -> None:
        self._engine = open_metastore(url)
        self.errors = ValidationErrors(self._engine)

    # A validation's life

    def find(self, task: str) -> Standing | None:
        with self._engine.connect() as connection:
            row = connection.execute(of_task(select(VALIDATION), task)).mappings().first()
        return _standing(row) if row else None

    def all(self) -> list[tuple[Standing, Pending, dict[str, int], dict[str, Stage]]]:
        """Every validation, with what is pending, errors by status, and its tables; in a few statements."""
        with self._engine.connect() as connection:
            ask = connection.execute
            ordered = select(VALIDATION).order_by(VALIDATION.c.task)
            standings = [_standing(row) for row in ask(ordered).mappings()]
            sums = ask(select(PENDING.c.task, *_SUMS).group_by(PENDING.c.task))
            pending = {task: _summed(row) for task, *row in sums}
            counted = select(ERROR.c.task, ERROR.c.status, func.count())
            errors = {
                (task, status): int(count)
                for task, status, count in ask(counted.group_by(ERROR.c.task, ERROR.c.status))
            }
            stages: dict[str, dict[str, Stage]] = {}
            for row in ask(select(TABLE).order_by(TABLE.c.name)):
                stages.setdefault(row.task, {})[row.name] = Stage(row.name, row.stage, row.message)
        nothing = _summed((0,) * (len(_SUMS) - 1) + (None,))
        return [
            (
                one,
                pending.get(one.task, nothing),
                {status: errors.get((one.task, status), 0) for status in STATUSES},
                stages.get(one.task, {}),
            )
            for one in standings
        ]

    def claim(self, task: str, mode: str, position: Mapping[str, tuple[str, int]]) -> Standing:
        """Takes a validation over, or begins it at a position; from then on it runs."""
        with self._engine.begin() as connection:
            return _claim(connection, task, mode, position)

    def claim_back(self, task: str, mode: str, position: Mapping[str, tuple[str, int]]) -> Standing:
        """Takes a validation over at a position that it has passed: what is pending is read once more."""
        with self._engine.begin() as connection:
            _claim(connection, task, mode, position)
            return _place(connection, task, position)

    def claim_anew(self, task: str, mode: str, position: Mapping[str, tuple[str, int]]) -> Standing:
        """Takes a validation over at another position: what is pending means nothing any more.

        Raises:
            UsageError: Errors are open that nobody would look at again.
        """
        with self._engine.begin() as connection:
            _claim(connection, task, mode, position)
            _require_settled(connection, task)
            for table in (PENDING, TABLE):
                connection.execute(of_task(delete(table), task))
            return _place(connection, task, position)

    def hear(self, task: str, epoch: int, report: Mapping[str, Any]) -> bool:
        """Notes that the process is there; whether it was asked to stop."""
        with self._engine.begin() as connection:
            self._require(connection, task, epoch)
            values = {"heard_at": _now(), "report": json.dumps(dict(report))}
            connection.execute(of_task(update(VALIDATION), task).values(**values))
            asked = select(VALIDATION.c.stop_asked)
            return bool(connection.execute(of_task(asked, task)).scalar_one())

    def ask_stop(self, task: str) -> None:
        """Asks a running process to stop."""
        with self._engine.begin() as connection:
            connection.execute(of_task(update(VALIDATION), task).values(stop_asked=True))

    def stop(self, task: str, message: str = "", epoch: int | None = None) -> None:
        """Notes that it stands still, and why."""
        with self._engine.begin() as connection:
            wanted = of_task(update(VALIDATION), task)
            if epoch is not None:
                wanted = wanted.where(VALIDATION.c.epoch == epoch)
            connection.execute(wanted.values(state=STOPPED, message=message))

    def delete(self, task: str) -> bool:
        """Forgets a validation whole; False where there was none."""
        with self._engine.begin() as connection:
            for table in (PENDING, ERROR, TABLE):
                connection.execute(of_task(delete(table), task))
            return connection.execute(of_task(delete(VALIDATION), task)).rowcount > 0

    # Tables

    def stages(self, task: str) -> dict[str, Stage]:
        with self._engine.connect() as connection:
            rows = connection.execute(
                of_task(select(TABLE), task).order_by(TABLE.c.name)
            ).mappings()
            return {row["name"]: Stage(row["name"], row["stage"], row["message"]) for row in rows}

    def set_stages(self, task: str, stages: Sequence[Stage]) -> None:
        if not stages:
            return
        with self._engine.begin() as connection:
            for one in stages:
                mine = of_task(delete(TABLE), task).where(TABLE.c.name == one.name)
                connection.execute(mine)
                connection.execute(insert(TABLE).values(task=task, **vars(one)))

    # A round

    def store(
        self,
        task: str,
        epoch: int,
        position: Mapping[str, tuple[str, int]],
        processed: Mapping[str, int],
        parts: Iterable[str],
        pending: Iterable[PendingPart],
        found: Iterable[Found],
        caught_up: bool,
        obeyed: Wishes | None = None,
    ) -> None:
        """Stores a round.

        Args:
            task: Whose it is.
            epoch: Of the claim.
            position: Where the changes end that the round took up.
            processed: How many there were, by kind.
            parts: Those that the round has gone through: what was pending there is replaced.
            pending: What is pending there now.
            found: What to say of errors.
            caught_up: Whether it has caught up by now.
            obeyed: The wishes that were followed; those that came meanwhile wait for the next round.
        """
        with self._engine.begin() as connection:
            self._require(connection, task, epoch)
            row = connection.execute(of_task(select(VALIDATION), task)).mappings().one()
            before = json.loads(row["processed"])
            total = {kind: before[kind] + processed.get(kind, 0) for kind in KINDS}
            connection.execute(
                of_task(update(VALIDATION), task).values(
                    position=json.dumps({**json.loads(row["position"]), **position}),
                    processed=json.dumps(total),
                    caught_up=caught_up or row["caught_up"],
                )
            )
            for part in parts:
                mine = of_task(delete(PENDING), task).where(PENDING.c.part == part)
                connection.execute(mine)
            pieces = Counter[str]()
            for one in pending:
                _keep(connection, task, one, pieces[one.part])
                pieces[one.part] += 1
            for wish in obeyed.each if obeyed else ():
                tick_off(connection, task, wish)
            for what in found:
                note_error(connection, task, what)

    # What is pending

    def pending(self, task: str) -> Pending:
        with self._engine.connect() as connection:
            return _summed(connection.execute(of_task(select(*_SUMS), task)).one())

    def parts(self, task: str, parts: Sequence[str], due_at: int) -> Iterator[tuple[str, bytes]]:
        """The blobs of some parts, and of those that have something due by then."""
        wanted = of_task(select(PENDING.c.part, PENDING.c.payload), task)
        # Lists of names are kept short; what is more than that is all of it.
        if len(parts) <= 500:
            due = select(PENDING.c.part).where(PENDING.c.task == task)
            due = due.where(PENDING.c.due_at <= due_at)
            wanted = wanted.where(or_(PENDING.c.part.in_(parts), PENDING.c.part.in_(due)))
        with self._engine.connect() as connection:
            yield from connection.execute(wanted)

    def _require(self, connection: Connection, task: str, epoch: int) -> None:
        """Locks the line: what follows holds for the one who has the task."""
        mine = of_task(update(VALIDATION), task).where(VALIDATION.c.epoch == epoch)
        if not connection.execute(mine.values(epoch=epoch)).rowcount:
            raise TakenOver(f"another process validates {task} by now, or it was deleted")


def _claim(
    connection: Connection, task: str, mode: str, position: Mapping[str, tuple[str, int]]
) -> Standing:
    changes = {"state": RUNNING, "message": "", "stop_asked": False, "mode": mode}
    changes |= {"heard_at": _now(), "started_at": _now(), "report": "{}"}
    taken = connection.execute(
        of_task(update(VALIDATION), task).values(epoch=VALIDATION.c.epoch + 1, **changes)
    )
    if not taken.rowcount:
        connection.execute(
            insert(VALIDATION).values(
                task=task,
                epoch=1,
                position=json.dumps(dict(position)),
                processed=json.dumps(dict.fromkeys(KINDS, 0)),
                caught_up=False,
                **changes,
            )
        )
    return _found(connection, task)


def _place(connection: Connection, task: str, position: Mapping[str, tuple[str, int]]) -> Standing:
    values = {"position": json.dumps(dict(position)), "caught_up": False}
    connection.execute(of_task(update(VALIDATION), task).values(**values))
    return _found(connection, task)


def _found(connection: Connection, task: str) -> Standing:
    return _standing(connection.execute(of_task(select(VALIDATION), task)).mappings().one())


def _require_settled(connection: Connection, task: str) -> None:
    """Where changes are passed over, an error would stay that nobody looks at any more."""
    open_ones = of_task(select(func.count()).select_from(ERROR), task).where(ERROR.c.status == NEW)
    if count := connection.execute(open_ones).scalar_one():
        raise UsageError(
            f"{count} errors of {task} are open, and would not be looked at again: repair, resolve or clear them first"
            " (truecopy validate errors lists them), or go on without --from"
        )


def _keep(connection: Connection, task: str, one: PendingPart, piece: int) -> None:
    connection.execute(
        insert(PENDING).values(
            task=task,
            part=one.part,
            piece=piece,
            error_rows=one.errors,
            size=len(one.payload),
            due_at=one.due_at,
            payload=one.payload,
            **{f"{kind}_rows": one.counts.get(kind, 0) for kind in KINDS},
            **{f"{kind}_failed": one.failed.get(kind, 0) for kind in KINDS},
        )
    )


def _summed(row: Sequence[Any]) -> Pending:
    *counts, errors, size, due_at = row
    rows, failed = (
        dict(zip(KINDS, map(int, some), strict=True))
        for some in (counts[: len(KINDS)], counts[len(KINDS) :])
    )
    return Pending(rows, failed, int(errors), int(size), due_at)


def _standing(row: RowMapping) -> Standing:
    position = {shard: (at, when) for shard, (at, when) in json.loads(row["position"]).items()}
    known = dict(row) | {
        "position": position,
        "processed": json.loads(row["processed"]),
        "report": json.loads(row["report"]),
    }
    return Standing(**known)


def _now() -> int:
    return time.time_ns() // 1000
