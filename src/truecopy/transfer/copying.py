"""The copy of a task: which chunks there are to copy, and in which way the rows of each table travel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from truecopy.engines import pool
from truecopy.engines.protocols import Introspects, Reads, Session
from truecopy.engines.sql import escape
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import contains, parse_position
from truecopy.model.relation import Chunk
from truecopy.stream.offset import Offset
from truecopy.transfer.ledger import Ledger, TaskLine
from truecopy.transfer.mapped import copy_mapped
from truecopy.transfer.pacing import Pace
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.preflight.ends import has_row
from truecopy.transfer.settings import Settings, chunk_rows
from truecopy.transfer.snapshot import Copied, CopyTask, copy_chunks
from truecopy.transfer.steering import Steering
from truecopy.transfer.tied import copy_tied, start_over
from truecopy.transfer.ties import tied_plans
from truecopy.verify.chunks import chunks_between, plan_chunks
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Copying:
    """Copies what is not in yet of the tables of a task."""

    def __init__(self, settings: Settings, plans: Mapping[str, TablePlan], line: TaskLine) -> None:
        self._settings = settings
        self._plans = plans
        self._line = line
        self._source = parse_endpoint(settings.source)
        self._target = parse_endpoint(settings.target)

    def copy(
        self,
        spark: SparkSession,
        steering: Steering,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Copies chunk after chunk; each is told of when it is in. What `check` raises then ends the copy."""
        with pool.lease(self._source) as source, pool.lease(self._target) as target:
            self._require_origin(source)
            tasks = self._planned(source, target)
            lanes = 1 if target.driver_local else spark.sparkContext.defaultParallelism
        steering.expect({name: plan.comparison.rows for name, plan in self._plans.items()})
        pace = partial(steering.pace, lanes=lanes, cut=self._cut_smaller)
        for copied in self._copied(spark, tasks, pace):
            steering.pulse.copied(copied)
            check()

    def _require_origin(self, source: Session) -> None:
        """Another server of a shard may not have got to where the copy began; it would lack what is not replayed."""
        if self._settings.leg is None or source.driver_local:
            return
        ((shard, mark),) = Offset.parse(self._line.origin).marks.items()
        position = cast(Introspects, source).position()
        if position and not contains(parse_position(position), parse_position(mark.position)):
            raise CannotFinish(
                f"{self._source} is at {position}, and the copy of shard {shard} began at {mark.position}: wait until"
                " it has caught up, or read from another server"
            )

    def _planned(self, source: Session, target: Session) -> list[CopyTask]:
        """The chunks that are not in yet, those of the largest tables first."""
        ledger = self._ledger(target)
        for name, plan in self._plans.items():
            if not ledger.chunks(name):
                self._refuse_rows(target, plan)
                ledger.plan(name, self._cut(cast(Reads, source), plan), self._line.epoch)
        tied = tied_plans(self._plans)
        if any(chunk.copied is None for name in tied for chunk in ledger.chunks(name)):
            start_over(target, ledger, tied, self._line.epoch, self._settings.annotation)
        tasks = []
        for name, plan in self._plans.items():
            chunks = ledger.chunks(name)
            tasks += [
                CopyTask(
                    self._settings.task,
                    self._line.epoch,
                    self._settings.annotation,
                    plan,
                    chunk.number,
                    chunk.chunk,
                    plan.comparison.rows // len(chunks),
                )
                for chunk in chunks
                if chunk.copied is None
            ]
        return sorted(tasks, key=lambda task: -task.plan.comparison.rows)

    def _copied(
        self,
        spark: SparkSession,
        tasks: Sequence[CopyTask],
        pace: Callable[[Sequence[CopyTask]], Pace],
    ) -> Iterator[Copied]:
        tied = [task for task in tasks if task.plan.tie is not None]
        if tied:
            yield from copy_tied(self._source, tied_plans(self._plans), pace(tied))
        plain = [task for task in tasks if not task.plan.is_mapped and task.plan.tie is None]
        yield from copy_chunks(spark, pace(plain))
        for _, of_table in groupby(tasks, key=lambda task: task.plan.source_name):
            mapped = [task for task in of_table if task.plan.is_mapped]
            yield from copy_mapped(spark, pace(mapped))

    def _cut(self, source: Reads, plan: TablePlan) -> list[Chunk]:
        """Key ranges in the source's own order: the target need not share it."""
        read = replace(plan.comparison, source=plan.read, ordered=_is_ordered(plan))
        rows = chunk_rows(self._settings, plan.comparison.row_bytes)
        return plan_chunks(source, read, Options(chunk_rows=rows))

    def _cut_smaller(self, task: CopyTask, rows: int) -> list[CopyTask]:
        """A chunk that was not begun as several of about so many rows; as it is, where it cannot be cut."""
        plan = task.plan
        if not _is_ordered(plan):
            return [task]
        with pool.lease(self._source) as source:
            between = cast(Reads, source).boundaries(plan.read, task.chunk, rows)
        if not between:
            return [task]
        chunks = chunks_between(between, task.chunk)
        with pool.lease(self._target) as target:
            ledger = self._ledger(target)
            planned = ledger.split(plan.source_name, task.number, chunks, task.epoch)
        return [
            replace(task, number=one.number, chunk=one.chunk, rows=min(rows, task.rows))
            for one in planned
        ]

    def _refuse_rows(self, target: Session, plan: TablePlan) -> None:
        where = escape(cast(Any, target).dialect, plan.target.where or "")
        if has_row(target, plan.target.tables[0], where):
            raise UsageError(
                f"{plan.target.tables[0]} on {self._target} is not empty: empty it, or leave {plan.source_name} out"
            )

    def _ledger(self, target: Session) -> Ledger:
        return Ledger(cast(Any, target), self._settings.task)


def _is_ordered(plan: TablePlan) -> bool:
    """Whether it can be cut. What arrives without a key cannot: one snapshot holds it all."""
    return (
        not plan.is_keyless
        and plan.read.key_width > 0
        and all(column.order for column in plan.read.key)
    )
