"""Progress on a terminal: rows, rate, time left; nothing where nobody looks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from truecopy.model.logline import log_line
from truecopy.verify.compare import ChunkResult
from truecopy.verify.matching import Comparison
from truecopy.verify.verification import Listener, Silence

AS_JSON = os.environ.get("TRUECOPY_LOG") == "json"
"""Whether programs read what is said beside the result."""
ERRORS = Console(stderr=True, highlight=False, force_terminal=False if AS_JSON else None)


def say(message: str, level: str = "info", console: Console = ERRORS, **fields: object) -> None:
    """One line beside the result; programs get `fields` as well."""
    if AS_JSON:
        sys.stderr.write(log_line(time.time(), level, message, **fields) + "\n")
        sys.stderr.flush()
    else:
        console.print(message, soft_wrap=True, markup=False)


@contextmanager
def progress_listener() -> Iterator[Listener]:
    """A listener that draws on standard error if that is a terminal."""
    if not ERRORS.is_terminal:
        yield Silence()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} rows"),
        _Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=ERRORS, transient=True) as progress:
        yield _Drawing(progress)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


class _Drawing:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("connecting", total=None)

    def planned(self, comparisons: Sequence[Comparison], chunks: int, rows: int, done: int) -> None:
        name = comparisons[0].source_name if len(comparisons) == 1 else f"{len(comparisons)} tables"
        already = rows * done / chunks if chunks else 0
        self._progress.update(
            self._task, description=f"comparing {name}", total=rows or None, completed=already
        )

    def advanced(self, comparison: Comparison, result: ChunkResult) -> None:
        self._progress.update(
            self._task,
            description=f"comparing {comparison.source_name}",
            advance=max(result.source.count, result.target.count),
        )

    def said(self, message: str) -> None:
        self._progress.console.print(message, markup=False)
