"""What a check ends with."""

from __future__ import annotations

from dataclasses import dataclass

from truecopy.engines.advice import Uncarried
from truecopy.model.endpoint import Endpoint
from truecopy.model.finding import Finding, Level
from truecopy.model.guarantees import Guarantee
from truecopy.transfer.preflight.estimate import Estimate


@dataclass(frozen=True)
class Report:
    """Everything that was found.

    Attributes:
        tables: Source and target of each table that the task carries, and whether the target's is there.
        guarantee: What the task gives; None where it is refused, or the levels are not known.
        source_level, target_level: What the two ends can do; empty where that is not known.
        inventory: What is not carried.
    """

    task: str
    source: Endpoint
    target: Endpoint
    tables: tuple[tuple[str, str, bool], ...]
    estimate: Estimate
    guarantee: Guarantee | None
    source_level: str
    target_level: str
    findings: tuple[Finding, ...]
    inventory: tuple[Uncarried, ...]
    seconds: float = 0.0

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What must be mended first."""
        return tuple(found for found in self.findings if found.level is Level.ERROR)

    @property
    def is_ready(self) -> bool:
        return not self.errors
