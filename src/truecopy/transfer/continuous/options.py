"""What continuous validation is asked to do, as plain values; the task file is one way to say it."""

from __future__ import annotations

from dataclasses import dataclass

FULL, FAST = "full", "fast"
AUTO, TASK, REPLICA, LAG = "auto", "task", "replica", "lag"
LONGEST_SECONDS = 3600.0
"""The longest time between two looks at an error."""


@dataclass(frozen=True)
class Tolerance:
    """How far two floats may be apart: a share of the larger one, or so much, whichever allows more."""

    relative: float = 0.0
    absolute: float = 0.0

    def __bool__(self) -> bool:
        return self.relative > 0 or self.absolute > 0


@dataclass(frozen=True)
class ContinuousOptions:
    """See the section `continuous` of the task file, which has the same names; times in seconds."""

    mode: str = FULL
    validate_interval: float = 10.0
    validate_changes: int = 10_000
    row_error_delay: float = 1800.0
    initial_delay: float = 1800.0
    batch_query_size: int = 500
    max_pending_rows: int = 1_000_000
    max_pending_bytes: int = 256 << 20
    meta_flush_interval: float = 60.0
    connections: int = 0
    rate: int = 0
    float_tolerance: float = 0.0
    float_absolute: float = 0.0
    applied: str = AUTO
    lag: float = 60.0

    @property
    def tolerance(self) -> Tolerance:
        return Tolerance(self.float_tolerance, self.float_absolute)
