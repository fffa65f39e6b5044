"""How far the replication of a task is behind its source, as another process can tell."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from truecopy.engines.protocols import Session
from truecopy.model.errors import UsageError
from truecopy.model.position import parse_position
from truecopy.model.token import EventToken, KeyspacePosition
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.needs import opening_leaves_something
from truecopy.stream.offset import Offset
from truecopy.transfer.apply import Place, shard_of
from truecopy.transfer.control import Control
from truecopy.transfer.cutover.stillness import changes_after
from truecopy.transfer.ledger import TASKS, Ledger
from truecopy.transfer.proof.visible import are_visible, has_passed, log_end
from truecopy.transfer.settings import Settings
from truecopy.transfer.status import is_running

_LOOK_SECONDS = 0.3


class Behind:
    """Of a task that runs: what its driver says every few seconds. Of one that stands: what the source's log says.

    Args:
        source, target: Sessions, used by this thread only.
    """

    def __init__(self, settings: Settings, source: Session, target: Session) -> None:
        self._task = settings.task
        self._request = settings.request
        self._source = source.endpoint
        session: Any = target
        self._ledger, self._control = Ledger(session, self._task), Control(session, self._task)
        line = self._ledger.find() if session.find(TASKS) is not None else None
        if line is None:
            raise UsageError(f"{self._task} has not begun: truecopy run begins it")
        self.phase = line.phase
        self._origin = Offset.parse(line.origin)
        self._runs = is_running(line, self._control.report())

    def catches_up(self, seconds: float) -> bool:
        """Waits until everything that the source's log has now is on the target; False where it takes longer.

        Of a task that stands, the rest is told by `has_pending`.
        """
        if not self._runs:
            return True
        position = self._log_end()
        deadline = time.monotonic() + seconds
        while position is not None and not self._has_reached(position):
            # A driver that was not heard of for some seconds may only be busy.
            if time.monotonic() >= deadline or self._said().get("ended"):
                return False
            time.sleep(_LOOK_SECONDS)
        return position is not None

    def is_visible(self, seconds: float) -> bool:
        """Waits until the source shows everything that is on the target."""
        places = [position for position, _ in self._ledger.progress().values()]
        return are_visible(self._source, places, seconds)

    def has_pending(self, tables: Collection[str]) -> bool:
        """Whether changes of these tables are left that a task which stands has not applied."""
        if self._runs:
            return False
        if opening_leaves_something(self._source):
            return True
        tokens = tuple(
            EventToken(committed_at, shard, parse_position(position))
            for shard, (position, committed_at) in self._slowest().items()
        )
        with KeyspaceStream(self._request) as stream:
            start = stream.start(KeyspacePosition(tokens))
            return bool(changes_after(stream, start, tables))

    def why(self) -> str:
        """Why rows could not be judged."""
        if self._runs:
            return "the replication is too far behind; verify again, or with a longer --settle-time"
        return f"{self._task} does not run; start it, and verify again"

    def _slowest(self) -> dict[str, Place]:
        """Of each shard where the part stands that is furthest behind."""
        found: dict[str, Place] = {}
        for part, place in self._ledger.progress().items():
            known = found.get(shard_of(part))
            if known is None or not has_passed(place[0], known[0]):
                found[shard_of(part)] = place
        origins = self._origin.marks.items()
        return {shard: (at.position, at.committed_at) for shard, at in origins} | found

    def _log_end(self) -> str | None:
        if (end := log_end(self._source)) is not None:
            return end
        with KeyspaceStream(self._request) as stream:
            (mark,) = stream.current().marks.values()
        return mark.position

    def _has_reached(self, position: str) -> bool:
        reached = self._said().get("reached", {})
        return any(has_passed(one, position) for one in reached.values())

    def _said(self) -> Mapping[str, Any]:
        report = self._control.report()
        return report.document if report else {}
