"""The way of a task, and where on it a task is."""

from __future__ import annotations

from dataclasses import dataclass

from truecopy.server.models import TaskSummary

DONE, HERE, AHEAD = "done", "here", "ahead"
_PHASES = (
    ("snapshot", "Copy", "Rows go over, chunk by chunk."),
    ("replay", "Catch up", "What changed during the copy is applied."),
    ("replicate", "Replicate", "Changes go over as they are committed."),
)
_NAMES = [name for name, _, _ in _PHASES]


@dataclass(frozen=True)
class Phase:
    """A part of the way; `place` is `done`, `here` or `ahead`."""

    label: str
    about: str
    place: str


def phases_of(task: TaskSummary) -> list[Phase]:
    """Those that a task goes through, and whether it has; none for one that only validates."""
    if task.command != "run":
        return []
    phase = task.progress.phase if task.progress else None
    at = _NAMES.index(phase) if phase in _NAMES else -1
    places = [DONE if i < at else HERE if i == at else AHEAD for i in range(len(_PHASES))]
    return [
        Phase(label, about, place) for (_, label, about), place in zip(_PHASES, places, strict=True)
    ]
