"""The inline and the iterative verifier: rows that changed are looked at again until they are equal.

Inline: each chunk of the copy was compared in the transaction that wrote it (`transfer.snapshot`). From
then on the keys of every change go into the store. A run that goes on after another has ended, and every
cutover, begins with a digest pass beside the replication: it finds what the store cannot know of, such as
changes that were lost or rows that somebody else wrote.

Iterative: the digest pass is the first comparison as well; the copy need not have compared anything.

Rows that foreign keys of the target change (`transfer.ties`) have no key in any log, and rows that were changed under
another primary key than the task was planned with have one that nobody can look them up by. Tables of such rows are
compared by a digest pass of their own after changes that may have set it off, beside the replication, and
whole at the cutover where there was one since. So are tables that were emptied.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines import pool
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import DELETE, DROP, TRUNCATE, UPDATE
from truecopy.transfer.ledger import Ledger
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof.checksum import compare_whole
from truecopy.transfer.proof.digest_pass import Passed, digest_pass
from truecopy.transfer.proof.keys import KeyForm, key_form, packed_keys
from truecopy.transfer.proof.mapped import is_looked_up, source_key
from truecopy.transfer.proof.reverify import Reverification
from truecopy.transfer.proof.shrinking import ShrinkRules, Shrunk
from truecopy.transfer.proof.store import REACHED, ReverifyStore
from truecopy.transfer.proof.verifier import SHOWN, Mismatch, Outcome, Scene
from truecopy.transfer.ties import tied_plans

_REST = 9.0
"""For how many times as long as a pass over tables that foreign keys change took there is none after it."""


class InlineVerifier:
    """See `verifier.Verifier`.

    Args:
        scene: What it works on.
        store: The task's keys; the target verifier may share it.
        rules: When the store is small enough for a cutover.

    Attributes:
        shrunk: What the last `shrink` came to.
    """

    name = "inline"

    def __init__(
        self, scene: Scene, store: ReverifyStore, rules: ShrinkRules | None = None
    ) -> None:
        self._scene = scene
        self._store = store
        self._rules = rules or ShrinkRules()
        self._reverification = Reverification(scene, store)
        self._definitions = Definitions()
        self._forms: dict[str, KeyForm | None] = {}
        self._pass_due = False
        self._emptied, self._being_emptied = set[str](), set[str]()
        self._passed: Passed | None = None
        self._complete: dict[str, int] = {}
        self._acted = self._marked = False
        self._rests_until = 0.0
        self._passing = threading.Lock()
        self.shrunk: Shrunk | None = None

    @property
    def waiting(self) -> int:
        return len(self._store)

    def start(self, *, resumed: bool) -> None:
        self._pass_due = resumed

    def observe(self, changes: pa.Table, reached: Mapping[str, str]) -> None:
        emptied = pc.is_in(changes.column("kind"), pa.array((TRUNCATE, DROP)))
        if pc.any(emptied).as_py():
            self._being_emptied.update(changes.filter(emptied).column("table").to_pylist())
            self._pass_due = True  # which rows went, no log says
            changes = changes.filter(pc.invert(emptied))
        if self._may_act(changes):
            self._acted = True
            self._reverification.acts += 1
        keys: dict[str, pa.Array] = {}
        for schema_id in pc.unique(changes.column("schema_id")).to_pylist():
            some = changes.filter(pc.equal(changes.column("schema_id"), schema_id))
            table = some.column("table")[0].as_py()
            form = self._form(table, schema_id)
            if form is None:
                self._hear_uncounted(table)
            else:
                packed = packed_keys(some.column("key"), form)
                known = keys.get(table)
                keys[table] = packed if known is None else pa.concat_arrays([known, packed])
        notes = {f"{REACHED}{shard}": position for shard, position in reached.items()}
        self._store.add(keys, notes, held=True)

    def applied(self) -> None:
        self._store.release()
        if self._being_emptied:
            # A pass may have begun meanwhile, and have found the rows on both sides still.
            self._emptied |= self._being_emptied
            self._being_emptied, self._pass_due = set(), True
        self._marked, self._acted = self._marked or self._acted, False

    def work(self) -> Outcome:
        began = time.monotonic()
        self._scene.wait_for_turn()
        self._pass_if_due()
        looked = self._reverification.work()
        return self._outcome(began, looked.rows, looked.mismatches)

    def shrink(self) -> Outcome:
        began = time.monotonic()
        self._pass_due = True
        self._pass_if_due()
        self.shrunk, found = self._reverification.shrink(self._rules)
        return self._outcome(began, self._store.verified, found)

    def finish(self) -> Outcome:
        began = time.monotonic()
        self._take_uncounted()
        looked = self._reverification.finish()
        plans = self._scene.plans
        others = {name: plan for name, plan in plans.items() if not is_looked_up(plan)}
        others |= {name: plans[name] for name in self._emptied & plans.keys()}
        if self._marked or self._acted:
            others |= self._following()
        whole = compare_whole(self.name, self._scene, list(others.values()))
        rows = self._store.verified + len(looked.mismatches) + whole.rows + self._first_compared()
        outcome = self._outcome(began, rows, (*looked.mismatches, *whole.mismatches))
        return replace(outcome, found=len(looked.mismatches) + whole.found)

    def close(self) -> None:
        self._store.close()

    # How rows were compared the first time

    def _first_compared(self) -> int:
        """Rows whose chunks were compared as they were written."""
        return sum(self._copied().values())

    def _tables(self) -> int:
        """Tables of which every row was compared once."""
        if self._passed is not None:
            return len(self._scene.plans)
        return len(self._copied())

    def _copied(self) -> dict[str, int]:
        """The rows of each table whose copy is complete."""
        for name in self._scene.plans.keys() - self._complete.keys():
            with pool.lease(self._scene.plans[name].target.endpoint) as session:
                chunks = Ledger(cast(Any, session), self._scene.task).chunks(name)
            if chunks and all(chunk.copied is not None for chunk in chunks):
                self._complete[name] = sum(chunk.copied or 0 for chunk in chunks)
        return self._complete

    # Inside

    def _pass_if_due(self) -> None:
        with self._passing:
            self._take_uncounted()
            # It is no longer due before it begins: what is heard of meanwhile, in another thread, is for the next one.
            if self._pass_due:
                self._pass_due = self._marked = False
                emptied, self._emptied = self._emptied, set()
                try:
                    self._passed = digest_pass(self._scene, self._store)
                except BaseException:
                    self._pass_due = True
                    self._emptied |= emptied
                    raise
            elif self._marked and time.monotonic() >= self._rests_until:
                self._marked = False
                began = time.monotonic()
                try:
                    digest_pass(replace(self._scene, plans=self._following()), self._store)
                except BaseException:
                    self._marked = True
                    raise
                self._rests_until = time.monotonic() + _REST * (time.monotonic() - began)

    def _may_act(self, changes: pa.Table) -> bool:
        """Whether foreign keys may have acted: by a row that went, changed its key, or columns that others refer to."""
        tied = tied_plans(self._scene.plans)
        takes = {DELETE: list(tied), UPDATE: [name for name, one in tied.items() if _refers(one)]}
        return any(
            names
            and pc.any(
                pc.and_(
                    pc.equal(changes.column("kind"), kind),
                    pc.is_in(changes.column("table"), value_set=pa.array(names, pa.string())),
                )
            ).as_py()
            for kind, names in takes.items()
        )

    def _following(self) -> dict[str, TablePlan]:
        """The tables whose rows change without a key that could be counted."""
        uncounted = self._reverification.uncounted
        return {
            name: plan
            for name, plan in self._scene.plans.items()
            if (plan.tie is not None and plan.tie.follows) or name in uncounted
        }

    def _hear_uncounted(self, table: str) -> None:
        """Rows of a table change, and the log does not tell them by the key that they are looked at by."""
        plan = self._scene.plans.get(table)
        if plan is not None and is_looked_up(plan):
            self._reverification.uncounted.add(table)
            self._reverification.acts += 1
            self._acted = True

    def _take_uncounted(self) -> None:
        """What the target verifier could not count."""
        if found := self._store.take_uncounted():
            self._reverification.uncounted |= found
            self._marked = True

    def _form(self, table: str, schema_id: str) -> KeyForm | None:
        """How keys of a definition are kept.

        None for tables that are not the task's, or compared whole, and where the definition has another key than the
        comparison.
        """
        if schema_id not in self._forms:
            plan = self._scene.plans.get(table)
            kept = plan is not None and schema_id and is_looked_up(plan)
            self._forms[schema_id] = (
                key_form(source_key(plan), plan.source.key_types, self._definitions.find(schema_id))
                if plan is not None and kept
                else None
            )
        return self._forms[schema_id]

    def _outcome(self, began: float, rows: int, found: tuple[Mismatch, ...]) -> Outcome:
        tables = self._tables()
        lacking = len(self._scene.plans) - tables
        return Outcome(
            self.name,
            tables=tables,
            rows=rows,
            found=len(found),
            mismatches=found[:SHOWN],
            waiting=max(len(self._store) - len(found), 0),
            seconds=time.monotonic() - began,
            reason=f"{lacking} tables have not been compared as a whole" if lacking else "",
        )


def _refers(plan: TablePlan) -> bool:
    """Whether others refer to more than the key, whose change is a delete and an insert."""
    key = {column.name for column in plan.read.key}
    return plan.tie is not None and not key.issuperset(plan.tie.referred)


class IterativeVerifier(InlineVerifier):
    """The same, with a digest pass for the first comparison of every row."""

    name = "iterative"

    def start(self, *, resumed: bool) -> None:  # noqa: ARG002 - every run compares all rows anew
        self._pass_due = True

    def _first_compared(self) -> int:
        return self._passed.rows if self._passed else 0

    def _tables(self) -> int:
        return len(self._scene.plans) if self._passed else 0
