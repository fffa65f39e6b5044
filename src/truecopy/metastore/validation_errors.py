"""Errors that a validation has found, and what was asked for by hand about them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, delete, func, insert, or_, select, update

from truecopy.metastore.validation_schema import ERROR, VALIDATION, of_task

NEW, IGNORED, RESOLVED = "new", "ignored", "resolved"
STATUSES = NEW, IGNORED, RESOLVED
_CLEARED = "cleared"
"""Not to be shown any more; the line goes when the validator has let go of the row."""


@dataclass(frozen=True)
class Found:
    """What a round says of an error: that a row is wrong, or (`resolved`) that it has come right."""

    name: str
    table: str
    resolved: bool = False
    kind: str = ""
    key: Mapping[str, str | None] = field(default_factory=dict)
    columns: Sequence[str] = ()
    source: Mapping[str, str | None] | None = None
    target: Mapping[str, str | None] | None = None
    first_failed_at: int = 0
    last_failed_at: int = 0


@dataclass(frozen=True)
class ErrorRow:
    """An error as it is shown."""

    id: int
    name: str
    table: str
    status: str
    kind: str
    key: Mapping[str, str | None]
    columns: Sequence[str]
    source: Mapping[str, str | None] | None
    target: Mapping[str, str | None] | None
    first_failed_at: int
    last_failed_at: int


@dataclass(frozen=True)
class Wish:
    """What was asked for by hand of one error, as it stood when it was read."""

    id: int
    name: str
    asked_at: int | None
    released_at: str | None


@dataclass(frozen=True)
class Wishes:
    """What was asked for by hand, and not followed so far."""

    each: Sequence[Wish] = ()

    def __bool__(self) -> bool:
        return bool(self.each)

    @property
    def asked(self) -> frozenset[str]:
        """Names of rows that are to be looked at now."""
        return frozenset(wish.name for wish in self.each if wish.released_at is None)

    @property
    def released(self) -> dict[str, dict[str, str]]:
        """Names of rows that are to be let go of: by shard, the position behind which changes are no part of that."""
        return {
            wish.name: {shard: at for shard, (at, _) in json.loads(wish.released_at).items()}
            for wish in self.each
            if wish.released_at is not None
        }


class ValidationErrors:
    """The errors of all validations."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(
        self, task: str, statuses: Sequence[str] = STATUSES, ids: Sequence[int] | None = None
    ) -> Iterator[ErrorRow]:
        """Those with one of these statuses, in the order of their numbers."""
        wanted = of_task(select(ERROR), task).where(ERROR.c.status.in_(statuses))
        if ids is not None:
            wanted = wanted.where(ERROR.c.id.in_(ids))
        with self._engine.connect().execution_options(yield_per=1000) as connection:
            for row in connection.execute(wanted.order_by(ERROR.c.id)).mappings():
                yield _error_row(row)

    def page(
        self, tasks: Sequence[str], statuses: Sequence[str], offset: int, limit: int
    ) -> list[ErrorRow]:
        """Some of those of several tasks, in the order of their numbers."""
        c = ERROR.c
        wanted = select(ERROR).where(c.task.in_(tasks), c.status.in_(statuses))
        wanted = wanted.order_by(c.id).offset(offset).limit(limit)
        with self._engine.connect() as connection:
            return [_error_row(row) for row in connection.execute(wanted).mappings()]

    def counts(self, task: str) -> dict[str, int]:
        wanted = of_task(select(ERROR.c.status, func.count()), task).group_by(ERROR.c.status)
        with self._engine.connect() as connection:
            found = {status: int(count) for status, count in connection.execute(wanted)}
        return {status: found.get(status, 0) for status in STATUSES}

    def ignore(self, task: str, ids: Sequence[int] | None) -> int:
        """Has nobody troubled by errors any more; they stay under watch."""
        return self._change(task, ids, (NEW,), status=IGNORED)

    def resolve(self, task: str, ids: Sequence[int] | None) -> int:
        """Takes errors for settled: their rows are looked at again when they change."""
        return self._change(task, ids, (NEW, IGNORED), status=RESOLVED, released_at=_taken_up(task))

    def clear(self, task: str, ids: Sequence[int] | None) -> int:
        """Removes errors from the record, and their rows from watch."""
        return self._change(task, ids, STATUSES, status=_CLEARED, released_at=_taken_up(task))

    def recheck(self, task: str, ids: Sequence[int] | None) -> int:
        """Has errors looked at by the next round."""
        return self._change(task, ids, (NEW, IGNORED), asked_at=_now())

    def wishes(self, task: str) -> Wishes:
        """What was asked for by hand since the last round."""
        c = ERROR.c
        wanted = of_task(select(c.id, c.name, c.asked_at, c.released_at), task)
        wanted = wanted.where(or_(c.asked_at.is_not(None), c.released_at.is_not(None)))
        with self._engine.connect() as connection:
            rows = connection.execute(wanted).all()
        return Wishes(tuple(Wish(*row) for row in rows))

    def _change(
        self, task: str, ids: Sequence[int] | None, statuses: Sequence[str], **values: object
    ) -> int:
        wanted = of_task(update(ERROR), task).where(ERROR.c.status.in_(statuses))
        if ids is not None:
            wanted = wanted.where(ERROR.c.id.in_(ids))
        with self._engine.begin() as connection:
            return connection.execute(wanted.values(**values)).rowcount


def note_error(connection: Connection, task: str, found: Found) -> None:
    """Records what a round says of an error."""
    identity = hashlib.sha256(found.name.encode()).hexdigest()
    open_ones = (
        of_task(update(ERROR), task)
        .where(ERROR.c.identity == identity)
        .where(ERROR.c.status.in_((NEW, IGNORED)))
    )
    if found.resolved:
        connection.execute(open_ones.values(status=RESOLVED, asked_at=None))
        return
    values = {
        "kind": found.kind,
        "row_key": _json(found.key),
        "columns": _json(found.columns),
        "source": _json(found.source),
        "target": _json(found.target),
        "first_failed_at": found.first_failed_at,
        "last_failed_at": found.last_failed_at,
    }
    if connection.execute(open_ones.values(**values)).rowcount:
        return
    # Settled by hand while the round looked at it: the next round lets go of what was settled, and looks anew at what
    # has changed since; until then this is no new error.
    settled = of_task(select(ERROR.c.id), task)
    settled = settled.where(ERROR.c.identity == identity, ERROR.c.released_at.is_not(None))
    if connection.execute(settled).first() is None:
        connection.execute(
            insert(ERROR).values(
                task=task,
                identity=identity,
                name=found.name,
                table_name=found.table,
                status=NEW,
                **values,
            )
        )


def tick_off(connection: Connection, task: str, wish: Wish) -> None:
    """Forgets a wish that was followed, unless another one has come in its place."""
    c = ERROR.c
    mine = c.id == wish.id
    if wish.released_at is not None:
        followed = mine, c.released_at == wish.released_at
        connection.execute(
            of_task(delete(ERROR), task).where(*followed).where(c.status == _CLEARED)
        )
        connection.execute(of_task(update(ERROR), task).where(*followed).values(released_at=None))
    if wish.asked_at is not None:
        followed = mine, c.asked_at == wish.asked_at
        connection.execute(of_task(update(ERROR), task).where(*followed).values(asked_at=None))


def _taken_up(task: str) -> Any:
    """How far changes were taken up, as the database knows it while it carries out the statement that asks."""
    at = of_task(select(VALIDATION.c.position), task).scalar_subquery()
    return func.coalesce(at, "{}")


def _error_row(row: RowMapping) -> ErrorRow:
    return ErrorRow(
        row["id"],
        row["name"],
        row["table_name"],
        row["status"],
        row["kind"],
        json.loads(row["row_key"]),
        json.loads(row["columns"]),
        json.loads(row["source"]),
        json.loads(row["target"]),
        row["first_failed_at"],
        row["last_failed_at"],
    )


def _json(value: object) -> str:
    return json.dumps(value if not isinstance(value, tuple) else list(value), ensure_ascii=False)


def _now() -> int:
    return time.time_ns() // 1000
