"""`truecopy pause`, `resume` and `throttle`: hold a task up, let it go on, change its pace while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truecopy.model.errors import UsageError

if TYPE_CHECKING:
    from truecopy.transfer.control import Control
    from truecopy.transfer.settings import Settings

TaskFile = Annotated[Path, typer.Argument(help="The task file.")]
_NONE = "none"


def pause(task: TaskFile) -> int:
    """Hold a task up, within seconds, wherever it runs: neither rows nor changes move until `resume`.

    Nothing is lost by it: positions are kept, and a run that starts meanwhile
    waits, too. Mind how long the source keeps its log.

    \b
    Example:
      truecopy pause shop.yaml
    """
    for settings, control in _controls(task):
        is_new = control.pause()
        typer.echo(f"{settings.task}: {'paused' if is_new else 'was paused already'}")
    return 0


def resume(task: TaskFile) -> int:
    """Let a task go on that was held up by `pause`.

    A run that waits goes on within seconds, from the positions at which it was
    held up. Where no run is under way, the next one is not held up.

    \b
    Example:
      truecopy resume shop.yaml
    """
    for settings, control in _controls(task):
        is_new = control.resume()
        typer.echo(f"{settings.task}: {'goes on' if is_new else 'was not paused'}")
    return 0


def throttle(
    task: TaskFile,
    rate: Annotated[
        str | None,
        typer.Option(help="Rows per second that the copy reads; none: as fast as it goes."),
    ] = None,
    connections: Annotated[
        str | None, typer.Option(help="Connections to each end at a time; none: one per core.")
    ] = None,
    statement_seconds: Annotated[
        str | None, typer.Option(help="What one statement of the copy should take at most: 500ms.")
    ] = None,
    max_lag: Annotated[
        str | None,
        typer.Option(help="Lag of the task file's replicas above which the work waits: 2s."),
    ] = None,
    hours: Annotated[
        list[str] | None,
        typer.Option(
            help="A part of the day in which rows are copied: 22:00-06:00; may be given again. none: always."
        ),
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="The zone of --hours.")] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="First go back to what the task file says.")
    ] = False,
) -> int:
    """Change the pace of a task while it runs, within seconds; also of later runs, until --reset.

    The wish is kept in the target, and every run of the task heeds it, wherever
    it runs. Without options it says what is in force.

    \b
    Examples:
      truecopy throttle shop.yaml --rate 5000 --hours 22:00-06:00
      truecopy throttle shop.yaml --rate none
      truecopy throttle shop.yaml --reset
    """
    from truecopy.cli.status import describe_limits
    from truecopy.tasks.file import load_task
    from truecopy.tasks.steering import throttle as change_pace

    wanted = {
        "rate": _number("--rate", rate),
        "connections": _number("--connections", connections),
        "statement_seconds": _seconds("--statement-seconds", statement_seconds),
        "max_lag": _seconds("--max-lag", max_lag),
        "hours": _hours(hours),
        "timezone": timezone,
    }
    changes = {name: value for name, value in wanted.items() if value is not None}
    for name, limits, changed in change_pace(load_task(task), changes, reset=reset):
        lines = list(describe_limits(limits, changed))
        typer.echo(f"{name}: {', '.join(lines) or 'no limits but those of the databases'}")
    return 0


def _controls(path: Path) -> Iterator[tuple[Settings, Control]]:
    """The settings of each leg, and its wishes in the target."""
    from truecopy.tasks.file import load_task
    from truecopy.tasks.steering import controls

    return controls(load_task(path))


def _number(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    if text == _NONE:
        return 0
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{option} {text}: write a whole number, or none")
    return int(text)


def _seconds(option: str, text: str | None) -> float | None:
    from truecopy.tasks.values import seconds

    if text is None:
        return None
    try:
        return seconds(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None


def _hours(texts: list[str] | None) -> list[str] | None:
    from truecopy.model.hours import parse_hours

    if not texts:
        return None
    if texts == [_NONE]:
        return []
    try:
        return [str(parse_hours(text)) for text in texts]
    except ValueError as error:
        raise UsageError(f"--hours {' '.join(texts)}: {error}") from None
