"""The checksum verifier: one digest of each whole table on both sides, inside the databases.

It says nothing before the cutover, and then takes as long as reading every row does: for small tables, for
tables without a key, and where a second opinion is wanted that shares nothing with the replication.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import cast

import pyarrow as pa

from truecopy.engines import pool
from truecopy.engines.protocols import Digests
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.model.fingerprint import Digest
from truecopy.model.relation import WHOLE, Relation
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof.mapped import compare_mapped
from truecopy.transfer.proof.verifier import DIGEST, SHOWN, Mismatch, Outcome, Scene
from truecopy.verify.compare import by_meaning


class ChecksumVerifier:
    """See `verifier.Verifier`.

    Attributes:
        digests: Of source and target, by source table, once they were taken; not of tables whose rows are mapped.
    """

    name = "checksum"
    waiting = 0  # it has no rows of its own to come back to

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.digests: Mapping[str, tuple[Digest, Digest]] = {}

    def start(self, *, resumed: bool) -> None:
        """Nothing to prepare."""

    def observe(self, changes: pa.Table, reached: Mapping[str, str]) -> None:
        """Every row is read at the end, whether it changed or not."""

    def applied(self) -> None:
        """Likewise."""

    def work(self) -> Outcome:
        return self._not_yet()

    def shrink(self) -> Outcome:
        return self._not_yet()

    def finish(self) -> Outcome:
        outcome, self.digests = _compare(self.name, self._scene, list(self._scene.plans.values()))
        return outcome

    def close(self) -> None:
        """Nothing is held open."""

    def _not_yet(self) -> Outcome:
        return Outcome(self.name, reason="it compares whole tables once writers are locked out")


def compare_whole(name: str, scene: Scene, plans: Sequence[TablePlan]) -> Outcome:
    """Compares whole tables: by a digest in each database, or through Spark where rows are mapped."""
    return _compare(name, scene, plans)[0]


def _compare(
    name: str, scene: Scene, plans: Sequence[TablePlan]
) -> tuple[Outcome, dict[str, tuple[Digest, Digest]]]:
    began = time.monotonic()
    by_digest = [plan for plan in plans if not plan.is_mapped]
    pairs = zip(by_digest, all_digests(scene, by_digest), strict=True)
    digests = {plan.source_name: pair for plan, pair in pairs}
    found = [
        digest_mismatch(plan, source, target)
        for plan, (source, target) in zip(by_digest, digests.values(), strict=True)
        if source != target
    ]
    mapped = compare_mapped(scene, [plan for plan in plans if plan.is_mapped], SHOWN)
    outcome = Outcome(
        name,
        tables=len(plans),
        rows=sum(source.count for source, _ in digests.values()) + mapped.rows,
        found=len(found) + mapped.found,
        mismatches=(*found, *mapped.mismatches)[:SHOWN],
        seconds=time.monotonic() - began,
        reason="" if plans else "the task carries no table",
    )
    return outcome, digests


def all_digests(scene: Scene, plans: Sequence[TablePlan]) -> list[tuple[Digest, Digest]]:
    """The digests of whole tables, source and target; one Spark task for each where there are several."""
    if scene.spark is None or len(plans) < 2:
        pairs = [_digests(plans, number) for number in range(len(plans))]
    else:
        numbers = scene.spark.sparkContext.parallelize(range(len(plans)), len(plans))
        pairs = numbers.map(partial(_digests, list(plans))).collect()
    found = []
    for pair in pairs:
        if isinstance(pair, TruecopyError):
            raise pair
        found.append(pair)
    return found


def _digests(plans: Sequence[TablePlan], number: int) -> tuple[Digest, Digest] | TruecopyError:
    plan = plans[number]
    try:
        with ThreadPoolExecutor(1, "target") as beside:
            later = beside.submit(_digest, plan.target)
            source, target = _digest(plan.source), later.result()
            if source != target and by_meaning(plan.source) != plan.source:
                # Not to the letter, perhaps by meaning.
                later = beside.submit(_digest, by_meaning(plan.target))
                source, target = _digest(by_meaning(plan.source)), later.result()
            return source, target
    except TruecopyError as error:
        return error


def _digest(relation: Relation) -> Digest:
    with pool.lease(relation.endpoint) as session:
        if not isinstance(session, Digests):
            raise UsageError(f"{relation.endpoint} cannot digest a table: choose another verifier")
        return cast(Digests, session).digest(relation, WHOLE)


def digest_mismatch(plan: TablePlan, source: Digest, target: Digest) -> Mismatch:
    """What two digests that differ say, in words."""
    if source.count != target.count:
        detail = f"has {source.count} rows on the source and {target.count} on the target"
    else:
        detail = f"has {source.count} rows on either side, and not the same ones"
    return Mismatch(plan.source_name, DIGEST, detail=detail)
