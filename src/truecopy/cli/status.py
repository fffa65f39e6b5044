"""`truecopy status`: how a task stands, as its target knows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from truecopy.cli.transfer_progress import ago, duration, progress_line
from truecopy.model.endpoint import mask_secrets, parse_endpoint

if TYPE_CHECKING:
    from truecopy.transfer.cutover.state import Step
    from truecopy.transfer.limits import Limits
    from truecopy.transfer.status import Status

_WIDE = 1000
_COLOURS = {"running": "green", "waiting": "yellow", "paused": "yellow"}


def status(
    task: Annotated[Path, typer.Argument(help="The task file.")],
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Show how a task stands: its phase, what is copied and applied, its lag, and what holds it up.

    The target is asked, so it does not matter where the task runs, or whether
    it does.

    \b
    Examples:
      truecopy status shop.yaml
      truecopy status shop.yaml --json
    """
    # Other commands need not wait for what only this one uses.
    from truecopy.tasks.file import load_task
    from truecopy.tasks.steering import heading_legs, status_documents, verifiers
    from truecopy.transfer.status import read_status

    loaded = load_task(task)
    if json_:
        plain = status_documents(loaded)
        whole = plain[0] if len(plain) == 1 else {"task": loaded.task, "legs": plain}
        sys.stdout.write(f"{json.dumps(whole, ensure_ascii=False)}\n")
        return 0
    chosen, legs = verifiers(loaded), heading_legs(loaded)
    secrets = tuple(parse_endpoint(end) for leg, _ in legs for end in (leg.source, leg.target))
    out = Console(highlight=False)
    if not out.is_terminal:
        out.width = _WIDE  # a reader of lines gets whole lines
    for place, (leg, step) in enumerate(legs):
        one = read_status(leg)
        if place:
            out.print()
        for line in describe(one, chosen, step):
            out.print(mask_secrets(line, secrets), soft_wrap=True)
        if one.progress.tables:
            out.print()
            out.print(_tables(one))
    return 0


def describe(found: Status, verifiers: list[str], cutover: Step | None = None) -> Iterator[str]:
    """The status for people, a line for each subject."""
    progress, state = found.progress, found.state
    colour = _COLOURS.get(state, "bold")
    head = f"[bold]{escape(progress.task)}[/]: [{colour}]{state}[/]"
    if progress.epoch:
        head += f", phase {progress.phase}"
    yield head
    if cutover is not None:
        yield from _cutover(cutover)
    yield from _why(found)
    if progress.tables:
        yield escape(progress_line(progress))
    if progress.newest and not found.running:
        yield f"the last change that is in was committed {ago(progress.newest)}"
    if found.guarantee:
        yield f"guarantee: {escape(str(found.guarantee))}"
    elif found.unpromised:
        yield f"guarantee: not known ({escape(found.unpromised)})"
    yield f"verifiers: {', '.join(verifiers) or 'none'}"
    if lines := list(describe_limits(found.limits, found.changed)):
        yield f"throttle: {', '.join(lines)}"


def _cutover(step: Step) -> Iterator[str]:
    """What the target's part in it is by now."""
    from truecopy.transfer.cutover.state import SWITCHED, UNDER_WAY

    when = ago(step.changed_at)
    if step.name in UNDER_WAY:
        yield f"a cutover is under way: {step.name} {when}; truecopy cutover again ends it, or lets writers in again"
    elif step.name == SWITCHED and step.detail.get("returns"):
        yield f"cut over {when}: changes go back to the old side, and truecopy switch-back brings writers back"
    elif step.name == SWITCHED:
        yield f"cut over {when}, without a way back: nothing is left to be replicated"


def _why(found: Status) -> Iterator[str]:
    """What a user would ask next, where it does not simply run."""
    if found.paused_at:
        doing = "" if found.running else "; no run is under way"
        yield f"paused {ago(found.paused_at)}{doing}; truecopy resume lets it go on"
    elif found.progress.waits:
        yield f"waits: {escape(found.progress.waits)}"
    if found.state == "paused" and not found.paused_at:
        yield f"paused {ago(found.heard_at)}: {escape(found.ended)}"
    elif found.state == "stopped":
        if found.ended and found.ended != "done":
            yield f"the last run ended {ago(found.heard_at)}: {escape(found.ended)}"
        elif found.ended:
            yield f"the last run ended {ago(found.heard_at)}, having done what it was asked for"
        elif found.heard_at:
            yield f"the last run was heard of {ago(found.heard_at)}; truecopy run goes on"
    elif found.state == "not begun":
        yield "its target knows nothing of it yet; truecopy run begins it"


def describe_limits(limits: Limits, changed: Mapping[str, Any]) -> Iterator[str]:
    """What is limited, and what of that was changed while it ran."""
    words = {
        "rate": f"{limits.rate:,} rows/s" if limits.rate else "no limit of rows/s",
        "connections": f"{limits.connections or 'one per core'} connections",
        "statement_seconds": f"statements of {limits.statement_seconds:g} s",
        "max_lag": f"replicas at most {limits.max_lag:g} s behind",
        "hours": f"copies at {', '.join(map(str, limits.hours)) or 'any hour'}"
        + (f" {limits.timezone}" if limits.hours else ""),
    }
    shown = {"rate": limits.rate, "connections": limits.connections, "hours": limits.hours}
    shown["max_lag"] = limits.replicas
    for name, text in words.items():
        if name in changed:
            yield f"{text} (changed by hand)"
        elif shown.get(name):
            yield text


def _tables(found: Status) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("table", overflow="fold")
    for name in ("rows copied", "of about", "changes", "rate", "left", "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("version", overflow="fold")
    for name, one in found.progress.tables.items():
        rate = f"{one.rate:,.0f}/s" if one.rate else ""
        left, lag = (
            "" if seconds is None else duration(seconds)
            for seconds in (one.seconds_left, found.progress.lag_of(name))
        )
        about = "all" if one.is_copied else f"{max(one.rows_about, one.rows_copied):,}"
        version = one.version.plain() if one.version else {}
        at = f"{version['committed_at'] or ''}  {version['position']}" if version else ""
        numbers = (f"{one.rows_copied:,}", about, f"{one.changes_applied:,}", rate, left, lag)
        table.add_row(escape(name), *numbers, escape(at))
    return table
