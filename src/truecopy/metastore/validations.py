"""What continuous validation must not lose: how far it is, what is pending, and the errors it has found.

A round is stored in one transaction: position, pending rows, errors and counters, all of it or nothing. Whoever
stores must be the last one that claimed the task: an older process finds its epoch gone, and stores nothing.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    RowMapping,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from truecopy.metastore.database import open_metastore
from truecopy.model.errors import CannotFinish

RUNNING, STOPPED = "running", "stopped"
NEW, IGNORED, RESOLVED = "new", "ignored", "resolved"
STATUSES = NEW, IGNORED, RESOLVED
_CLEARED = "cleared"
"""Not to be shown any more; the line goes when the validator has let go of the row."""

_KINDS = "insert", "update", "delete"
_LARGE = (1 << 32) - 1

_metadata = MetaData()
_validation = Table(
    "validation",
    _metadata,
    Column("task", String(190), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("state", String(20), nullable=False),
    Column("message", Text, nullable=False),
    Column("stop_asked", Boolean, nullable=False),
    Column("mode", String(10), nullable=False),
    Column("position", Text, nullable=False),
    Column("processed", Text, nullable=False),
    Column("caught_up", Boolean, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("heard_at", BigInteger, nullable=False),
    Column("report", Text, nullable=False),
)
_table = Table(
    "validation_table",
    _metadata,
    Column("task", String(190), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("stage", String(20), nullable=False),
    Column("message", Text, nullable=False),
)
_pending = Table(
    "validation_pending",
    _metadata,
    Column("task", String(190), primary_key=True),
    Column("part", String(190), primary_key=True),
    Column("piece", Integer, primary_key=True),
    Column("insert_rows", BigInteger, nullable=False),
    Column("update_rows", BigInteger, nullable=False),
    Column("delete_rows", BigInteger, nullable=False),
    Column("error_rows", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("payload", LargeBinary(_LARGE), nullable=False),
)
_error = Table(
    "validation_error",
    _metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("task", String(190), nullable=False),
    Column("identity", String(64), nullable=False),
    Column("name", Text, nullable=False),
    Column("table_name", String(255), nullable=False),
    Column("status", String(20), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("row_key", Text, nullable=False),
    Column("columns", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("first_failed_at", BigInteger, nullable=False),
    Column("last_failed_at", BigInteger, nullable=False),
    # When somebody asked to look again; and how far changes were taken up when somebody let go of the row.
    Column("asked_at", BigInteger),
    Column("released_at", Text),
    Index("validation_error_row", "task", "identity"),
    Index("validation_error_status", "task", "status", "id"),
    sqlite_autoincrement=True,
)


_SUMS = (
    *(func.coalesce(func.sum(_pending.c[f"{kind}_rows"]), 0) for kind in _KINDS),
    func.coalesce(func.sum(_pending.c.error_rows), 0),
    func.coalesce(func.sum(_pending.c.size), 0),
    func.min(_pending.c.due_at),
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
    """Pending rows of one part of the keys: a blob, and what it holds. A part may have several."""

    part: str
    payload: bytes
    counts: Mapping[str, int]
    errors: int
    due_at: int


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


@dataclass(frozen=True)
class Pending:
    """What is pending, in numbers; errors under watch are counted apart."""

    rows: Mapping[str, int]
    errors: int
    size: int
    due_at: int | None

    @property
    def total(self) -> int:
        return sum(self.rows.values())


class Validations:
    """The validations of all tasks; by default in a file of the state folder."""

    def __init__(self, url: str | None = None) -> None:
        self._engine = open_metastore(url)

    # A validation's life

    def find(self, task: str) -> Standing | None:
        with self._engine.connect() as connection:
            row = connection.execute(_of(select(_validation), task)).mappings().first()
        return _standing(row) if row else None

    def all(self) -> list[tuple[Standing, Pending, dict[str, int], dict[str, Stage]]]:
        """Every validation, with what is pending, errors by status, and its tables; in a few statements."""
        with self._engine.connect() as connection:
            ask = connection.execute
            ordered = select(_validation).order_by(_validation.c.task)
            standings = [_standing(row) for row in ask(ordered).mappings()]
            sums = ask(select(_pending.c.task, *_SUMS).group_by(_pending.c.task))
            pending = {task: _summed(row) for task, *row in sums}
            counted = select(_error.c.task, _error.c.status, func.count())
            errors = {
                (task, status): int(count)
                for task, status, count in ask(counted.group_by(_error.c.task, _error.c.status))
            }
            stages: dict[str, dict[str, Stage]] = {}
            for row in ask(select(_table).order_by(_table.c.name)):
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
            changes = {"state": RUNNING, "message": "", "stop_asked": False, "mode": mode}
            changes |= {"heard_at": _now(), "started_at": _now()}
            taken = connection.execute(
                _of(update(_validation), task).values(epoch=_validation.c.epoch + 1, **changes)
            )
            if not taken.rowcount:
                connection.execute(
                    insert(_validation).values(
                        task=task,
                        epoch=1,
                        position=json.dumps(dict(position)),
                        processed=json.dumps(dict.fromkeys(_KINDS, 0)),
                        caught_up=False,
                        report="{}",
                        **changes,
                    )
                )
            row = connection.execute(_of(select(_validation), task)).mappings().one()
        return _standing(row)

    def restart(self, task: str, position: Mapping[str, tuple[str, int]]) -> None:
        """Begins at another position than it stands at; what is pending there means nothing any more."""
        with self._engine.begin() as connection:
            connection.execute(_of(delete(_pending), task))
            connection.execute(
                _of(update(_validation), task).values(
                    position=json.dumps(dict(position)), caught_up=False
                )
            )

    def hear(self, task: str, epoch: int, report: Mapping[str, Any]) -> bool:
        """Notes that the process is there; whether it was asked to stop."""
        with self._engine.begin() as connection:
            self._require(connection, task, epoch)
            values = {"heard_at": _now(), "report": json.dumps(dict(report))}
            connection.execute(_of(update(_validation), task).values(**values))
            asked = select(_validation.c.stop_asked)
            return bool(connection.execute(_of(asked, task)).scalar_one())

    def ask_stop(self, task: str) -> None:
        """Asks a running process to stop."""
        with self._engine.begin() as connection:
            connection.execute(_of(update(_validation), task).values(stop_asked=True))

    def stop(self, task: str, message: str = "", epoch: int | None = None) -> None:
        """Notes that it stands still, and why."""
        with self._engine.begin() as connection:
            wanted = _of(update(_validation), task)
            if epoch is not None:
                wanted = wanted.where(_validation.c.epoch == epoch)
            connection.execute(wanted.values(state=STOPPED, message=message))

    def delete(self, task: str) -> bool:
        """Forgets a validation whole; False where there was none."""
        with self._engine.begin() as connection:
            for table in (_pending, _error, _table):
                connection.execute(_of(delete(table), task))
            return connection.execute(_of(delete(_validation), task)).rowcount > 0

    # Tables

    def stages(self, task: str) -> dict[str, Stage]:
        with self._engine.connect() as connection:
            rows = connection.execute(_of(select(_table), task).order_by(_table.c.name)).mappings()
            return {row["name"]: Stage(row["name"], row["stage"], row["message"]) for row in rows}

    def set_stages(self, task: str, stages: Iterable[Stage]) -> None:
        with self._engine.begin() as connection:
            for one in stages:
                mine = _of(delete(_table), task).where(_table.c.name == one.name)
                connection.execute(mine)
                connection.execute(insert(_table).values(task=task, **vars(one)))

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
            row = connection.execute(_of(select(_validation), task)).mappings().one()
            before = json.loads(row["processed"])
            total = {kind: before[kind] + processed.get(kind, 0) for kind in _KINDS}
            connection.execute(
                _of(update(_validation), task).values(
                    position=json.dumps({**json.loads(row["position"]), **position}),
                    processed=json.dumps(total),
                    caught_up=caught_up or row["caught_up"],
                )
            )
            for part in parts:
                mine = _of(delete(_pending), task).where(_pending.c.part == part)
                connection.execute(mine)
            pieces = Counter[str]()
            for one in pending:
                _keep(connection, task, one, pieces[one.part])
                pieces[one.part] += 1
            for wish in obeyed.each if obeyed else ():
                _tick_off(connection, task, wish)
            for what in found:
                _note(connection, task, what)

    # What is pending

    def pending(self, task: str) -> Pending:
        with self._engine.connect() as connection:
            return _summed(connection.execute(_of(select(*_SUMS), task)).one())

    def parts(self, task: str, parts: Sequence[str], due_at: int) -> Iterator[tuple[str, bytes]]:
        """The blobs of some parts, and of those that have something due by then."""
        wanted = _of(select(_pending.c.part, _pending.c.payload), task)
        # Lists of names are kept short; what is more than that is all of it.
        if len(parts) <= 500:
            due = select(_pending.c.part).where(_pending.c.task == task)
            due = due.where(_pending.c.due_at <= due_at)
            wanted = wanted.where(or_(_pending.c.part.in_(parts), _pending.c.part.in_(due)))
        with self._engine.connect() as connection:
            yield from connection.execute(wanted)

    # Errors

    def errors(
        self, task: str, statuses: Sequence[str] = STATUSES, ids: Sequence[int] | None = None
    ) -> Iterator[ErrorRow]:
        """Those with one of these statuses, in the order of their numbers."""
        wanted = _of(select(_error), task).where(_error.c.status.in_(statuses))
        if ids is not None:
            wanted = wanted.where(_error.c.id.in_(ids))
        with self._engine.connect().execution_options(yield_per=1000) as connection:
            for row in connection.execute(wanted.order_by(_error.c.id)).mappings():
                yield _error_row(row)

    def error_page(
        self, tasks: Sequence[str], statuses: Sequence[str], offset: int, limit: int
    ) -> list[ErrorRow]:
        """Some of those of several tasks, in the order of their numbers."""
        c = _error.c
        wanted = select(_error).where(c.task.in_(tasks), c.status.in_(statuses))
        wanted = wanted.order_by(c.id).offset(offset).limit(limit)
        with self._engine.connect() as connection:
            return [_error_row(row) for row in connection.execute(wanted).mappings()]

    def error_counts(self, task: str) -> dict[str, int]:
        wanted = _of(select(_error.c.status, func.count()), task).group_by(_error.c.status)
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
        c = _error.c
        wanted = _of(select(c.id, c.name, c.asked_at, c.released_at), task)
        wanted = wanted.where(or_(c.asked_at.is_not(None), c.released_at.is_not(None)))
        with self._engine.connect() as connection:
            rows = connection.execute(wanted).all()
        return Wishes(tuple(Wish(*row) for row in rows))

    def _change(
        self, task: str, ids: Sequence[int] | None, statuses: Sequence[str], **values: object
    ) -> int:
        wanted = _of(update(_error), task).where(_error.c.status.in_(statuses))
        if ids is not None:
            wanted = wanted.where(_error.c.id.in_(ids))
        with self._engine.begin() as connection:
            return connection.execute(wanted.values(**values)).rowcount

    def _require(self, connection: Connection, task: str, epoch: int) -> None:
        """Locks the line: what follows holds for the one who has the task."""
        mine = _of(update(_validation), task).where(_validation.c.epoch == epoch)
        if not connection.execute(mine.values(epoch=epoch)).rowcount:
            raise TakenOver(f"another process validates {task} by now, or it was deleted")


def _of(statement: Any, task: str) -> Any:
    """A statement about the lines of one task."""
    table = statement.table if hasattr(statement, "table") else statement.get_final_froms()[0]
    return statement.where(table.c.task == task)


def _taken_up(task: str) -> Any:
    """How far changes were taken up, as the database knows it while it carries out the statement that asks."""
    at = _of(select(_validation.c.position), task).scalar_subquery()
    return func.coalesce(at, "{}")


def _tick_off(connection: Connection, task: str, wish: Wish) -> None:
    """Forgets a wish that was followed, unless another one has come in its place."""
    c = _error.c
    mine = c.id == wish.id
    if wish.released_at is not None:
        followed = mine, c.released_at == wish.released_at
        connection.execute(_of(delete(_error), task).where(*followed).where(c.status == _CLEARED))
        connection.execute(_of(update(_error), task).where(*followed).values(released_at=None))
    if wish.asked_at is not None:
        followed = mine, c.asked_at == wish.asked_at
        connection.execute(_of(update(_error), task).where(*followed).values(asked_at=None))


def _keep(connection: Connection, task: str, one: PendingPart, piece: int) -> None:
    connection.execute(
        insert(_pending).values(
            task=task,
            part=one.part,
            piece=piece,
            error_rows=one.errors,
            size=len(one.payload),
            due_at=one.due_at,
            payload=one.payload,
            **{f"{kind}_rows": one.counts.get(kind, 0) for kind in _KINDS},
        )
    )


def _note(connection: Connection, task: str, found: Found) -> None:
    identity = hashlib.sha256(found.name.encode()).hexdigest()
    open_ones = (
        _of(update(_error), task)
        .where(_error.c.identity == identity)
        .where(_error.c.status.in_((NEW, IGNORED)))
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
    settled = _of(select(_error.c.id), task)
    settled = settled.where(_error.c.identity == identity, _error.c.released_at.is_not(None))
    if connection.execute(settled).first() is None:
        connection.execute(
            insert(_error).values(
                task=task,
                identity=identity,
                name=found.name,
                table_name=found.table,
                status=NEW,
                **values,
            )
        )


def _summed(row: Sequence[Any]) -> Pending:
    *rows, errors, size, due_at = row
    counts = dict(zip(_KINDS, map(int, rows), strict=True))
    return Pending(counts, int(errors), int(size), due_at)


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


def _standing(row: RowMapping) -> Standing:
    position = {shard: (at, when) for shard, (at, when) in json.loads(row["position"]).items()}
    known = dict(row) | {
        "position": position,
        "processed": json.loads(row["processed"]),
        "report": json.loads(row["report"]),
    }
    return Standing(**known)


def _json(value: object) -> str:
    return json.dumps(value if not isinstance(value, tuple) else list(value), ensure_ascii=False)


def _now() -> int:
    return time.time_ns() // 1000
