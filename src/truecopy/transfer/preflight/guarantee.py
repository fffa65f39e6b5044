"""What the two ends can promise together, and whether the task asks for more."""

from __future__ import annotations

from collections.abc import Sequence

from truecopy.engines.advice import Advisor
from truecopy.engines.protocols import Advises, Session
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.model.finding import Finding, Subject
from truecopy.model.guarantees import (
    Consistency,
    Delivery,
    Guarantee,
    Refusal,
    SourceLevel,
    TargetLevel,
    effective,
)
from truecopy.stream.needs import Needs
from truecopy.transfer.preflight.ends import error
from truecopy.transfer.settings import Settings

NO_TARGET = "cannot be the target of a transfer; a lake can, with ?format=parquet or ?format=delta"


def source_level(asked: Sequence[Needs] | TruecopyError) -> SourceLevel | None:
    """The weakest of the logs; None where there is none."""
    if isinstance(asked, TruecopyError) or not asked:
        return None
    strength = list(SourceLevel)
    return min((SourceLevel(needs.level.value) for needs in asked), key=strength.index)


def target_level(advisor: Advisor | None) -> TargetLevel | None:
    """As the target says."""
    return advisor.target_level if advisor else None


def require_target(settings: Settings, target: Session) -> None:
    """Refuses, before anything is written, what the target alone cannot give; of the source a check tells."""
    advisor = target.advisor() if isinstance(target, Advises) else None
    _, refused = judge(settings, SourceLevel.TRANSACTION, target_level(advisor))
    for finding in refused:
        raise UsageError(f"{finding.message}: {finding.remedy}")


def judge(
    settings: Settings, source: SourceLevel | None, target: TargetLevel | None
) -> tuple[Guarantee | None, list[Finding]]:
    """What the task gives; asking more than the ends can give is an error, not less than was asked for."""
    if source is None or target is None:
        return None, []
    delivery, wanted = Delivery(settings.delivery), Consistency(settings.consistency)
    found = effective(source, target, delivery, wanted)
    if isinstance(found, Refusal):
        return None, [error(Subject.GUARANTEE, found.reason, found.remedy)]
    if found.consistency is not wanted:
        return found, [
            error(
                Subject.GUARANTEE,
                f"consistency: {wanted} cannot be had, since {found.weakened}",
                f"write consistency: {found.consistency}",
            )
        ]
    return found, []
