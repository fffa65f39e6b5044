"""The verifiers that a task asks for, beside its replication."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf

from truecopy.model.endpoint import Endpoint
from truecopy.transfer.gate import Gate
from truecopy.transfer.packing import Apply, Packed
from truecopy.transfer.proof.background import Background
from truecopy.transfer.proof.inline import InlineVerifier, IterativeVerifier
from truecopy.transfer.proof.mapped import is_looked_up, kept_by
from truecopy.transfer.proof.observed import observed
from truecopy.transfer.proof.shrinking import ShrinkRules
from truecopy.transfer.proof.store import open_store
from truecopy.transfer.proof.target_log import TargetVerifier, stop_watching
from truecopy.transfer.proof.verifier import NotProven, Outcome, Scene, Verifier

INLINE, ITERATIVE, CHECKSUM, TARGET = "inline", "iterative", "checksum", "target"
ROUNDS = 30
_HARDLY_FEWER = 0.9


def open_verifiers(
    scene: Scene, wanted: Collection[str], target: Endpoint, rules: ShrinkRules
) -> list[Verifier]:
    """Those that hear of changes; a checksum is taken at the cutover alone.

    The target verifier comes first, since the rows that it hears of go into the store that the other looks at. Keys of
    tables that have left the task, or have got another key, leave the store: a run that goes on, and a cutover, begin
    with a comparison of all rows of the tables that are left.
    """
    if TARGET not in wanted:
        stop_watching(scene.task, target)
    if not {INLINE, ITERATIVE, TARGET}.intersection(wanted):
        return []
    store = open_store(scene.task, target.identity)
    looked_up = {name: plan for name, plan in scene.plans.items() if is_looked_up(plan)}
    store.keep_only({name: kept_by(plan) for name, plan in looked_up.items()})
    found: list[Verifier] = [TargetVerifier(scene, store, target)] if TARGET in wanted else []
    kind = IterativeVerifier if ITERATIVE in wanted else InlineVerifier
    return [*found, kind(scene, store, rules)]


class Watch:
    """The verifiers of a run: they hear of every batch, and look at rows beside it.

    What one of them has found fails the batch that comes next, or the run between two (`check`).
    """

    def __init__(self, verifiers: Sequence[Verifier]) -> None:
        self._verifiers = verifiers
        self._beside: list[Background] = []

    def start(self, *, resumed: bool) -> None:
        for verifier in self._verifiers:
            verifier.start(resumed=resumed)

    def observed(self, apply: Apply) -> Apply:
        """For `foreachBatch`."""
        if not self._verifiers:
            return apply
        heard = observed(apply, self._verifiers)

        def apply_watched(changes: Packed, number: int) -> None:
            self.check()
            heard(changes, number)

        return apply_watched

    @contextmanager
    def reading_along(self) -> Iterator[None]:
        """Reads the target's log while the block copies rows, and to its end afterwards; raises what is found there.

        Of rows nothing can be said before all of them are in.
        """
        readers = [one for one in self._verifiers if isinstance(one, TargetVerifier)]
        with ExitStack() as stack:
            self._beside = [stack.enter_context(Background(one)) for one in readers]
            yield
        self.check()
        self._beside = []
        for reader in readers:
            _require_nothing(reader.work())

    @contextmanager
    def beside(self, gate: Gate) -> Iterator[None]:
        """Looks at rows again and again while the block runs; begin it when the copy is complete.

        Afterwards the gate is closed: a comparison of all rows is not waited for.
        """
        with ExitStack() as stack:
            self._beside = [stack.enter_context(Background(one)) for one in self._verifiers]
            stack.callback(gate.close)
            yield
        self.check()

    def check(self) -> None:
        """Raises what was found beside the run, if anything was."""
        for background in self._beside:
            background.check()

    def look(self) -> None:
        """Looks at the rows that changed, until none is left or hardly fewer are; raises what is wrong for sure.

        Nothing is replicated meanwhile: rows that somebody changes on the source are left for the next run.
        """
        for verifier in self._verifiers:
            left = inf
            for _ in range(ROUNDS):
                outcome = verifier.work()
                _require_nothing(outcome)
                if not outcome.waiting or outcome.waiting > _HARDLY_FEWER * left:
                    break
                left = outcome.waiting

    @property
    def waiting(self) -> int:
        """Rows that changed and have still to be looked at."""
        return sum(verifier.waiting for verifier in self._verifiers)

    def expect_shapes(self) -> None:
        """The target's tables are taken as they are."""
        for verifier in self._verifiers:
            if isinstance(verifier, TargetVerifier):
                verifier.expect_shapes()

    def close(self) -> None:
        for verifier in self._verifiers:
            verifier.close()


def _require_nothing(outcome: Outcome) -> None:
    if outcome.found:
        raise NotProven(outcome)
