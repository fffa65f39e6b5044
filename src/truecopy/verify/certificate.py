"""The certificate: what was compared, where both sides stood, the digests, what was not seen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from truecopy import spark as spark_settings
from truecopy.model.types import type_name
from truecopy.verify.report import Report, TableReport

DEFINITION = (
    "truecopy fingerprint 1: sum of the first 60 bits of the SHA-256 of each row's canonical text"
)


def issue_certificate(report: Report, more: Mapping[str, Any] | None = None) -> Report:
    """Writes the certificate as JSON and as a page, and gives the report with its path.

    Args:
        report: What was compared.
        more: Parts of the document besides those that every report has, or in their place.
    """
    from truecopy.verify.page import certificate_page  # which shows what this module makes

    document = certificate(report, more)
    folder = spark_settings.state_folder() / "certificates"
    folder.mkdir(exist_ok=True)
    path = folder / f"{document['id']}.json"
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_suffix(".html").write_text(certificate_page(report, more), encoding="utf-8")
    return replace(report, certificate=str(path))


def certificate(report: Report, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The certificate as a document; its id is the hash of everything else in it."""
    document: dict[str, Any] = {
        "verdict": report.verdict,
        "definition": DEFINITION,
        "started_at": _time(report.started_at),
        "finished_at": _time(report.started_at + report.seconds),
        "source": {
            "endpoint": str(report.source),
            "position_before": report.positions.get("source_before"),
            "position_after": report.positions.get("source_after"),
        },
        "target": {
            "endpoint": str(report.target),
            "position_before": report.positions.get("target_before"),
            "position_after": report.positions.get("target_after"),
        },
        "tables": [_table(table) for table in report.tables],
        "not_seen": not_seen(report),
        **(more or {}),
    }
    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    return {"id": hashlib.sha256(text.encode()).hexdigest()[:24], **document}


def not_seen(report: Report) -> list[str]:
    """What this verification could not vouch for, in words."""
    limits = []
    for table in report.tables:
        if table.ignored:
            limits.append(f"{table.source}: columns left out: {', '.join(table.ignored)}")
        if not table.complete or table.verdict == "not_compared":
            limits.append(f"{table.source or table.target}: {table.reason}")
        if table.unsettled:
            limits.append(
                f"{table.source}: {table.unsettled} rows kept changing and were not judged"
            )
        fatal = [
            finding.message for finding in table.structure if finding.kind.startswith("missing_on")
        ]
        limits += [f"{table.source}: {message}" for message in fatal]
    limits += [f"{name}: the target has no such table" for name in report.only_source]
    limits += [f"{name}: the source has no such table" for name in report.only_target]
    options = report.options
    if options.where:
        limits.append(f"rows outside of: {options.where}")
    if options.sample is not None:
        limits.append(f"all but a sample of {options.sample:.0%} of the chunks")
    if options.float_tolerance:
        limits.append(f"floats that differ by a relative {options.float_tolerance:g} or less")
    if not options.live:
        limits.append("writes during the run: both sides were taken to stand still")
    limits.append("views, triggers, routines, grants and sequences")
    return limits


def _table(table: TableReport) -> dict[str, Any]:
    source, target = table.digests
    return {
        "source": table.source,
        "target": table.target,
        "verdict": table.verdict,
        "reason": table.reason,
        "rows_compared": table.rows_compared,
        "source_digest": {"count": source.count, "sum": str(source.total)},
        "target_digest": {"count": target.count, "sum": str(target.total)},
        "missing": table.missing,
        "extra": table.extra,
        "differing": table.differing,
        "unsettled": table.unsettled,
        "key": list(table.key),
        "columns": {
            name: type_name(kind) for name, kind in zip(table.columns, table.types, strict=True)
        },
        "ignored_columns": list(table.ignored),
        "sampled": table.sampled,
        "chunks": len(table.chunks),
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
