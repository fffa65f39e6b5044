"""Rows of the store, looked at again: which are equal, which are on their way, which are wrong.

A row that differs is wrong for sure when all of this holds: its source row was read; the replication has
since passed the position at which the source then stood; the target, read after that, still differs; and
no change of the row was counted meanwhile. Changes are counted before they are applied, so the target
cannot show a newer row without a count. In every other case the row stays in the store.

Rows that foreign keys change are counted by nobody, nor those of changes that are keyed otherwise than the rows are
looked at. For these, no change that might have set it off may have been heard of meanwhile, either.

The log may have a commit that the source does not show yet, and the target rightly holds it: so rows are
looked at only once the source shows every change that was counted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof import shrinking
from truecopy.transfer.proof.keys import unpack
from truecopy.transfer.proof.look import Seen, look, mismatches, target_prints
from truecopy.transfer.proof.shrinking import ShrinkRules, Shrunk
from truecopy.transfer.proof.store import ReverifyStore, Taken
from truecopy.transfer.proof.verifier import Mismatch, Scene
from truecopy.transfer.proof.visible import are_visible, log_end

KEYS_PER_LOOK = 10_000
PATIENCE_SECONDS = 5.0
"""How long a look waits for the replication before it leaves rows that differ for later."""

_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Looked:
    """What a look found: how many rows it compared, and which of them are wrong."""

    rows: int
    mismatches: tuple[Mismatch, ...] = ()


class Reverification:
    """The store of a task and both sides of it.

    Attributes:
        acts: How many batches were heard of by which foreign keys may act, or whose keys could not be counted.
        uncounted: The tables whose keys could not be counted, at least once.
    """

    def __init__(self, scene: Scene, store: ReverifyStore) -> None:
        self._scene = scene
        self._store = store
        self.acts = 0
        self.uncounted = set[str]()

    def work(self, limit: int = KEYS_PER_LOOK, before: int | None = None) -> Looked:
        """Looks at some rows while both sides are written to."""
        rows, found = 0, list[Mismatch]()
        for taken in self._store.take(limit, before):
            plan = self._plan(taken)
            if not self._is_shown(plan):
                self._store.put_back(taken, taken.packed)
                continue
            acts = self.acts
            seen = self._look(plan, taken)
            rows += len(taken.packed)
            if suspects := self._settle_equal(taken, seen):
                found += self._judge(plan, taken, seen, suspects, acts)
        return Looked(rows, tuple(found))

    def shrink(self, rules: ShrinkRules) -> tuple[Shrunk, tuple[Mismatch, ...]]:
        """Looks at everything again and again; refuses when the rest would keep writers out too long."""
        found: dict[tuple[str, object], Mismatch] = {}

        def look_at_all() -> int:
            turn, rows = self._store.next_turn(), 0
            while looked := self.work(before=turn):
                if not looked.rows:
                    return rows
                rows += looked.rows
                found.update({(one.table, one.key): one for one in looked.mismatches})
            return rows

        shrunk = shrinking.shrink(lambda: len(self._store), look_at_all, rules)
        if not shrunk.fits(rules):
            expected = shrunk.expected_downtime
            why = (
                "and none of them can be looked at yet"
                if expected is None
                else f"which would keep writers out for about {expected:.1f} s, more than {rules.max_downtime:g} s"
            )
            raise CannotFinish(
                f"{shrunk.left} changed rows of {self._scene.task} are left to be verified, {why}: cut over when the"
                " source is written to less, or allow more"
            )
        return shrunk, tuple(found.values())

    def finish(self) -> Looked:
        """Looks at all that is left; nothing is written any more, so whatever differs is wrong."""
        self._store.release()
        turn, rows, found = self._store.next_turn(), 0, list[Mismatch]()
        while batch := self._store.take(KEYS_PER_LOOK, turn):
            for taken in batch:
                plan = self._plan(taken)
                if not self._is_shown(plan):
                    raise CannotFinish(
                        f"commits on {plan.source.endpoint} wait for a replica, so that rows cannot be compared:"
                        " let the replica go on, and cut over again"
                    )
                rows += len(taken.packed)
                if suspects := self._settle_equal(taken, self._look(plan, taken)):
                    found += self._name(plan, taken, suspects)
        return Looked(rows, tuple(found))

    def _plan(self, taken: Taken) -> TablePlan:
        plan = self._scene.plans.get(taken.table)
        if plan is None:
            raise CannotFinish(
                f"changed rows of {taken.table} are left to be verified, which {self._scene.task} does not carry any"
                " more: carry it again, or start the task anew"
            )
        return plan

    def _is_shown(self, plan: TablePlan) -> bool:
        """Whether the source shows every change that was counted; waits for it a moment."""
        return are_visible(plan.source.endpoint, self._store.reached(), PATIENCE_SECONDS)

    def _look(self, plan: TablePlan, taken: Taken) -> Seen:
        return look(plan, taken.packed, taken.keys, self._scene.spark)

    def _settle_equal(self, taken: Taken, seen: Seen) -> list[str]:
        suspects = seen.differing
        different = set(suspects)
        self._store.subtract(taken, [key for key in taken.packed if key not in different])
        return suspects

    def _judge(
        self, plan: TablePlan, taken: Taken, seen: Seen, suspects: Sequence[str], acts: int
    ) -> list[Mismatch]:
        # After the target was read, not right after the source: MySQL shows rows a moment before its
        # position does.
        position = log_end(plan.source.endpoint)
        if position is None or not self._wait_for(plan.source.endpoint, position):
            self._store.put_back(taken, suspects)
            return []
        now = target_prints(plan, suspects, unpack(list(suspects)))
        wrong = [key for key in suspects if now[key] != seen.source[key]]
        self._store.subtract(taken, [key for key in suspects if now[key] == seen.source[key]])
        is_tied = plan.tie is not None and plan.tie.follows
        is_uncounted = is_tied or plan.source_name in self.uncounted
        may_have_followed = is_uncounted and self.acts != acts
        sure = set[str]() if may_have_followed else self._store.unchanged(taken, wrong)
        self._store.put_back(taken, [key for key in wrong if key not in sure])
        return self._name(plan, taken, [key for key in wrong if key in sure])

    def _name(self, plan: TablePlan, taken: Taken, wrong: Sequence[str]) -> list[Mismatch]:
        """Says how rows differ; one that has come right by now is equal."""
        if not wrong:
            return []
        keys = dict(zip(unpack(list(wrong)), wrong, strict=True))
        found = mismatches(plan, list(keys), self._scene.spark)
        different = {keys[one.key] for one in found}
        self._store.subtract(taken, [key for key in wrong if key not in different])
        self._store.put_back(taken, list(different))
        return found

    def _wait_for(self, endpoint: Endpoint, position: str) -> bool:
        has_applied = self._scene.has_applied
        if has_applied is None:
            return False
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not has_applied(endpoint, position):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True
