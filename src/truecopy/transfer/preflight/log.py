"""Logs: whether the source's can be streamed, and the target's be watched, and whether they are kept long enough."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from truecopy.engines.advice import Advisor, Retention
from truecopy.engines.protocols import KeepsAnnotations
from truecopy.model.errors import TruecopyError
from truecopy.model.finding import Finding, Subject
from truecopy.stream.needs import Needs, log_needs, stream_needs
from truecopy.transfer.preflight.ends import Ends, attempt, error, info, warning
from truecopy.transfer.preflight.estimate import duration, size
from truecopy.transfer.proof.chosen import TARGET
from truecopy.transfer.proof.target_log import target_log
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
    else:
        yield from _retention(ends, ends.source_advisor, "the log", "the server")


def check_target_log(ends: Ends) -> Iterator[Finding]:
    """What the target verifier reads, where it is chosen: who wrote what, from before the first row to the cutover."""
    if TARGET not in ends.settings.verify:
        return
    target, endpoint = ends.target, ends.target.endpoint
    if not isinstance(target, KeepsAnnotations):
        yield error(
            Subject.LOG,
            f"the target verifier cannot be used: {endpoint} keeps no log of who wrote what",
            "verify: {target: false}",
        )
        return
    needs = log_needs(endpoint, target_log(ends.settings.task, endpoint))
    for line in (*target.annotation_gaps(), *needs.missing):
        message, _, remedy = line.partition(": ")
        yield error(Subject.LOG, f"the target verifier cannot read along: {message}", remedy)
    if not needs.missing and ends.target_advisor is not None:
        yield from _retention(ends, ends.target_advisor, "the target's log", "the target")


def _retention(ends: Ends, advisor: Advisor, log: str, server: str) -> Iterator[Finding]:
    kept = advisor.retention()
    if kept is None:
        return
    needed = ends.estimate.seconds
    if kept.seconds is not None:
        held = f"{log} is kept for {duration(kept.seconds)} ({kept.setting})"
        yield _judged(kept, held, kept.seconds, needed)
    elif kept.bytes is not None:
        held = (
            f"{server} keeps {size(kept.bytes)} of log for a reader that is behind ({kept.setting})"
        )
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
