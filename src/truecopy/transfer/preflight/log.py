"""The source's log: whether it can be streamed, and whether it is kept for as long as the copy takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from truecopy.engines.advice import Retention
from truecopy.model.errors import TruecopyError
from truecopy.model.finding import Finding, Subject
from truecopy.stream.needs import Needs, stream_needs
from truecopy.transfer.preflight.ends import Ends, attempt, error, info, warning
from truecopy.transfer.preflight.estimate import duration, size
from truecopy.transfer.settings import Settings

MARGIN = 4
"""A log should be kept for so many times the estimate."""


def ask_stream(settings: Settings, source: object) -> Sequence[Needs] | TruecopyError:
    """What the stream that the transfer will open needs."""
    return attempt(lambda: stream_needs(settings.request), source)


def log_findings(
    asked: Sequence[Needs] | TruecopyError, carried: Collection[str]
) -> Iterator[Finding]:
    """The same as findings; of the tables that the stream leaves out only those that are carried matter."""
    if isinstance(asked, TruecopyError):
        message, _, remedy = str(asked).partition(": ")
        yield error(Subject.LOG, message, remedy)
        return
    for needs in asked:
        for line in needs.missing:
            message, _, remedy = line.partition(": ")
            yield error(Subject.LOG, message, remedy)
        for line in needs.warnings:
            yield warning(Subject.LOG, line)
        for table, why in needs.left_out:
            if table in carried:
                message, _, remedy = why.rpartition(": ")
                said = f"its rows would be copied and its changes not streamed: {message}"
                yield error(Subject.LOG, said, remedy, table)


def check_retention(ends: Ends) -> Iterator[Finding]:
    """Against the time that the copy takes: changes made meanwhile are read afterwards."""
    if ends.source_advisor is None:
        yield info(Subject.LOG, "how long the source keeps its log could not be found out")
        return
    kept = ends.source_advisor.retention()
    if kept is None:
        return
    needed = ends.estimate.seconds
    if kept.seconds is not None:
        held = f"the log is kept for {duration(kept.seconds)} ({kept.setting})"
        yield _judged(kept, held, kept.seconds, needed)
    elif kept.bytes is not None:
        held = f"the server keeps {size(kept.bytes)} of log for a reader that is behind ({kept.setting})"
        if kept.bytes_per_second is None:
            yield info(Subject.LOG, f"{held}; how fast it grows is not known", kept.remedy)
        else:
            grows = f"{held}, and its log grows by {size(kept.bytes_per_second)}/s on the average"
            yield _judged(kept, grows, kept.bytes / max(kept.bytes_per_second, 1e-9), needed)


def _judged(kept: Retention, held: str, lasts: float, needed: float) -> Finding:
    copy = f"the copy takes about {duration(needed)}"
    if lasts < needed:
        return error(Subject.LOG, f"{held}: too short, {copy}", kept.remedy)
    if lasts < MARGIN * needed:
        return warning(Subject.LOG, f"{held}: short, {copy}", kept.remedy)
    return info(Subject.LOG, f"{held}; {copy}, and a task that rests for longer must start anew")
