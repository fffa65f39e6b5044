"""How far a cutover is, kept in the target beside the ledger: whoever comes after a kill finishes it or undoes it.

A step is written down *before* it is done where undoing it needs something (what was locked, and how it was
before), and after it is done elsewhere. From `SWITCHING` on there is a way back only
where it is sure that nothing was written to the new side; from `MOVED` on there is none, and nothing of the old
side is needed any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from truecopy.engines import pool
from truecopy.engines.lines import Keeps, Lines, TooLong, packed, transaction, unpacked
from truecopy.engines.protocols import Introspects
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.transfer.ledger import PROGRESS, TASKS, Overtaken, taken_over

STEPS = "truecopy_cutover"
CATCHING_UP = "catching-up"
"""Nobody notices anything yet; but the way back may have left something on the new side."""
HOLDING, HELD, DRAINED, VERIFIED = "holding", "held", "drained", "verified"
NUMBERED, CERTIFIED, TURNED = "numbered", "certified", "turned"
SWITCHING, MOVED, SWITCHED = "switching", "moved", "switched"
ROLLED_BACK, REHEARSED = "rolled-back", "rehearsed"

LOCKED = (HOLDING, HELD, DRAINED, VERIFIED, NUMBERED, CERTIFIED, TURNED)
"""Writers may be locked out, and nobody was let into the new side."""
UNDER_WAY = (*LOCKED, SWITCHING, MOVED)

_CREATE = f"""CREATE TABLE IF NOT EXISTS {STEPS} (
    task VARCHAR(190) NOT NULL PRIMARY KEY, step VARCHAR(20) NOT NULL, epoch BIGINT NOT NULL,
    detail TEXT NOT NULL, changed_at BIGINT NOT NULL)"""


@dataclass(frozen=True)
class Step:
    """Where a cutover stands; `changed_at` in microseconds."""

    name: str
    epoch: int
    detail: Mapping[str, Any] = field(default_factory=dict)
    changed_at: int = 0

    @property
    def when(self) -> str:
        return datetime.fromtimestamp(self.changed_at / 1e6, UTC).isoformat(timespec="seconds")


class Steps:
    """The line of one task; every look at it has a session of its own, since a file must be free for workers."""

    def __init__(self, target: Endpoint, task: str) -> None:
        self._target = target
        self._task = task

    def create(self) -> None:
        with self._line() as line:
            line.execute(_CREATE)

    def find(self) -> Step | None:
        """The line; None also where no cutover was ever begun in this database."""
        with pool.lease(self._target) as session:
            if not isinstance(session, Introspects) or session.find(STEPS) is None:
                return None
        with self._line() as line:
            rows = line.fetch(
                f"SELECT step, epoch, detail, changed_at FROM {STEPS} WHERE task = ?", self._task
            )
        if not rows:
            return None
        ((name, epoch, detail, changed_at),) = rows
        return Step(name, int(epoch), unpacked(detail), int(changed_at))

    def take(self, epoch: int) -> None:
        """From now on only the cutover of this epoch can change the line."""
        with self._line() as line:
            line.execute(
                f"UPDATE {STEPS} SET epoch = ? WHERE task = ? AND epoch <= ?",
                *(epoch, self._task, epoch),
            )

    def take_given_up(self, epoch: int) -> bool:
        """The same where no cutover has come to its lock yet; says whether that is so."""
        with self._line() as line:
            return bool(
                line.execute(
                    f"UPDATE {STEPS} SET epoch = ? WHERE task = ? AND epoch <= ? AND step = ?",
                    *(epoch, self._task, epoch, CATCHING_UP),
                )
            )

    def enter(self, name: str, epoch: int, detail: Mapping[str, Any]) -> None:
        """Says how far it is; `Overtaken` where another cutover of the task has begun."""
        with self._line() as line:
            self._enter(line, name, epoch, detail)

    def switch(self, epoch: int, detail: Mapping[str, Any]) -> None:
        """Decides for the new side, and in the same step keeps every replication from writing there."""
        with self._line() as line:
            if not line.execute(
                f"UPDATE {TASKS} SET epoch = epoch + 1 WHERE task = ? AND epoch = ?",
                *(self._task, epoch),
            ):
                raise taken_over(self._task)
            line.execute(f"UPDATE {PROGRESS} SET epoch = epoch + 1 WHERE task = ?", self._task)
            self._enter(line, SWITCHING, epoch, detail)

    def give_up(self, epoch: int) -> None:
        """A decision that was asked for, and not answered, is made by now or never."""
        with self._line() as line:
            line.execute(
                f"UPDATE {TASKS} SET epoch = epoch + 1 WHERE task = ? AND epoch = ?",
                *(self._task, epoch),
            )

    def forget(self) -> None:
        with self._line() as line:
            line.execute(f"DELETE FROM {STEPS} WHERE task = ?", self._task)

    def _enter(self, line: Lines, name: str, epoch: int, detail: Mapping[str, Any]) -> None:
        values = (name, self._kept(detail), time.time_ns() // 1000)
        if line.execute(
            f"UPDATE {STEPS} SET step = ?, detail = ?, changed_at = ? WHERE task = ? AND epoch = ?",
            *(*values, self._task, epoch),
        ):
            return
        if line.fetch(f"SELECT 1 FROM {STEPS} WHERE task = ?", self._task):
            raise Overtaken(f"another cutover of {self._task} has taken over")
        line.execute(
            f"INSERT INTO {STEPS} (step, detail, changed_at, task, epoch) VALUES (?, ?, ?, ?, ?)",
            *(*values, self._task, epoch),
        )

    def _kept(self, detail: Mapping[str, Any]) -> str:
        try:
            return packed(detail)
        except TooLong:
            raise CannotFinish(
                "what would be needed to let writers in again is too long to be kept: use another cutover.lock"
            ) from None

    @contextmanager
    def _line(self) -> Iterator[Lines]:
        """One transaction."""
        with pool.lease(self._target) as session:
            keeps = cast(Keeps, session)
            with transaction(keeps):
                yield Lines(keeps)


def require_no_cutover(target: Endpoint, task: str) -> None:
    """Refuses to replicate into a side that has taken over, or is about to."""
    found = Steps(target, task).find()
    if found is None:
        return
    if found.name in UNDER_WAY:
        raise UsageError(
            f"a cutover of {task} is under way ({found.name} since {found.when}): the same command again finishes it,"
            " or lets writers in again"
        )
    if found.name == SWITCHED:
        raise UsageError(
            f"{target} took over at {found.when}: {task} does not write there any more"
        )
