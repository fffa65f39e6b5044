"""Which way a task goes now: forth, or back once it was cut over."""

from __future__ import annotations

from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.transfer.cutover.back import back_name, forth_name, is_back, way_back
from truecopy.transfer.cutover.state import SWITCHED, UNDER_WAY, Step, Steps
from truecopy.transfer.settings import Settings


def standing(settings: Settings) -> Settings:
    """The task as it goes now; refused while a cutover is under way, which alone can finish or undo it."""
    forth = settled(settings)
    settled(way_back(settings, {}))
    if forth is None or forth.name != SWITCHED:
        return settings
    returns = forth.detail.get("returns")
    if not returns:
        raise UsageError(
            f"{settings.task} was cut over at {forth.when}, without a way back: nothing is left to be replicated"
        )
    return way_back(settings, returns)


def settled(settings: Settings) -> Step | None:
    """How far a cutover of one way came; refused while that is neither finished nor undone."""
    step = Steps(parse_endpoint(settings.target), settings.task).find()
    if step is not None and step.name in UNDER_WAY:
        command = "switch-back" if is_back(settings) else "cutover"
        raise UsageError(
            f"a {command} of {forth_name(settings.task)} is under way ({step.name} since {step.when}): truecopy"
            f" {command} again finishes it, or lets writers in again"
        )
    return step


def heading(settings: Settings) -> tuple[Settings, Step | None]:
    """The task as it goes now, whatever is under way, and how far its cutover is; the source need not answer."""
    forth = Steps(parse_endpoint(settings.target), settings.task).find()
    is_over = forth is not None and forth.name == SWITCHED
    returns = forth.detail.get("returns") if forth is not None and is_over else None
    return (way_back(settings, returns) if returns else settings), forth


def settings_back(settings: Settings) -> Settings | None:
    """The way back of a task that was cut over, also while a switch-back is under way; None for others."""
    forth = Steps(parse_endpoint(settings.target), settings.task).find()
    back = Steps(parse_endpoint(settings.source), back_name(settings.task)).find()
    under_way = back is not None and back.name in UNDER_WAY
    if not under_way and (forth is None or forth.name != SWITCHED):
        return None
    # What a switch-back under way gives back goes the other way than the task.
    found = forth.detail.get("returns") if forth is not None else None
    if found is None and back is not None:
        found = {
            to["table"]: {
                "table": name,
                "columns": {old: new for new, old in to["columns"].items()},
            }
            for name, to in back.detail.get("returns", {}).items()
        }
    return way_back(settings, found) if found else None
