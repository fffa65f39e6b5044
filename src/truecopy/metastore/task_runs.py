"""Runs of tasks: each is a process with a command of the program, an end, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from truecopy.metastore.control import certificate as _certificate
from truecopy.metastore.control import item as _item
from truecopy.metastore.control import now
from truecopy.metastore.control import run as _run
from truecopy.metastore.database import open_metastore
from truecopy.telemetry import traceparent

ASKED, UNDER_WAY, ENDED = "asked", "running", "ended"
ITEMS_KEPT = 10_000
"""Of differing rows, or results of queries, so many are kept; the counts are always those of all."""
_ITEMS_AT_ONCE = 500


@dataclass(frozen=True)
class Run:
    """One process of a task.

    Attributes:
        kind: The command: `run`, `verify`, `cutover`, …
        host, pid, process_began: Which process it is; a pid is used again, its time of beginning is not.
        exit_code: None while it runs, and where nobody saw it end.
        result: The document that it printed, without its rows, which are items.
        trace: The span that it was asked for in; empty without one.
    """

    id: int
    task: str
    task_kind: str
    kind: str
    asked_by: str
    asked_at: int
    stop_asked: bool
    host: str
    pid: int
    process_began: str
    started_at: int
    ended_at: int
    exit_code: int | None
    message: str
    result: Mapping[str, Any] = field(repr=False)
    trace: str = ""

    @property
    def state(self) -> str:
        return ENDED if self.ended_at else UNDER_WAY if self.started_at else ASKED


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    exit_code: int | None
    message: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    items: Sequence[Mapping[str, Any]] = ()
    certificates: Sequence[tuple[Mapping[str, Any], str]] = ()


@dataclass(frozen=True)
class Certificate:
    """A certificate without its document."""

    id: str
    task: str
    run_id: int
    verdict: str
    made_at: int


class TaskRuns:
    """The runs of a metastore."""

    def __init__(self, url: str | None = None) -> None:
        self._engine = open_metastore(url)

    def ask(self, task: str, task_kind: str, kind: str, who: str) -> int:
        """Asks for a run, which the task's keeper begins; its number."""
        with self._engine.begin() as connection:
            return new_run(connection, task, task_kind, kind, who, traceparent())

    def ask_stop(self, number: int) -> None:
        with self._engine.begin() as connection:
            connection.execute(update(_run).where(_run.c.id == number).values(stop_asked=True))

    def find(self, number: int) -> Run | None:
        with self._engine.connect() as connection:
            row = connection.execute(select(_run).where(_run.c.id == number)).mappings().first()
        return _of(row) if row else None

    def open(self, task: str | None = None, task_kind: str | None = None) -> list[Run]:
        """Those that have not ended, the oldest first."""
        wanted = select(_run).where(_run.c.ended_at == 0).order_by(_run.c.id)
        if task is not None:
            wanted = wanted.where(_run.c.task == task, _run.c.task_kind == task_kind)
        return self._runs(wanted)

    def latest(
        self, task: str, task_kind: str, kinds: Sequence[str] = (), limit: int = 50, before: int = 0
    ) -> list[Run]:
        """The last ones of a task, the newest first."""
        wanted = select(_run).where(_run.c.task == task, _run.c.task_kind == task_kind)
        if kinds:
            wanted = wanted.where(_run.c.kind.in_(kinds))
        if before:
            wanted = wanted.where(_run.c.id < before)
        return self._runs(wanted.order_by(_run.c.id.desc()).limit(limit))

    def verdicts(self) -> dict[str, str]:
        """What the last verification of each task said."""
        c = _run.c
        last = select(func.max(c.id)).where(c.kind == "verify", c.ended_at > 0).group_by(c.task)
        wanted = select(c.task, c.result).where(c.id.in_(last))
        with self._engine.connect() as connection:
            found = {row.task: json.loads(row.result) for row in connection.execute(wanted)}
        return {task: str(one["verdict"]) for task, one in found.items() if "verdict" in one}

    def items(self, number: int, offset: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Differing rows, or results of queries, in their order."""
        wanted = select(_item.c.document).where(_item.c.run_id == number, _item.c.number >= offset)
        with self._engine.connect() as connection:
            rows = connection.execute(wanted.order_by(_item.c.number).limit(limit))
            return [json.loads(row.document) for row in rows]

    def count_items(self, number: int) -> int:
        wanted = select(func.count()).where(_item.c.run_id == number)
        with self._engine.connect() as connection:
            return int(connection.execute(wanted).scalar_one())

    def forget(self, task: str, task_kind: str) -> None:
        """Removes the runs of a task; certificates stay."""
        mine = select(_run.c.id).where(_run.c.task == task, _run.c.task_kind == task_kind)
        with self._engine.begin() as connection:
            numbers = [row.id for row in connection.execute(mine)]
            for number in numbers:
                connection.execute(delete(_item).where(_item.c.run_id == number))
                connection.execute(delete(_run).where(_run.c.id == number))

    # Certificates

    def certificates(self, task: str | None = None, limit: int = 100) -> list[Certificate]:
        """The last ones, the newest first."""
        c = _certificate.c
        wanted = select(c.id, c.task, c.run_id, c.verdict, c.made_at)
        if task is not None:
            wanted = wanted.where(c.task == task)
        with self._engine.connect() as connection:
            rows = connection.execute(wanted.order_by(c.made_at.desc(), c.id).limit(limit))
            return [Certificate(*row) for row in rows]

    def certificate(self, name: str) -> tuple[dict[str, Any], str] | None:
        """The document and the page of a certificate."""
        wanted = select(_certificate).where(_certificate.c.id == name)
        with self._engine.connect() as connection:
            row = connection.execute(wanted).first()
        return (json.loads(row.document), row.page) if row else None

    def _runs(self, wanted: Any) -> list[Run]:
        with self._engine.connect() as connection:
            return [_of(row) for row in connection.execute(wanted).mappings()]


# What the keeper of a task says, in transactions that its lease holds together


def new_run(
    connection: Connection, task: str, task_kind: str, kind: str, who: str, trace: str = ""
) -> int:
    """A run that has not begun."""
    values = {"task": task, "task_kind": task_kind, "kind": kind, "asked_by": who}
    values |= {"host": "", "process_began": "", "message": "", "result": "{}", "trace": trace}
    empty = {"stop_asked": False, "pid": 0, "started_at": 0, "ended_at": 0}
    made = connection.execute(insert(_run).values(asked_at=now(), **values, **empty))
    assert made.inserted_primary_key is not None
    return int(made.inserted_primary_key[0])


def begin_run(connection: Connection, number: int, host: str, pid: int, began: str) -> None:
    """A run is a process now."""
    values = {"host": host, "pid": pid, "process_began": began, "started_at": now()}
    connection.execute(update(_run).where(_run.c.id == number).values(**values))


def end_run(connection: Connection, run: Run, outcome: Outcome) -> None:
    """A run has ended, with all that it left."""
    values = {
        "ended_at": now(),
        "exit_code": outcome.exit_code,
        "message": outcome.message,
        "result": json.dumps(dict(outcome.result), ensure_ascii=False),
    }
    connection.execute(update(_run).where(_run.c.id == run.id).values(**values))
    kept = outcome.items[:ITEMS_KEPT]
    for start in range(0, len(kept), _ITEMS_AT_ONCE):
        some = enumerate(kept[start : start + _ITEMS_AT_ONCE], start)
        connection.execute(insert(_item), list(_items(run.id, some)))
    for document, page in outcome.certificates:
        name = str(document["id"])
        connection.execute(delete(_certificate).where(_certificate.c.id == name))
        connection.execute(
            insert(_certificate).values(
                id=name,
                task=run.task,
                run_id=run.id,
                verdict=str(document.get("verdict", "")),
                made_at=now(),
                document=json.dumps(dict(document), ensure_ascii=False),
                page=page,
            )
        )


def _items(
    number: int, documents: Iterable[tuple[int, Mapping[str, Any]]]
) -> Iterable[dict[str, Any]]:
    for place, document in documents:
        text = json.dumps(dict(document), ensure_ascii=False)
        yield {"run_id": number, "number": place, "document": text}


def _of(row: RowMapping) -> Run:
    return Run(**{**row, "result": json.loads(row["result"])})
