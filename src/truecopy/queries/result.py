"""What became of a query: the event that reports, sinks and exit codes are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from truecopy.engines.queries.failure import Failure
from truecopy.queries.verdict import ColumnVerdict, Match


class Status(StrEnum):
    """The verdict on a query."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    FAILED_RESOLVED = "FAILED_RESOLVED"
    SKIPPED = "SKIPPED"


class Skipped(StrEnum):
    """Why a query has no verdict."""

    SYNTAX_ERROR = "SYNTAX_ERROR"
    UNSUPPORTED_QUERY_TYPE = "UNSUPPORTED_QUERY_TYPE"
    MISMATCHED_QUERY_TYPES = "MISMATCHED_QUERY_TYPES"
    UNSAFE = "UNSAFE"
    FILTERED = "FILTERED"
    CUSTOM_FILTER = "CUSTOM_FILTER"
    CONTROL_SETUP_QUERY_FAILED = "CONTROL_SETUP_QUERY_FAILED"
    CONTROL_QUERY_FAILED = "CONTROL_QUERY_FAILED"
    CONTROL_QUERY_TIMED_OUT = "CONTROL_QUERY_TIMED_OUT"
    NON_DETERMINISTIC = "NON_DETERMINISTIC"
    NOT_IN_BANK = "NOT_IN_BANK"
    VERIFIER_INTERRUPTED = "VERIFIER_INTERRUPTED"


@dataclass
class SideReport:
    """One side of a query, filled in while it runs."""

    endpoint: str
    sql: str = ""
    setup: list[str] = field(default_factory=list)
    seconds: float | None = None
    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    rows: int | None = None
    schema: dict[str, str] = field(default_factory=dict)
    plan: str | None = None
    banked: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; what is not known is null."""
        return {
            "endpoint": self.endpoint,
            "setup": self.setup,
            "sql": self.sql,
            "seconds": None if self.seconds is None else round(self.seconds, 6),
            "cpu_seconds": None if self.cpu_seconds is None else round(self.cpu_seconds, 6),
            "memory_bytes": self.memory_bytes,
            "rows": self.rows,
            "schema": self.schema,
            "plan": self.plan,
            "banked": self.banked,
        }


@dataclass
class QueryResult:
    """The event of one query.

    Attributes:
        detail: One line on what is wrong, or why there is no verdict.
        resolved_by: The resolver that explained a failure.
        regression: What was too slow, where a gate was set.
        exact: Equal to the last bit, floats included.
    """

    suite: str
    name: str
    type: str = ""
    repetition: int = 1
    status: Status = Status.SKIPPED
    match: Match = Match.NOT_COMPARED
    skipped_reason: Skipped | None = None
    detail: str = ""
    determinism: str | None = None
    resolved_by: str | None = None
    regression: str | None = None
    exact: bool | None = None
    control: SideReport | None = None
    test: SideReport | None = None
    failures: list[Failure] = field(default_factory=list)
    columns: tuple[ColumnVerdict, ...] = ()
    differences: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The event that `--json` prints, a line each."""
        return {
            "suite": self.suite,
            "name": self.name,
            "type": self.type,
            "repetition": self.repetition,
            "status": str(self.status),
            "match": str(self.match),
            "skipped_reason": None if self.skipped_reason is None else str(self.skipped_reason),
            "detail": self.detail,
            "determinism": self.determinism,
            "resolved_by": self.resolved_by,
            "regression": self.regression,
            "exact": self.exact,
            "control": None if self.control is None else self.control.to_dict(),
            "test": None if self.test is None else self.test.to_dict(),
            "failures": [failure.to_dict() for failure in self.failures],
            "columns": [column.to_dict() for column in self.columns],
            "differences": list(self.differences),
            "seconds": round(self.seconds, 6),
        }


def exit_code(results: list[QueryResult]) -> int:
    """0 all answers agree, 1 some do not, 3 nothing could be compared."""
    if any(result.status is Status.FAILED for result in results):
        return 1
    return 3 if not any(result.status is not Status.SKIPPED for result in results) else 0
