"""Which chunks are copied next: some at a time, so that the work can be held up, and none that takes too long."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from truecopy.transfer.gate import Gate
from truecopy.transfer.snapshot import Copied, CopyTask
from truecopy.verify.throttle import SMALLEST, speed_after

GROUP_SECONDS = 2.0
"""What a group of chunks should take; nothing is held up within it."""
GULP_SECONDS = 1.0
"""Where there is a rate, the rows of so long are read at once, and then waited for."""
_MOST_PER_LANE = 64

Cut = Callable[[CopyTask, int], Sequence[CopyTask]]


class Pace:
    """Gives out chunks in groups, and learns from how long they took.

    Args:
        tasks: The chunks, in the order in which they are to be copied.
        gate: Asked before each group.
        lanes: How many chunks are copied at the same time, when there is no ceiling on connections.
        cut: Makes smaller chunks, of about so many rows, out of one that was not begun.
    """

    def __init__(self, tasks: Iterable[CopyTask], gate: Gate, lanes: int, cut: Cut) -> None:
        self._waiting = deque(tasks)
        self._gate = gate
        self._lanes = lanes
        self._cut = cut
        self._speed: dict[str, float] = {}
        self._chunk_seconds: float | None = None

    @property
    def lanes(self) -> int:
        """How many chunks may be copied at the same time."""
        return min(self._gate.limits.connections or self._lanes, self._lanes)

    def next_group(self, per_lane: int | None = None) -> list[CopyTask]:
        """The chunks to copy now, by default as many as take a while; none when all are given out.

        Waits at the gate.
        """
        if not self._waiting:
            return []
        self._gate.before_chunks()
        group, rows = list[CopyTask](), 0
        most = self._gate.limits.rate * GULP_SECONDS or float("inf")
        size = self.lanes * (per_lane or self._per_lane())
        while self._waiting and len(group) < size:
            self._shrink_first()
            if not self._waiting or (group and rows + self._waiting[0].rows > most):
                break
            group.append(self._waiting.popleft())
            rows += group[-1].rows
        return group

    def note(self, copied: Copied) -> None:
        """A chunk is in."""
        self._gate.note_read(copied.rows)
        speed = speed_after(self._speed.get(copied.table), copied.rows, copied.read_seconds)
        if speed is not None:
            self._speed[copied.table] = speed
        before = self._chunk_seconds
        self._chunk_seconds = copied.seconds if before is None else (before + copied.seconds) / 2

    def _per_lane(self) -> int:
        """Chunks that one lane copies, one after the other, in the time of a group."""
        if self._chunk_seconds is None:
            return 1
        return max(1, min(int(GROUP_SECONDS / max(self._chunk_seconds, 0.001)), _MOST_PER_LANE))

    def _shrink_first(self) -> None:
        """Cuts the next chunk where reading it would take longer than a statement may."""
        task = self._waiting[0]
        allowed = self._allowed_rows(task.plan.source_name)
        if allowed is not None and task.rows > 1.5 * allowed:
            self._waiting.popleft()
            self._waiting.extendleft(reversed(self._cut(task, allowed)))

    def _allowed_rows(self, table: str) -> int | None:
        limits, speed = self._gate.limits, self._speed.get(table)
        ceilings = [speed * limits.statement_seconds] if speed is not None else []
        if limits.rate:
            ceilings.append(limits.rate * GULP_SECONDS / self.lanes)
        return max(SMALLEST, int(min(ceilings))) if ceilings else None
