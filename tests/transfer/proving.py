"""A transfer with verifiers beside it, wired as a run does it; and the damage that they should find."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import truecopy.transfer.run as running
from tests.servers import Database
from tests.transfer.beside import beside
from truecopy.engines import connect
from truecopy.mapping.plan import MappingRules, plan_tables
from truecopy.mapping.plan import plan_table as mapping_of
from truecopy.mapping.transformers import inferred_by
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.position import contains, parse_position
from truecopy.transfer.packing import Packed
from truecopy.transfer.plan import TablePlan, plan_table
from truecopy.transfer.proof.observed import observed, positions_after
from truecopy.transfer.proof.store import ReverifyStore, open_store
from truecopy.transfer.proof.verifier import Scene, Verifier
from truecopy.transfer.replicate import Replication
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.verify.matching import Comparison

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NO_RULES = MappingRules()


def plan_of(comparison: Comparison) -> TablePlan:
    """The plan of a table whose rows arrive as they are."""
    (table,) = comparison.source_tables
    ends = comparison.source.endpoint, comparison.target.endpoint
    return plan_table(mapping_of(table), ends[0], table, ends[1], comparison.target_table)


class Proving:
    """One task from a source to a target, whose batches verifiers hear of."""

    def __init__(
        self,
        spark: SparkSession,
        source: Database,
        target: Database,
        task: str = "proven",
        rules: MappingRules = NO_RULES,
    ) -> None:
        self.spark = spark
        self.source = source
        self.target = target
        self.settings = Settings(task, source.url, target.url, chunk_rows=500, rules=rules)
        self.rules = replace(rules, infer=inferred_by(spark))
        self.verifiers: list[Verifier] = []
        self._applied: dict[str, str] = {}

    def plans(self) -> dict[str, TablePlan]:
        with (
            connect(parse_endpoint(self.source.url)) as here,
            connect(parse_endpoint(self.target.url)) as there,
        ):
            one: Any = here
            other: Any = there
            tables = [one.describe(name) for name in one.tables()]
            found = {}
            for table, mapping in zip(tables, plan_tables(tables, self.rules), strict=True):
                onto = other.describe(other.find(mapping.target.table))
                ends = here.endpoint, there.endpoint
                found[str(table.name)] = plan_table(mapping, ends[0], table, ends[1], onto)
        return found

    def scene(self) -> Scene:
        return Scene(
            self.settings.task,
            self.settings.annotation,
            self.plans(),
            self.spark,
            self.has_applied,
        )

    def store(self) -> ReverifyStore:
        return open_store(self.settings.task, parse_endpoint(self.target.url).identity)

    def has_applied(self, _: Endpoint, position: str) -> bool:
        return any(
            contains(parse_position(at), parse_position(position)) for at in self._applied.values()
        )

    def run(self, **how: Any) -> None:
        """Copies, and replicates until it has caught up; verifiers hear of it."""
        proving = self

        class Observed(Replication):
            def apply(self, changes: Packed, number: int) -> None:
                reached = positions_after(changes)
                observed(super().apply, proving.verifiers)(changes, number)
                proving._applied |= reached

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(running, "Replication", Observed)
            # The run has no verifiers of its own, and would take back what those of a task had made that wants none.
            patch.setattr(running, "open_verifiers", lambda *_: [])
            Transfer(self.settings).run(**(how or {"until_caught_up": True}))

    @contextmanager
    def replicating(self) -> Iterator[None]:
        """Replicates again and again beside the block."""

        def replicate(stop: threading.Event) -> None:
            while not stop.is_set():
                self.run()

        with beside(replicate):
            yield
