"""The last verification: rows that changed are looked at again, and whole tables where that is quick enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from truecopy.model.endpoint import Endpoint
from truecopy.model.fingerprint import Digest
from truecopy.transfer.cutover.settings import How
from truecopy.transfer.proof.checksum import ChecksumVerifier
from truecopy.transfer.proof.chosen import CHECKSUM, TARGET, open_verifiers
from truecopy.transfer.proof.shrinking import ShrinkRules
from truecopy.transfer.proof.target_log import TargetVerifier
from truecopy.transfer.proof.verifier import NotProven, Outcome, Scene, Verifier

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
        rules = ShrinkRules(max_downtime=how.max_downtime / 2)
        self._verifiers = open_verifiers(scene, how.verify, target, rules)
        rows = sum(plan.comparison.rows for plan in scene.plans.values())
        is_small = rows <= WHOLE_ROWS
        self._is_whole = CHECKSUM in how.verify or not self._verifiers or is_small
        # Few rows are digested sooner than Spark has begun; those that are mapped go through it anyhow.
        is_plain = not any(plan.is_mapped for plan in scene.plans.values())
        self._checksum = ChecksumVerifier(
            replace(scene, spark=None) if is_small and is_plain else scene
        )

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
        if self._is_whole:
            outcomes.append(self._checksum.finish())
        for outcome in outcomes:
            _require_nothing(outcome)
            # The target's log may be without a write of ours; it proves nothing then, and refutes nothing.
            if not outcome.passed and outcome.verifier != TARGET:
                raise NotProven(outcome)
        return Proof(tuple(outcomes), self._checksum.digests)

    def stop_watching(self) -> None:
        """After our last write to the target, and before writers are let in there: who else has written up to here?"""
        for verifier in self._verifiers:
            if isinstance(verifier, TargetVerifier):
                _require_nothing(verifier.finish())

    def close(self) -> None:
        for verifier in self._verifiers:
            verifier.close()


def _require_nothing(outcome: Outcome) -> None:
    if outcome.found:
        raise NotProven(outcome)
