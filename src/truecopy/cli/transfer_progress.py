"""The progress of a transfer for people: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from truecopy.cli.progress import say

if TYPE_CHECKING:
    from truecopy.transfer.progress import Progress as TransferProgress

LINE_SECONDS = 5.0
FILE_SECONDS = 1.0
_IDLE_SECONDS = 300.0

Tell = Callable[["TransferProgress"], None]


def progress_line(progress: TransferProgress) -> str:
    """One line: rows or changes, rate, time left, lag, and what holds it up."""
    return ", ".join(filter(None, (_done(progress), *_speed(progress))))


def duration(seconds: float) -> str:
    """A time as people say it."""
    for size, word in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {word}"
    return f"{seconds:,.1f} s" if seconds < 10 else f"{seconds:,.0f} s"


def ago(microseconds: int) -> str:
    """How long an instant is past."""
    return f"{duration(max(time.time() - microseconds / 1e6, 0.0))} ago"


@contextmanager
def transfer_progress(console: Console) -> Iterator[Tell]:
    """What to call with each progress: draws on a terminal, and prints lines elsewhere."""
    if not console.is_terminal:
        file = os.environ.get("TRUECOPY_PROGRESS")
        yield _File(Path(file), _Lines(console)) if file else _Lines(console)
        return
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[line]}")
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("", total=None, line="")

        def draw(progress: TransferProgress) -> None:
            copying = progress.phase == "snapshot"
            bars.update(
                bar,
                description=f"[yellow]{escape(progress.waits)}[/]"
                if progress.waits
                else progress.phase,
                total=progress.rows_about if copying else None,
                completed=progress.rows_copied,
                line=escape(progress_line(progress)),
            )

        yield draw


class _Lines:
    """Lines for a log: some while rows are copied, and while changes come; few when nothing happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said_at = 0.0
        self._last: tuple[object, ...] = ()

    def __call__(self, progress: TransferProgress) -> None:
        state = progress.phase, progress.waits
        counts = progress.rows_copied, progress.changes_applied
        since = time.monotonic() - self._said_at
        is_new = self._last[:2] != state
        if not is_new and since < (_IDLE_SECONDS if self._last[2:] == counts else LINE_SECONDS):
            return
        self._said_at, self._last = time.monotonic(), (*state, *counts)
        waits = f" (waits: {progress.waits})" if progress.waits else ""
        line = f"{progress.phase}: {progress_line(progress)}{waits}"
        say(line, console=self._console, **_told(progress))


class _File:
    """A file that says how far it is, for whoever started this process and passes it on; and lines as well."""

    def __init__(self, path: Path, lines: _Lines) -> None:
        self._path = path
        self._lines = lines
        self._said_at = 0.0

    def __call__(self, progress: TransferProgress) -> None:
        self._lines(progress)
        if time.monotonic() - self._said_at < FILE_SECONDS:
            return
        self._said_at = time.monotonic()
        whole = self._path.with_suffix(".new")
        whole.write_text(json.dumps(progress.plain(), ensure_ascii=False), encoding="utf-8")
        whole.replace(self._path)


def _told(progress: TransferProgress) -> dict[str, Any]:
    """Of all tables together."""
    return {name: value for name, value in progress.plain().items() if name != "tables"}


def _done(progress: TransferProgress) -> str:
    if progress.phase != "snapshot":
        copied = f"{progress.rows_copied:,} rows copied"
        return f"{copied}, {progress.changes_applied:,} changes applied"
    about = progress.rows_about
    share = f" ({100 * progress.rows_copied // about} %)" if about else ""
    return f"{progress.rows_copied:,} of about {about:,} rows{share}"


def _speed(progress: TransferProgress) -> Iterator[str]:
    if progress.rate:
        yield f"{progress.rate:,.0f}/s"
    if progress.seconds_left is not None:
        yield f"{duration(progress.seconds_left)} left"
    if progress.lag_seconds is not None and progress.phase != "snapshot":
        yield f"lag {duration(progress.lag_seconds)}"
