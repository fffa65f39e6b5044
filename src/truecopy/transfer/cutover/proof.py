"""The last verification: rows that changed are looked at again, and whole tables where that is quick enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from truecopy.model.endpoint import Endpoint
from truecopy.model.fingerprint import Digest
from truecopy.transfer.cutover.settings import How
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof.checksum import all_digests, digest_mismatch
from truecopy.transfer.proof.chosen import CHECKSUM, TARGET, open_verifiers
from truecopy.transfer.proof.mapped import compare_mapped
from truecopy.transfer.proof.shrinking import ShrinkRules
from truecopy.transfer.proof.target_log import TargetVerifier
from truecopy.transfer.proof.verifier import SHOWN, NotProven, Outcome, Scene, Verifier

WHOLE_ROWS = 200_000
"""Up to so many rows, whole tables are digested as well: it takes less than a second."""


@dataclass(frozen=True)
class Proof:
    """What was shown while writers were locked out.

    Attributes:
        outcomes: What each verifier said.
        digests: Of the tables that were digested as a whole, by source table.
    """

    outcomes: tuple[Outcome, ...]
    digests: Mapping[str, tuple[Digest, Digest]]


class Prover:
    """The verifiers of one cutover.

    Args:
        scene: What they work on.
        how: Which of them are wanted; without any that looks at rows, whole tables are digested.
        target: Where the target's own log is.
    """

    def __init__(self, scene: Scene, how: How, target: Endpoint) -> None:
        self._scene = scene
        rules = ShrinkRules(max_downtime=how.max_downtime / 2)
        self._verifiers = open_verifiers(scene, how.verify, target, rules)
        rows = sum(plan.comparison.rows for plan in scene.plans.values())
        self._is_small = rows <= WHOLE_ROWS
        self._whole = CHECKSUM in how.verify or not self._verifiers or self._is_small

    @property
    def verifiers(self) -> Sequence[Verifier]:
        """Who has to hear of every batch of changes."""
        return self._verifiers

    def start(self) -> None:
        for verifier in self._verifiers:
            verifier.start(resumed=True)

    def shrink(self) -> None:
        """Leaves as little as possible for the time in which writers wait."""
        for verifier in self._verifiers:
            _require_nothing(verifier.shrink())

    def work(self) -> None:
        """Looks at what changed lately."""
        for verifier in self._verifiers:
            _require_nothing(verifier.work())

    def finish(self) -> Proof:
        """The last word on rows, with writers locked out and every change applied; the target is watched on."""
        outcomes = [
            verifier.work() if isinstance(verifier, TargetVerifier) else verifier.finish()
            for verifier in self._verifiers
        ]
        digests: dict[str, tuple[Digest, Digest]] = {}
        if self._whole:
            outcome, digests = self._digest()
            outcomes.append(outcome)
        for outcome in outcomes:
            _require_nothing(outcome)
            # The target's log may be without a write of ours; it proves nothing then, and refutes nothing.
            if not outcome.passed and outcome.verifier != TARGET:
                raise NotProven(outcome)
        return Proof(tuple(outcomes), digests)

    def stop_watching(self) -> None:
        """After our last write to the target, and before writers are let in there: who else has written up to here?"""
        for verifier in self._verifiers:
            if isinstance(verifier, TargetVerifier):
                _require_nothing(verifier.finish())

    def close(self) -> None:
        for verifier in self._verifiers:
            verifier.close()

    def _digest(self) -> tuple[Outcome, dict[str, tuple[Digest, Digest]]]:
        plans = list(self._scene.plans.values())
        plain = [plan for plan in plans if not plan.is_mapped]
        scene = replace(self._scene, spark=None) if self._is_small else self._scene
        digests = dict(zip(_names(plain), all_digests(scene, plain), strict=True))
        found = [
            digest_mismatch(plan, *digests[plan.source_name])
            for plan in plain
            if digests[plan.source_name][0] != digests[plan.source_name][1]
        ]
        mapped = compare_mapped(self._scene, [plan for plan in plans if plan.is_mapped], SHOWN)
        outcome = Outcome(
            CHECKSUM,
            tables=len(plans),
            rows=sum(source.count for source, _ in digests.values()) + mapped.rows,
            found=len(found) + mapped.found,
            mismatches=(*found, *mapped.mismatches)[:SHOWN],
        )
        return outcome, digests


def _names(plans: Sequence[TablePlan]) -> list[str]:
    return [plan.source_name for plan in plans]


def _require_nothing(outcome: Outcome) -> None:
    if outcome.found:
        raise NotProven(outcome)
