"""What happened: events of tasks, and the audit log of what people asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select

from truecopy.metastore.control import audit as _audit
from truecopy.metastore.control import event as _event
from truecopy.metastore.control import now
from truecopy.metastore.database import open_metastore

STATE, RUN, ASKED = "state", "run", "asked"
_DAY = 86_400 * 1_000_000
_AT_A_TIME = 1000


@dataclass(frozen=True)
class Event:
    """Something that happened to a task."""

    id: int
    at: int
    task: str
    kind: str
    message: str
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Audited:
    """Something that somebody asked for, and what came of it."""

    id: int
    at: int
    who: str
    role: str
    address: str
    action: str
    subject: str
    outcome: str


class Events:
    """The events and the audit log of a metastore."""

    def __init__(self, url: str | None = None) -> None:
        self._engine = open_metastore(url)

    def tell(self, task: str, kind: str, message: str, **detail: object) -> None:
        with self._engine.begin() as connection:
            note_event(connection, task, kind, message, **detail)

    def after(self, number: int, task: str | None = None, limit: int = 100) -> list[Event]:
        """Those that came after one of them, the oldest first."""
        wanted = select(_event).where(_event.c.id > number).order_by(_event.c.id)
        return self._events(_about(wanted, task).limit(limit))

    def latest(self, task: str | None = None, before: int = 0, limit: int = 100) -> list[Event]:
        """The last ones, the newest first."""
        wanted = select(_event).order_by(_event.c.id.desc())
        if before:
            wanted = wanted.where(_event.c.id < before)
        return self._events(_about(wanted, task).limit(limit))

    def last_number(self) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(select(func.max(_event.c.id))).scalar() or 0)

    def note(
        self, who: str, role: str, address: str, action: str, subject: str, outcome: str
    ) -> None:
        """Writes into the audit log."""
        values = {"who": who, "role": role, "address": address, "action": action}
        with self._engine.begin() as connection:
            connection.execute(
                insert(_audit).values(at=now(), subject=subject, outcome=outcome, **values)
            )

    def audited(self, before: int = 0, limit: int = 100) -> list[Audited]:
        """The audit log, the newest first."""
        wanted = select(_audit).order_by(_audit.c.id.desc()).limit(limit)
        if before:
            wanted = wanted.where(_audit.c.id < before)
        with self._engine.connect() as connection:
            return [Audited(**row) for row in connection.execute(wanted).mappings()]

    def prune(self, events_days: float, audit_days: float) -> int:
        """Removes what is older than so many days, 0 for never; how many went.

        A few at a time: nobody who writes has to wait for long.
        """
        gone = 0
        for table, days in ((_event, events_days), (_audit, audit_days)):
            limit = now() - int(days * _DAY)
            old = select(table.c.id).where(table.c.at < limit).limit(_AT_A_TIME)
            while days:
                with self._engine.begin() as connection:
                    ids = connection.execute(old).scalars().all()
                    connection.execute(delete(table).where(table.c.id.in_(ids)))
                gone += len(ids)
                if len(ids) < _AT_A_TIME:
                    break
        return gone

    def _events(self, wanted: Select[Any]) -> list[Event]:
        with self._engine.connect() as connection:
            rows = connection.execute(wanted).mappings()
            return [Event(**{**row, "detail": json.loads(row["detail"])}) for row in rows]


def note_event(
    connection: Connection, task: str, kind: str, message: str, **detail: object
) -> None:
    """Writes an event in a transaction of somebody else's."""
    text = json.dumps(detail, ensure_ascii=False)
    values = {"at": now(), "task": task, "kind": kind, "message": message, "detail": text}
    connection.execute(insert(_event).values(**values))


def _about(wanted: Select[Any], task: str | None) -> Select[Any]:
    return wanted.where(_event.c.task == task) if task is not None else wanted
