"""What is missing before a task can run, as a document."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from truecopy.model.endpoint import mask_secrets
from truecopy.tasks.file import Task
from truecopy.tasks.legs import transfer_legs

if TYPE_CHECKING:
    from truecopy.transfer.preflight.report import Report


def check_task(task: Task) -> tuple[bool, list[Report]]:
    """Looks at both ends of each leg; whether the task can run."""
    from truecopy.transfer.preflight.check import preflight

    reports = [preflight(leg) for leg in transfer_legs(task)]
    return all(report.is_ready for report in reports), reports


def check_document(task: Task) -> tuple[bool, dict[str, Any]]:
    """The same as JSON has it, without secrets."""
    ready, reports = check_task(task)
    found = [document(report) for report in reports]
    whole = {"task": task.task, "verdict": verdict(ready), "legs": found}
    text = json.dumps(found[0] if len(found) == 1 else whole, ensure_ascii=False)
    secrets = tuple(end for report in reports for end in (report.source, report.target))
    masked: dict[str, Any] = json.loads(mask_secrets(text, secrets))
    return ready, masked


def verdict(ready: bool) -> str:
    """In a word."""
    return "ready" if ready else "not_ready"


def document(report: Report) -> dict[str, Any]:
    """The report of one leg as JSON has it."""
    promise = report.guarantee
    return {
        "task": report.task,
        "verdict": verdict(report.is_ready),
        "source": str(report.source),
        "target": str(report.target),
        "tables": [
            {"source": source, "target": target, "exists": exists}
            for source, target, exists in report.tables
        ],
        "estimate": {**asdict(report.estimate), "seconds": round(report.estimate.seconds, 1)},
        "guarantee": {
            "source": report.source_level or None,
            "target": report.target_level or None,
            "effective": None if promise is None else {**asdict(promise), "text": str(promise)},
        },
        "findings": [asdict(finding) for finding in report.findings],
        "not_carried": [asdict(thing) for thing in report.inventory],
        "seconds": round(report.seconds, 3),
    }
