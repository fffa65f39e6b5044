"""From the recorded chunks of a comparison to its verdict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from truecopy.metastore.chunks import ChunkRecord
from truecopy.model.fingerprint import Digest
from truecopy.model.types import Json
from truecopy.verify.compare import ChunkResult
from truecopy.verify.differences import to_arrow, to_bytes
from truecopy.verify.live import Settled
from truecopy.verify.matching import Comparison
from truecopy.verify.options import Options
from truecopy.verify.report import DIFFERENT, EQUAL, NOT_COMPARED, ChunkSummary, TableReport

CLOSING = 2**31 - 1
"""The number of the record that closes a comparison made through Spark's frames."""
SETTLED = CLOSING - 1
"""The number of the record that holds what a live run found after the rows had settled."""

_COUNTS = ("missing", "extra", "differing", "unsettled")


def to_record(result: ChunkResult) -> ChunkRecord:
    """A result as it is kept."""
    summary: dict[str, str | int | float] = {
        "source_count": result.source.count,
        "source_total": str(result.source.total),
        "target_count": result.target.count,
        "target_total": str(result.target.total),
        "seconds": round(result.seconds, 4),
        **{name: getattr(result, name) for name in _COUNTS},
    }
    return ChunkRecord(result.comparison, result.chunk, summary, result.found, result.differences)


def without_differences(record: ChunkRecord) -> ChunkRecord:
    """A record whose suspected rows were judged elsewhere."""
    summary = {**record.summary, **dict.fromkeys(_COUNTS, 0)}
    return ChunkRecord(record.comparison, record.number, summary, 0, b"")


def settled_result(comparison: int, settled: Settled) -> ChunkResult:
    """What a live run found, as one more result."""
    kinds = [difference.kind for difference in settled.different]
    return ChunkResult(
        comparison,
        SETTLED,
        Digest(),
        Digest(),
        missing=kinds.count("missing"),
        extra=kinds.count("extra"),
        differing=kinds.count("differs"),
        unsettled=settled.unsettled,
        differences=to_bytes(to_arrow(settled.different)) if kinds else b"",
    )


def table_report(
    comparison: Comparison,
    number: int,
    records: Iterable[ChunkRecord],
    planned: int | None,
    options: Options,
    stopped: str | None,
) -> TableReport:
    """The report on one pair of tables.

    Args:
        comparison: What was compared.
        number: Its number in the run.
        records: What is known of it.
        planned: How many chunks were to be compared; None where it was compared through frames.
        options: How it was compared.
        stopped: Why the run ended before its end, if it did.
    """
    source = target = Digest()
    counts = dict.fromkeys(_COUNTS, 0)
    chunks = []
    for record in records:
        summary: dict[str, Any] = record.summary
        source += Digest(summary["source_count"], int(summary["source_total"]))
        target += Digest(summary["target_count"], int(summary["target_total"]))
        counts = {name: count + summary[name] for name, count in counts.items()}
        rows = max(summary["source_count"], summary["target_count"])
        if record.number < SETTLED:
            chunks.append(ChunkSummary(record.number, rows, record.found, summary["seconds"]))
    complete = stopped is None or (planned is not None and len(chunks) >= planned)
    found = counts["missing"] + counts["extra"] + counts["differing"]
    if not found and not options.live:
        counts["unsettled"] = max(
            counts["unsettled"], _unexplained(comparison, source, target, options)
        )
    compared = source.count + counts["extra"]
    verdict, reason = _verdict(comparison, found, compared, counts["unsettled"], options)
    if not complete:
        verdict = DIFFERENT if found else NOT_COMPARED
        reason = stopped if found else f"{stopped}: {compared:,} rows were compared, all equal"
    return TableReport(
        source=comparison.source_name,
        target=comparison.target_name,
        verdict=verdict,
        reason=reason,
        rows_compared=compared,
        rows_source=source.count,
        rows_target=target.count,
        **counts,
        structure=comparison.findings,
        complete=complete,
        sampled=options.sample is not None,
        digests=(source, target),
        columns=comparison.column_names,
        types=comparison.source.types,
        key=comparison.column_names[: comparison.source.key_width],
        ignored=comparison.ignored,
        chunks=tuple(chunks),
        comparison=number,
    )


def _unexplained(comparison: Comparison, source: Digest, target: Digest, options: Options) -> int:
    """Rows that the digests say differ though none was found: somebody wrote while they were read."""
    by_letter = any(isinstance(kind, Json) and kind.form for kind in comparison.source.types)
    if by_letter or options.float_tolerance:  # equal rows may have other digests
        return abs(source.count - target.count)
    return max(1, abs(source.count - target.count)) if source != target else 0


def _verdict(
    comparison: Comparison, found: int, compared: int, unsettled: int, options: Options
) -> tuple[str, str | None]:
    fatal = [finding.message for finding in comparison.findings if finding.fatal]
    if found:
        return DIFFERENT, None
    if unsettled and not options.live:
        return (
            NOT_COMPARED,
            f"{unsettled:,} rows changed while they were read: verify again, or with --live",
        )
    if fatal:
        return DIFFERENT, fatal[0]
    if not compared:
        return NOT_COMPARED, "both sides are empty: no row was compared"
    return EQUAL, None
