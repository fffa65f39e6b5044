"""`truecopy check`: what is missing before a task can run, with its remedy, and what is not carried."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from truecopy.model.endpoint import Endpoint, mask_secrets

if TYPE_CHECKING:
    from truecopy.model.finding import Finding
    from truecopy.transfer.preflight.report import Report

_MARKS = {"error": "[red]✘[/]", "warning": "[yellow]![/]", "info": "[dim]·[/]"}
_NAMES_SHOWN = 10


def check(
    task: Annotated[Path, typer.Argument(help="The task file.")],
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Look at both ends of a task before it runs: what is missing, how to mend it, and what is not carried.

    Tables, logs, rights, settings, keys and types are looked at, and nothing
    is changed on either side. Ends with 0 when the task can run, and with 1
    when something must be mended first.

    \b
    Examples:
      truecopy check shop.yaml
      truecopy check shop.yaml --json
    """
    # Other commands need not wait for what only this one uses.
    from truecopy.tasks.checking import check_document, check_task
    from truecopy.tasks.file import load_task

    read = load_task(task)
    if json_:
        ready, whole = check_document(read)
        sys.stdout.write(f"{json.dumps(whole, ensure_ascii=False)}\n")
    else:
        ready, reports = check_task(read)
        secrets = tuple(end for report in reports for end in (report.source, report.target))
        for report in reports:
            print_check(report, secrets)
    return 0 if ready else 1


def print_check(
    report: Report, secrets: tuple[Endpoint, ...], console: Console | None = None
) -> None:
    """The report for people: by subject, the worst first."""
    out = console or Console(highlight=False)

    def say(text: str = "") -> None:
        out.print(mask_secrets(text, secrets), soft_wrap=True)

    def say_rows(rows: list[tuple[str, str]]) -> None:
        masked = [(mark, mask_secrets(text, secrets)) for mark, text in rows]
        if not out.is_terminal:  # a reader of lines gets whole lines
            for mark, text in masked:
                out.print(f"  {mark} {text}", soft_wrap=True)
            return
        grid = Table.grid(padding=(0, 1))
        for _ in range(3):
            grid.add_column(overflow="fold")
        for mark, text in masked:
            grid.add_row(" ", mark, text)
        out.print(grid)

    for line in _head(report):
        say(line)
    for subject, found in groupby(report.findings, key=lambda one: one.subject):
        say()
        say(f"[bold]{subject}[/]")
        say_rows([row for one in found for row in _rows(one)])
    if report.inventory:
        say()
        say("[bold]not carried[/]")
        width = max(len(thing.kind) for thing in report.inventory)
        say_rows(
            [
                (f"{thing.kind:<{width}}", _names(thing.names, thing.note))
                for thing in report.inventory
            ]
        )
    say()
    say(_closing_line(report))


def _head(report: Report) -> Iterator[str]:
    from truecopy.transfer.preflight.estimate import BYTES_PER_SECOND, duration, size

    yield f"[bold]{escape(report.task)}[/]: {escape(str(report.source))} → {escape(str(report.target))}"
    guess = report.estimate
    hours = f", from {' and '.join(guess.hours)}" if guess.hours else ""
    yield (
        f"{len(report.tables):,} tables, about {guess.rows:,} rows and {size(guess.bytes)}: the copy takes about"
        f" {duration(guess.seconds)}, guessed with {guess.rows_per_second:,} rows/s and {size(BYTES_PER_SECOND)}/s"
        f"{hours}"
    )
    if report.guarantee is not None:
        yield f"guarantee: {escape(str(report.guarantee))}"
    if report.source_level and report.target_level:
        yield f"levels: source {report.source_level}, target {report.target_level}"


def _rows(finding: Finding) -> Iterator[tuple[str, str]]:
    place = f"[bold]{escape(finding.table)}[/]: " if finding.table else ""
    yield _MARKS[finding.level], place + escape(finding.message)
    if finding.remedy:
        yield " ", f"[cyan]→ {escape(finding.remedy)}[/]"


def _names(names: tuple[str, ...], note: str) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = (
        f" and {len(names) - _NAMES_SHOWN:,} more (see --json)" if len(names) > _NAMES_SHOWN else ""
    )
    return escape(shown + more) + (f" [dim]({escape(note)})[/]" if note else "")


def _closing_line(report: Report) -> str:
    counts = dict.fromkeys(_MARKS, 0)
    for finding in report.findings:
        counts[finding.level] += 1
    warned = f"{counts['warning']:,} warning{'' if counts['warning'] == 1 else 's'}"
    if report.is_ready:
        return f"[green]ready[/]: {escape(report.task)} can run; {warned}"
    return f"[red]not ready[/]: {counts['error']:,} to mend first; {warned}"
