"""`truecopy run`: copy, replay, and keep replicating, as a task file says."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truecopy.cli.progress import ERRORS, say
from truecopy.cli.transfer_progress import transfer_progress
from truecopy.model.endpoint import mask_secrets, parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.finding import Level, Subject

if TYPE_CHECKING:
    from truecopy.transfer.run import RunReport
    from truecopy.transfer.settings import Settings


def run(
    task: Annotated[Path, typer.Argument(help="The task file.")],
    snapshot_only: Annotated[
        bool, typer.Option("--snapshot-only", help="Copy the rows, and end.")
    ] = False,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up", help="End when everything committed by then is on the target."
        ),
    ] = False,
    no_copy: Annotated[
        bool,
        typer.Option(
            "--no-copy",
            help="Source and target are equal and nobody writes: begin with the changes from now on.",
        ),
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON document at the end.")
    ] = False,
) -> int:
    """Copy the tables of a task and replicate their changes; the same command goes on where it stopped.

    Rows are copied in chunks, each compared before it is committed, while the
    source is written to; then the changes since, and those to come. Once the
    target has taken over (`truecopy cutover`), its changes are replicated back.

    \b
    Examples:
      truecopy run shop.yaml
      truecopy run shop.yaml --until-caught-up --json
      truecopy run shop.yaml --snapshot-only
    """
    # Other commands need not wait for what only this one uses.
    from truecopy.tasks.file import load_task
    from truecopy.tasks.legs import transfer_legs
    from truecopy.transfer.cutover.standing import standing
    from truecopy.transfer.equal import begin_equal
    from truecopy.transfer.fleet import runner
    from truecopy.transfer.run import Listener

    if snapshot_only and until_caught_up:
        raise UsageError("--snapshot-only and --until-caught-up are two ends: choose one")
    if snapshot_only and no_copy:
        raise UsageError("--snapshot-only and --no-copy leave nothing to do: choose one")
    loaded = load_task(task)
    legs = [standing(leg) for leg in transfer_legs(loaded)]
    if no_copy:
        for leg in legs:
            begin_equal(leg, said=say)
    for leg in legs:
        _require_ready(leg, task)
    with transfer_progress(ERRORS) as progress:
        carry_out = runner(legs, Listener(said=say, progress=progress))
        report = carry_out(snapshot_only=snapshot_only, until_caught_up=until_caught_up)
    if json_:
        json.dump(_document(report), sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        _print(report)
    return 0


def _require_ready(settings: Settings, file: Path) -> None:
    """Says what should be thought about, and ends where something must be mended first."""
    from truecopy.transfer.preflight.check import before_a_run

    found = before_a_run(settings)
    secrets = parse_endpoint(settings.source), parse_endpoint(settings.target)
    lines = {one: mask_secrets(str(one), secrets) for one in found}
    errors = [one for one in found if one.level is Level.ERROR]
    if errors:
        more = f" ({len(errors) - 1} more: truecopy check {file})" if len(errors) > 1 else ""
        kind = CannotFinish if errors[0].subject in (Subject.RIGHTS, Subject.LOG) else UsageError
        raise kind(lines[errors[0]] + more)
    for one in found:
        say(f"warning: {lines[one]}")


def _document(report: RunReport) -> dict[str, object]:
    return {
        "task": report.task,
        "state": report.state,
        "lag_seconds": None if report.lag_seconds is None else round(report.lag_seconds, 3),
        "tables": {name: asdict(state) for name, state in report.tables.items()},
        "seconds": round(report.seconds, 3),
        "rows_waiting": report.rows_waiting,
        "refused": report.refused,
    }


def _print(report: RunReport) -> None:
    for name, state in report.tables.items():
        typer.echo(
            f"{name}: {state.rows_copied:,} rows copied, {state.changes_applied:,} changes applied"
        )
    typer.echo(f"{report.task}: {report.state} after {report.seconds:.1f} s")
