"""The ledger of the simulation: the real one, and what a keyspace and tables without a key need beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.transfer.simulation.rules import Broken, Case
from tests.transfer.simulation.target import EVENT, Target
from truecopy.transfer.ledger import PROGRESS, TASKS, Ledger, Overtaken, SourceLine, TaskLine

TASK = "simulated"


class Lines(Ledger):
    """Progress in the target."""

    def __init__(self, target: Target, case: Case) -> None:
        super().__init__(target, TASK)
        self._target = target
        self._broken = case.broken

    def claim(
        self,
        origin: Mapping[str, Any],
        sources: Mapping[str, SourceLine] | None = None,
        left: Iterable[str] = (),
        terms: Mapping[str, str] | None = None,
    ) -> TaskLine:
        line = super().claim(origin, sources, left, terms)
        if self._broken is not Broken.NO_EPOCH:
            return line
        for table in (TASKS, PROGRESS):
            self._lines.execute(f"UPDATE {table} SET epoch = 1")
        return TaskLine(line.phase, line.origin, 1)

    def open_part(self, part: str, position: str, committed_at: int, epoch: int) -> None:
        if self._broken is not Broken.OPENED_BY_ANYBODY:
            super().open_part(part, position, committed_at, epoch)
        elif part not in self.progress():
            self._lines.execute(
                f"INSERT INTO {PROGRESS} (task, part, position, committed_at, epoch) VALUES (?, ?, ?, ?, ?)",
                *(TASK, part, position, committed_at, epoch),
            )

    def require_at(self, part: str, position: str, epoch: int) -> None:
        if self._broken is not Broken.UNFENCED_ROWS:
            super().require_at(part, position, epoch)

    def set_origin(self, origin: Mapping[str, int], epoch: int) -> None:
        """Inside a transaction: the shards that are read from now on, and from where."""
        if not self._lines.execute(
            f"UPDATE {TASKS} SET origin = ? WHERE task = ? AND epoch = ?",
            json.dumps(origin),
            TASK,
            epoch,
        ):
            raise Overtaken("another run has taken over")

    def hop(self, left: str, origin: Mapping[str, int], epoch: int) -> None:
        """From a shard to those that took over, in one step. An attempt that still writes what was read from the
        old one would write over what comes from the new ones: its lines are closed."""
        with self._target.transaction():
            self.set_origin(origin, epoch)
            if self._broken not in (Broken.OPEN_LINES, Broken.NO_EPOCH):
                self._lines.execute(
                    f"UPDATE {PROGRESS} SET epoch = 0 WHERE part LIKE ?", f"{left}/%"
                )
                self._lines.execute(f"UPDATE {PROGRESS} SET epoch = 0 WHERE part = ?", left)

    def note_snapshot(self, at: Mapping[str, int], epoch: int) -> None:
        """Inside the transaction of a chunk without a key: the position of the snapshot that it is of."""
        for shard, position in at.items():
            self._lines.execute(
                f"INSERT INTO {PROGRESS} (task, part, position, committed_at, epoch) VALUES (?, ?, ?, ?, ?)",
                *(TASK, _snapshot(shard), str(position), 0, epoch),
            )

    def read(self) -> tuple[dict[str, str], dict[str, int]]:
        """The positions of all parts; and of the snapshots of rows without a key, by shard."""
        parts = {part: position for part, (position, _) in self.progress().items()}
        snapshots = {part: int(parts.pop(part)) for part in list(parts) if part.endswith(_SNAPSHOT)}
        return parts, {part.removesuffix(_SNAPSHOT): at for part, at in snapshots.items()}


_SNAPSHOT = f"/k/{EVENT}"


def _snapshot(shard: str) -> str:
    return f"{shard}{_SNAPSHOT}"
