"""How a task stands, read from its target: whether or not a driver runs, and wherever that is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from truecopy.engines import connect
from truecopy.engines.protocols import Advises, Introspects, Session
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import TruecopyError
from truecopy.model.guarantees import Guarantee
from truecopy.stream.needs import stream_needs
from truecopy.transfer.control import COUNTS, Control, Count, Report, Wishes
from truecopy.transfer.ledger import TASKS, CopiedSoFar, Ledger, TaskLine
from truecopy.transfer.limits import Limits
from truecopy.transfer.preflight import guarantee
from truecopy.transfer.progress import Progress, TableProgress, moment, version_of
from truecopy.transfer.settings import Settings

FRESH_SECONDS = 15.0
"""A driver that has said nothing for so long is not running, or cannot reach the target."""

NOT_BEGUN, RUNNING, WAITING, PAUSED, STOPPED = (
    "not begun",
    "running",
    "waiting",
    "paused",
    "stopped",
)


@dataclass(frozen=True)
class Status:
    """A task as its target knows it.

    Attributes:
        state: `not begun`, `running`, `waiting` (see `progress.waits`), `paused` (by hand, or in front of a change that
            the target is not ready for, which `ended` tells) or `stopped`.
        running: Whether a driver was heard of lately.
        paused_at, heard_at: In microseconds; 0 for never.
        ended: How the last run ended: `done`, or what went wrong; empty while one runs, or was killed.
        limits: Those in force; `changed` names what is other than in the task file.
        guarantee: None where an end does not tell, with the reason in `unpromised`.
    """

    progress: Progress
    state: str
    running: bool = False
    paused_at: int = 0
    heard_at: int = 0
    ended: str = ""
    limits: Limits = field(default_factory=Limits)
    changed: Mapping[str, Any] = field(default_factory=dict)
    guarantee: Guarantee | None = None
    unpromised: str = ""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        promise = self.guarantee
        return {
            "task": self.progress.task,
            "state": self.state,
            "running": self.running,
            "paused_at": moment(self.paused_at),
            "heard_at": moment(self.heard_at),
            "ended": self.ended or None,
            **self.progress.plain(),
            "throttle": {**self.limits.plain(), "changed": sorted(self.changed)},
            "guarantee": {**asdict(promise), "text": str(promise)} if promise else None,
            "guarantee_unknown": self.unpromised or None,
        }


def read_status(settings: Settings) -> Status:
    """Asks the target; of the source only how its changes belong together."""
    with connect(parse_endpoint(settings.target)) as session:
        target: Any = session
        line = Ledger(target, settings.task).find() if _has(session, TASKS) else None
        has_control = _has(session, COUNTS)  # which is made last
        control = Control(target, settings.task)
        wishes = control.wishes() if has_control else Wishes()
        report = control.report() if has_control else None
        counts = control.counts() if has_control else {}
        tables = _tables(Ledger(target, settings.task), counts) if line else {}
        promise, unknown = _promise(settings, session)
    progress = _progress(settings, line, report, tables)
    running = is_running(line, report)
    return Status(
        progress=progress,
        state=_state(line, wishes, report, progress.waits),
        running=running,
        paused_at=wishes.paused_at,
        heard_at=report.said_at if report else 0,
        ended=str(report.document.get("ended", "")) if report else "",
        limits=settings.limits.changed(wishes.throttle),
        changed=wishes.throttle,
        guarantee=promise,
        unpromised=unknown,
    )


def _has(session: Session, table: str) -> bool:
    return cast(Introspects, session).find(table) is not None


def _tables(ledger: Ledger, counts: Mapping[str, Count]) -> dict[str, TableProgress]:
    copied, parts = ledger.copied(), ledger.progress()
    found = {}
    for name in sorted(copied.keys() | counts.keys()):
        done, known = copied.get(name, CopiedSoFar(0, 0, 0)), counts.get(name, Count())
        found[name] = TableProgress(
            done.rows,
            known.about,
            done.chunks,
            done.chunks_copied,
            known.changes,
            version_of(name, parts),
        )
    return found


def _progress(
    settings: Settings,
    line: TaskLine | None,
    report: Report | None,
    tables: Mapping[str, TableProgress],
) -> Progress:
    if line is None:
        return Progress(settings.task, NOT_BEGUN, 0)
    said = report.document if report is not None and is_running(line, report) else {}
    # What was told of another phase had a rate of its own.
    if said.get("phase", line.phase) != line.phase:
        said = {name: said[name] for name in ("waits", "lag_seconds") if name in said}
    rates = said.get("rates") or {}
    return Progress(
        settings.task,
        line.phase,
        line.epoch,
        waits=said.get("waits") or "",
        rate=said.get("rate") or 0.0,
        seconds_left=said.get("seconds_left"),
        lag_seconds=said.get("lag_seconds"),
        tables={name: replace(one, rate=rates.get(name, 0.0)) for name, one in tables.items()},
    )


def is_running(line: TaskLine | None, report: Report | None) -> bool:
    """Whether a driver was heard of lately."""
    if line is None or report is None or report.epoch != line.epoch:
        return False
    is_fresh = time.time() - report.said_at / 1e6 < FRESH_SECONDS
    return is_fresh and not report.document.get("ended")


def _state(line: TaskLine | None, wishes: Wishes, report: Report | None, waits: str) -> str:
    if wishes.paused_at:
        return PAUSED
    if line is None:
        return NOT_BEGUN
    if not is_running(line, report):
        is_paused = report is not None and report.epoch == line.epoch
        return PAUSED if is_paused and report and report.document.get("paused") else STOPPED
    return WAITING if waits else RUNNING


def _promise(settings: Settings, target: Session) -> tuple[Guarantee | None, str]:
    """What both ends give together, or why that is not known."""
    try:
        needs = stream_needs(settings.request)
        advisor = target.advisor() if isinstance(target, Advises) else None
        levels = guarantee.source_level(needs), guarantee.target_level(advisor)
    except TruecopyError as error:
        return None, str(error)
    found, findings = guarantee.judge(settings, *levels)
    return found, "" if found else "; ".join(one.message for one in findings)
