"""`truecopy cutover` and `truecopy switch-back`: the other side takes over."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truecopy.cli.progress import say
from truecopy.model.errors import UsageError

if TYPE_CHECKING:
    from truecopy.transfer.cutover.facts import CutoverReport
    from truecopy.transfer.cutover.settings import How
    from truecopy.transfer.settings import Settings

_Task = Annotated[Path, typer.Argument(help="The task file.")]
_Rehearse = Annotated[
    bool,
    typer.Option(
        "--rehearse", help="Do everything but the switch, let writers in again, print the downtime."
    ),
]
_NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait", help="After a rollback, end with 3 instead of replicating until stopped."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def cutover(
    task: _Task, rehearse: _Rehearse = False, no_wait: _NoWait = False, json_: _Json = False
) -> int:
    """Let the target take over: lock writers out, drain, prove, switch; or roll back.

    A running `truecopy run` of the task steps aside. Writers are locked out of
    the source for as long as it takes to apply and verify what is left;
    whatever fails lets them in again. After the switch, changes of the new
    side are replicated back by `truecopy run`, and `truecopy switch-back` is
    the way back.

    \b
    Examples:
      truecopy cutover shop.yaml --rehearse
      truecopy cutover shop.yaml
    """
    from truecopy.tasks.cutover import cutover_settings
    from truecopy.tasks.file import load_task
    from truecopy.tasks.transfer import transfer_settings

    read = load_task(task)
    settings, how = transfer_settings(read), cutover_settings(read)
    return _run(settings, how, None, rehearse=rehearse, wait=not no_wait, as_json=json_)


def switch_back(
    task: _Task, rehearse: _Rehearse = False, no_wait: _NoWait = False, json_: _Json = False
) -> int:
    """Let the old side take over again, with everything that was written to the new one.

    The same sequence as a cutover, the other way: lock writers out, drain,
    prove, switch. Nothing is copied anew, and afterwards the task goes forth
    again.

    \b
    Examples:
      truecopy switch-back shop.yaml --rehearse
      truecopy switch-back shop.yaml
    """
    from truecopy.tasks.cutover import cutover_settings
    from truecopy.tasks.file import load_task
    from truecopy.tasks.transfer import transfer_settings
    from truecopy.transfer.cutover.standing import settings_back

    read = load_task(task)
    settings, how = transfer_settings(read), cutover_settings(read)
    back = settings_back(settings)
    if back is None:
        raise UsageError(f"{settings.task} was not cut over, so there is nothing to switch back")
    return _run(back, how, settings, rehearse=rehearse, wait=not no_wait, as_json=json_)


def _run(
    settings: Settings,
    how: How,
    forth: Settings | None,
    *,
    rehearse: bool,
    wait: bool,
    as_json: bool,
) -> int:
    from truecopy.transfer.cutover.cutover import Cutover
    from truecopy.transfer.run import Listener, Transfer

    listener = Listener(said=say)
    with Cutover(settings, how, listener, forth) as work:
        report = work.run(rehearse=rehearse)
    if as_json:
        json.dump(_document(report), sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        _print(report)
    sys.stdout.flush()
    report.told()
    if report.exit_code and wait:
        say("replicating on, until it is stopped")
        Transfer(settings, listener).run()
    return report.exit_code


def _document(report: CutoverReport) -> dict[str, object]:
    return {
        "task": report.task,
        "state": report.state,
        "downtime_seconds": round(report.downtime_seconds, 3),
        "position": report.position,
        "certificate": report.certificate,
        "reason": report.reason,
        "said": list(report.said),
        "seconds": round(report.seconds, 3),
        "over": report.over,
    }


def _print(report: CutoverReport) -> None:
    if report.reason:
        typer.echo(f"{report.task}: {report.state}: {report.reason}")
    else:
        typer.echo(f"{report.task}: {report.state} at {report.position}")
    for line in report.said:
        typer.echo(line)
    if report.certificate:
        typer.echo(f"certificate: {report.certificate}")
    would = "would have been" if report.state == "rehearsed" else "was"
    typer.echo(f"the write downtime {would} {report.downtime_seconds:.2f} s")
