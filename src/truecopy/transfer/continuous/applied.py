"""How far the replication has come, told by the target in the very state that its rows are read in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from truecopy.engines.lines import Lines
from truecopy.engines.protocols import Introspects, Session, TellsReplicated, Views
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.position import contains, parse_position
from truecopy.transfer.continuous.common import common
from truecopy.transfer.continuous.options import AUTO, LAG, REPLICA, TASK
from truecopy.transfer.ledger import PROGRESS, TASKS
from truecopy.transfer.proof.visible import log_end
from truecopy.transfer.settings import ROW, TABLE, Settings

Part = tuple[str, str, int]
"""Shard, source table and slice of the keys."""

Place = tuple[str, int]
"""A position, and the commit time there in microseconds."""

_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class View:
    """An open state of the target: up to where the rows of a part are in."""

    at: Callable[[Part], str | None]
    exact: bool = True


class Applied(Protocol):
    """Tells how far the replication has come; a plain value, which executors get."""

    @property
    def name(self) -> str: ...

    def view(self, session: Session) -> View:
        """Opens one state of the target for reading; the caller ends it with `rollback`."""
        ...

    def covers(self, session: Session, ends: Mapping[Part, Place]) -> bool:
        """Whether the changes of each part are in, up to these places."""
        ...


@dataclass(frozen=True)
class ByLedger:
    """A task of ours: each part's line moves in the transaction that writes its rows."""

    task: str
    consistency: str
    unsliced: frozenset[str] = frozenset()
    name: str = TASK

    def view(self, session: Session) -> View:
        cast(Views, session).open_view()
        return View(self._lookup(session))

    def covers(self, session: Session, ends: Mapping[Part, Place]) -> bool:
        lines = Lines(cast(Any, session))
        phases = lines.look(f"SELECT phase FROM {TASKS} WHERE task = ?", self.task)
        # Until the replay has passed the end of the copy, rows may be newer than their line says.
        if not phases or phases[0][0] != "replicate":
            return False
        with lines.transaction():
            at = self._lookup(session)
        return all(_contains(at(part), place[0]) for part, place in ends.items())

    def _lookup(self, session: Session) -> Callable[[Part], str | None]:
        rows = Lines(cast(Any, session)).fetch(
            f"SELECT part, position FROM {PROGRESS} WHERE task = ?", self.task
        )
        progress: dict[str, str] = dict(rows)

        def at(part: Part) -> str | None:
            # A part without a line had no change so far: it is where its shard is.
            return next((progress[line] for line in self._lines(part) if line in progress), None)

        return at

    def _lines(self, part: Part) -> tuple[str, ...]:
        """The names of the lines that may move with the rows of a part, as replication names them."""
        shard, table, number = part
        if self.consistency == ROW and table not in self.unsliced:
            return f"{shard}/s/{number}", shard
        if self.consistency in (ROW, TABLE):
            return f"{shard}/t/{table}", f"{shard}/c/tied", shard
        return (shard,)


@dataclass(frozen=True)
class ByReplica:
    """A native replica: it keeps the position of its source, among others."""

    source: Endpoint
    name: str = REPLICA

    def view(self, session: Session) -> View:
        cast(Views, session).open_view()
        position = _replicated(session, self.source)
        return View(lambda _: position, cast(TellsReplicated, session).replicated_exactly)

    def covers(self, session: Session, ends: Mapping[Part, Place]) -> bool:
        position = cast(TellsReplicated, session).replicated_position()
        return all(_contains(position, place) for place, _ in ends.values())


@dataclass(frozen=True)
class ByLag:
    """Any other tool: what was committed so many seconds ago is taken for applied."""

    seconds: float
    source: Endpoint
    name: str = LAG

    def view(self, session: Session) -> View:
        cast(Views, session).open_view()
        # Read after the state was opened: whatever it shows is in the log up to there.
        end = log_end(self.source)
        return View(lambda _: end, exact=False)

    def covers(self, session: Session, ends: Mapping[Part, Place]) -> bool:  # noqa: ARG002
        newest = max((committed_at for _, committed_at in ends.values()), default=0)
        return newest + self.seconds * _MICROSECONDS <= time.time() * _MICROSECONDS


def require_views(session: Session) -> None:
    """Refuses a target that is not written to while others read from one state of it."""
    if not isinstance(session, Views):
        raise UsageError(
            f"rows of {session.endpoint} cannot be looked at one by one, in one state, while others are written:"
            " continuous validation needs a database for a target"
        )


def choose_applied(
    wanted: str, lag: float, settings: Settings, session: Session, unsliced: frozenset[str]
) -> Applied:
    """The best that the target offers, or the one that was asked for."""
    source = parse_endpoint(settings.source)
    if wanted in (AUTO, TASK):
        if _has_line(session, settings.task):
            return ByLedger(settings.task, settings.consistency, unsliced)
        if wanted == TASK:
            raise UsageError(
                f"{session.endpoint} knows nothing of {settings.task}: truecopy run begins it; beside another"
                " replication, write applied: replica or lag"
            )
    if wanted in (AUTO, REPLICA):
        if isinstance(session, TellsReplicated) and _replicated(session, source):
            return ByReplica(source)
        if wanted == REPLICA:
            raise UsageError(
                f"{session.endpoint} does not say how far it has replicated {source}: write applied: lag, and the lag"
                " that the replication may have"
            )
    return ByLag(lag, source)


def _replicated(session: Session, source: Endpoint) -> str | None:
    """How far a replica has come in the log of this source: what else it holds, the stream never comes to."""
    position = cast(TellsReplicated, session).replicated_position()
    end = log_end(source)  # read later: it has all that the replica has of it
    if position is None or end is None:
        return position
    return str(common(parse_position(position), parse_position(end)))


def _has_line(session: Session, task: str) -> bool:
    if cast(Introspects, session).find(TASKS) is None:
        return False
    return bool(Lines(cast(Any, session)).look(f"SELECT 1 FROM {TASKS} WHERE task = ?", task))


def _contains(reached: str | None, position: str) -> bool:
    return reached is not None and contains(parse_position(reached), parse_position(position))
