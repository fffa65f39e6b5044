"""A transfer from its first row to its last change: plan, copy, replay, index, replicate.

The order matters. The point from which changes are replayed is taken before the first row is read, and it
is one up to which everything can be *seen*, not merely one that is in the log. Changes are replayed when
the copy is complete, so a row may go back in time and come forward again until the replay passes the end
of the copy; unique indexes and foreign keys are built only then.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from truecopy.engines import connect, pool
from truecopy.engines.protocols import (
    ChecksRights,
    Creates,
    Introspects,
    Loads,
    Reads,
    ReadsAtPosition,
    Session,
)
from truecopy.engines.sql import escape
from truecopy.mapping.plan import TableMapping, plan_tables
from truecopy.mapping.transformers import check_expressions, inferred_by
from truecopy.metastore.definitions import choose_metastore
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import contains, parse_position
from truecopy.model.relation import Chunk
from truecopy.model.table import Column, Table
from truecopy.model.token import EventToken, KeyspacePosition
from truecopy.model.types import Type
from truecopy.spark import choose_settings, explain_spark, is_local
from truecopy.spark import session as spark_session
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.offset import Offset
from truecopy.stream.removal import remove
from truecopy.transfer.apply import run_all
from truecopy.transfer.control import Control
from truecopy.transfer.cutover.state import require_no_cutover
from truecopy.transfer.indexes import make_indexes
from truecopy.transfer.ledger import Ledger, TaskLine
from truecopy.transfer.mapped import copy_mapped
from truecopy.transfer.narrowing import narrowed
from truecopy.transfer.pacing import Pace
from truecopy.transfer.packing import apply_each
from truecopy.transfer.plan import TablePlan, as_arriving, chosen_columns, is_mapped, plan_table
from truecopy.transfer.preflight.ends import has_row
from truecopy.transfer.preflight.guarantee import NO_TARGET, require_target
from truecopy.transfer.progress import Progress
from truecopy.transfer.proof.chosen import Watch, open_verifiers
from truecopy.transfer.proof.observed import AppliedByQuery
from truecopy.transfer.proof.shrinking import ShrinkRules
from truecopy.transfer.proof.verifier import Scene
from truecopy.transfer.replicate import Replication
from truecopy.transfer.settings import Settings, chunk_rows
from truecopy.transfer.snapshot import Copied, CopyTask, copy_chunks
from truecopy.transfer.steering import Steering
from truecopy.transfer.widening import widen
from truecopy.verify.chunks import chunks_between, plan_chunks
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SNAPSHOT, REPLAY, REPLICATE = "snapshot", "replay", "replicate"

_TargetTable = Callable[[Session, TableMapping, Table], Table]


@dataclass(frozen=True)
class TableState:
    """How far one table is."""

    rows_copied: int = 0
    changes_applied: int = 0
    version: dict[str, object] | None = None


@dataclass(frozen=True)
class RunReport:
    """What `truecopy run` ends with."""

    task: str
    state: str
    lag_seconds: float
    tables: Mapping[str, TableState]
    verify_share: float = 0.0
    seconds: float = 0.0


@dataclass
class Listener:
    """Told what happens; by default nobody is."""

    said: Callable[[str], None] = field(default=lambda _: None)
    progress: Callable[[Progress], None] = field(default=lambda _: None)


class Transfer:
    """One run of a task."""

    def __init__(self, settings: Settings, listener: Listener | None = None) -> None:
        self._settings = settings
        self._listener = listener or Listener()
        self._source = parse_endpoint(settings.source)
        self._target = parse_endpoint(settings.target)
        self._request = settings.request
        choose_settings(settings.spark)
        if settings.metastore is not None:
            choose_metastore(settings.metastore)
        self._seconds = self._verify_seconds = 0.0
        self._rules = settings.rules
        self._applied = AppliedByQuery({})
        self._is_stopping = False
        self._stop_query: Callable[[], None] | None = None

    def run(self, *, snapshot_only: bool = False, until_caught_up: bool = False) -> RunReport:
        """Goes on where the ledger says that the task stands, to the end that was asked for."""
        begun = time.monotonic()
        with connect(self._source) as source:
            # Not held open: a file must be free when workers write to it.
            with pool.lease(self._target) as target:
                plans = self.prepare(source, target)
                line = self._claim(target, plans)
                is_file = target.driver_local
            steering = Steering(
                self._settings,
                line.epoch,
                self._target,
                self._listener.progress,
                self._listener.said,
            )
            state, applied = SNAPSHOT, Counter[str]()
            replication: Replication | None = None
            with steering.running(beside=not is_file), ExitStack() as stack:
                spark = spark_session(self._settings.master)
                watch = stack.enter_context(self._watching(spark, plans, line))
                if line.phase == SNAPSHOT:
                    steering.enter(SNAPSHOT)
                    self._copy(spark, source, plans, line, steering)
                if not snapshot_only:
                    steering.expect({name: plan.comparison.rows for name, plan in plans.items()})
                    replication = self.replication(plans, line)
                    replication.connections = lambda: steering.gate.limits.connections
                    steering.enter(REPLAY)
                    self._replicate(spark, replication, steering, watch, once=True)
                    self._finish_tables(source, plans, line)
                    watch.expect_shapes()
                    replication.replaying = False
                    steering.enter(REPLICATE)
                    if until_caught_up:
                        watch.look()
                    else:
                        with watch.beside():
                            self._replicate(spark, replication, steering, watch, once=False)
                    state, applied = REPLICATE, replication.applied
        return RunReport(
            self._settings.task,
            state,
            0.0,  # it ends when everything that was committed is in
            {
                name: TableState(self._rows_of(name), applied[name], self._version(replication))
                for name in plans
            },
            self._verify_seconds / self._seconds if self._seconds else 0.0,
            time.monotonic() - begun,
        )

    def stop(self) -> None:
        """Ends a run that another thread is in, after the batch that is being applied."""
        self._is_stopping = True
        if self._stop_query is not None:
            self._stop_query()

    def _ledger(self, target: Session) -> Ledger:
        return Ledger(cast(Any, target), self._settings.task)

    # Planning

    def prepare(self, source: Session, target: Session) -> dict[str, TablePlan]:
        """The way of each table, by its name on the source; what cannot be is refused."""
        self._refuse_what_cannot_be(target)
        self._refuse_tables_that_came_later(source, target)
        return self._plan(source, target, self._target_table)

    def planned(self, source: Session, target: Session) -> dict[str, TablePlan]:
        """The same for a task that has made its tables; nothing is written."""
        return self._plan(source, target, self._found_table)

    def _refuse_what_cannot_be(self, target: Session) -> None:
        if not isinstance(target, Loads) or not isinstance(target, Introspects):
            raise UsageError(f"{self._target.scheme}:// {NO_TARGET}")
        require_target(self._settings, target)
        master = self._settings.master
        if target.driver_local and master and not is_local(master):
            raise UsageError(
                f"{self._target} is a file of this machine, which the executors of a cluster cannot open"
            )

    def _refuse_tables_that_came_later(self, source: Session, target: Session) -> None:
        """Once the copy is done, the rows of another table would never be copied."""
        ledger = self._ledger(target)
        ledger.create()
        Control(cast(Any, target), self._settings.task).create()
        line = ledger.find()
        if line is None or line.phase == SNAPSHOT or not isinstance(source, Introspects):
            return
        copied = ledger.tables()
        for name in source.tables():
            if self._settings.wants(name) and str(name) not in copied:
                raise UsageError(
                    f"{name} was not there when {self._settings.task} copied its tables: exclude it, or carry it"
                    " by a task of its own"
                )

    def _plan(
        self, source: Session, target: Session, onto_for: _TargetTable
    ) -> dict[str, TablePlan]:
        if not isinstance(source, Introspects):
            raise UsageError(f"{self._source.scheme}:// cannot be the source of a transfer")
        names = [name for name in source.tables() if self._settings.wants(name)]
        if not names:
            raise UsageError(f"no table of {self._source} is chosen by the task")
        tables = {name: source.describe(name) for name in names}
        home = next((name.schema for name in names if source.find(name.table) == name), None)
        self._rules = replace(self._settings.rules, home=home, infer=self._infer)
        plans = {}
        for mapping in plan_tables(tables.values(), self._rules):
            if is_mapped(mapping):
                check_expressions(spark_session(self._settings.master), mapping)
            table = tables[mapping.source]
            onto = onto_for(target, mapping, table)
            plan = plan_table(mapping, self._source, table, self._target, onto)
            if self._settings.leg:
                plan = narrowed(plan, self._settings.leg, source, target)
            for side, relation in ((source, plan.read), (target, plan.target)):
                if isinstance(side, ChecksRights):
                    side.require_select(relation)
            if plan.is_keyless:
                self._require_position(source, plan)
            plans[str(mapping.source)] = plan
        return plans

    def _require_position(self, source: Session, plan: TablePlan) -> None:
        if not isinstance(source, ReadsAtPosition):
            raise UsageError(
                f"{plan.source_name} has no key, and {self._source.scheme}:// does not say of which moment its rows"
                " are: give it a key, or leave it out"
            )
        source.require_position(plan.read)

    def _infer(self, columns: Sequence[Column], sql: str) -> Type:
        """The type of an expression, which Spark is started for only where a task adds one."""
        return inferred_by(spark_session(self._settings.master))(columns, sql)

    def _found_table(self, target: Session, mapping: TableMapping, _: Table) -> Table:
        introspects = cast(Introspects, target)
        found = introspects.find(str(mapping.target))
        if found is None:
            raise UsageError(f"{self._target} has no table {mapping.target}: was it dropped there?")
        return introspects.describe(found)

    def _target_table(self, target: Session, mapping: TableMapping, table: Table) -> Table:
        """The table that takes the rows; made where it is missing."""
        wanted = str(mapping.target)
        introspects = cast(Introspects, target)
        found = introspects.find(wanted)
        if found is not None:
            onto = introspects.describe(found)
            if added := self._widened(target, mapping, table, onto):
                run_all(target, added, self._settings.annotation)
                onto = introspects.describe(found)
            return onto
        if not isinstance(target, Creates):
            raise UsageError(
                f"{self._target} has no table {wanted}, and cannot make one: make it first"
            )
        named = replace(
            as_arriving(mapping, table) if is_mapped(mapping) else chosen_columns(mapping, table),
            name=mapping.target,
        )
        run_all(target, target.create_table(named), self._settings.annotation)
        for line in target.creation_warnings(named):
            self._listener.said(line)
        made = introspects.find(wanted)
        if made is None:
            raise CannotFinish(f"{self._target} made {wanted} and does not show it")
        return introspects.describe(made)

    def _widened(
        self, target: Session, mapping: TableMapping, table: Table, onto: Table
    ) -> list[str]:
        """What a table of the target needs that the source's got while the task was not running."""
        ledger = self._ledger(target)
        if str(mapping.source) not in ledger.tables():
            return []
        return widen(target, mapping, table, onto, self._settings.ddl)

    def _claim(self, target: Session, plans: Mapping[str, TablePlan]) -> TaskLine:
        ledger = self._ledger(target)
        origin = self.beginning(plans) if ledger.find() is None else {}
        require_no_cutover(self._target, self._settings.task)
        claimed = ledger.claim(origin)
        require_no_cutover(self._target, self._settings.task)  # nor has one been quicker
        return claimed

    def beginning(self, plans: Mapping[str, TablePlan]) -> dict[str, Any]:
        """Where changes begin for what can be read now; refused where a table's would be lost."""
        with KeyspaceStream(self._request) as stream:
            if lines := stream.missing():
                raise CannotFinish("; ".join(lines))
            warnings = stream.warnings()
            left_out = stream.left_out().items()
            lost = [f"{name} is not streamed: {why}" for name, why in left_out if name in plans]
            origin = stream.visible().plain() if not lost else {}
        if lost:
            remove(self._request)
            raise UsageError(lost[0])
        for line in warnings:
            self._listener.said(line)
        return origin

    # Copying

    def _copy(
        self,
        spark: SparkSession,
        source: Session,
        plans: Mapping[str, TablePlan],
        line: TaskLine,
        steering: Steering,
    ) -> None:
        self._require_origin(source, line)
        with pool.lease(self._target) as target:
            tasks = self._planned(source, target, plans, line)
            lanes = 1 if target.driver_local else spark.sparkContext.defaultParallelism
        steering.expect({name: plan.comparison.rows for name, plan in plans.items()})
        pace = partial(steering.pace, lanes=lanes, cut=partial(self._cut_smaller, source))
        with _one_line():
            for copied in self._copied(spark, tasks, pace):
                steering.pulse.copied(copied)
                self._seconds += copied.seconds
                self._verify_seconds += copied.verify_seconds
        with pool.lease(self._target) as target:
            self._ledger(target).enter(REPLAY, line.epoch)

    def _require_origin(self, source: Session, line: TaskLine) -> None:
        """Another server of a shard may not have got to where the copy began; it would lack what is not replayed."""
        if self._settings.leg is None or source.driver_local:
            return
        ((shard, mark),) = Offset.parse(line.origin).marks.items()
        position = cast(Introspects, source).position()
        if position and not contains(parse_position(position), parse_position(mark.position)):
            raise CannotFinish(
                f"{self._source} is at {position}, and the copy of shard {shard} began at {mark.position}: wait until"
                " it has caught up, or read from another server"
            )

    def _planned(
        self, source: Session, target: Session, plans: Mapping[str, TablePlan], line: TaskLine
    ) -> list[CopyTask]:
        """The chunks that are not in yet, those of the largest tables first."""
        ledger = self._ledger(target)
        tasks = []
        for name, plan in plans.items():
            chunks = ledger.chunks(name)
            if not chunks:
                self._refuse_rows(target, plan)
                ledger.plan(name, self._cut(cast(Reads, source), plan))
                chunks = ledger.chunks(name)
            tasks += [
                CopyTask(
                    self._settings.task,
                    line.epoch,
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
        plain = [task for task in tasks if not task.plan.is_mapped]
        yield from copy_chunks(spark, pace(plain))
        for _, of_table in groupby(tasks, key=lambda task: task.plan.source_name):
            mapped = [task for task in of_table if task.plan.is_mapped]
            yield from copy_mapped(spark, pace(mapped))

    def _cut(self, source: Reads, plan: TablePlan) -> list[Chunk]:
        """Key ranges in the source's own order: the target need not share it."""
        read = replace(plan.comparison, source=plan.read, ordered=_is_ordered(plan))
        rows = chunk_rows(self._settings, plan.comparison.row_bytes)
        return plan_chunks(source, read, Options(chunk_rows=rows))

    def _cut_smaller(self, source: Session, task: CopyTask, rows: int) -> list[CopyTask]:
        """A chunk that was not begun as several of about so many rows; as it is, where it cannot be cut."""
        plan = task.plan
        if not _is_ordered(plan):
            return [task]
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

    def _rows_of(self, name: str) -> int:
        with pool.lease(self._target) as session:
            chunks = self._ledger(session).chunks(name)
        return sum(chunk.copied or 0 for chunk in chunks)

    @contextmanager
    def _watching(
        self, spark: SparkSession, plans: Mapping[str, TablePlan], line: TaskLine
    ) -> Iterator[Watch]:
        """The verifiers that the task asks for, from before the first write to the end of the run."""
        (shard,) = Offset.parse(line.origin).marks
        self._applied = AppliedByQuery({self._source: shard})
        settings = self._settings
        scene = Scene(settings.task, settings.annotation, plans, spark, self._applied)
        watch = Watch(open_verifiers(scene, settings.verify, self._target, ShrinkRules()))
        try:
            watch.start(resumed=line.epoch > 1)
            yield watch
        finally:
            watch.close()

    # Replicating

    def replication(self, plans: Mapping[str, TablePlan], line: TaskLine) -> Replication:
        """What applies changes, from where the ledger stands."""
        origin = Offset.parse(line.origin)
        origins = {s: (mark.position, mark.committed_at) for s, mark in origin.marks.items()}
        settings = replace(self._settings, rules=self._rules)
        return Replication(settings, self._target, plans, origins, line.epoch)

    def _replicate(
        self,
        spark: SparkSession,
        replication: Replication,
        steering: Steering,
        watch: Watch,
        *,
        once: bool,
    ) -> None:
        """Reads from where the ledger stands; Spark's own checkpoint is thrown away afterwards."""
        from pyspark.errors import StreamingQueryException

        tokens = tuple(
            EventToken(committed_at, shard, parse_position(position))
            for shard, (position, committed_at) in replication.start().items()
        )
        start = tokens[0] if len(tokens) == 1 else KeyspacePosition(tokens)
        if once and (end := self._end_at(start)):
            self._applied.reached = end
            return
        with tempfile.TemporaryDirectory(prefix="truecopy-") as checkpoint, _one_line():
            apply = steering.held(watch.observed(replication.apply), replication.applied)
            writer = apply_each(spark, self._request, str(start), replication.columns, apply)
            writer = writer.option("checkpointLocation", checkpoint)
            query = (writer.trigger(availableNow=True) if once else writer).start()
            self._applied.query = query
            self._stop_query = partial(steering.stop, query)
            if self._is_stopping:
                self._stop_query()
            try:
                steering.follow(query)
            except StreamingQueryException:
                if replication.failure is not None:
                    raise replication.failure from None
                raise
            replication.settle()
            if once and self._is_stopping:
                raise CannotFinish(f"{self._settings.task} was stopped before it had caught up")

    def _end_at(self, start: EventToken | KeyspacePosition) -> Offset | None:
        """The end of the stream, if it is where we are: a query takes seconds to find nothing."""
        with KeyspaceStream(self._request) as stream:
            offset = stream.start(start)
            return offset if stream.has_reached(offset, stream.current()) else None

    def _finish_tables(
        self, source: Session, plans: Mapping[str, TablePlan], line: TaskLine
    ) -> None:
        """Indexes and foreign keys, once nothing goes back in time any more."""
        with pool.lease(self._target) as target:
            ledger = self._ledger(target)
            found = ledger.find()
            if found is None or found.phase != REPLAY:
                return
            if isinstance(target, Creates) and self._makes_indexes:
                make_indexes(cast(Introspects, source), target, plans, self._settings.annotation)
            ledger.enter(REPLICATE, line.epoch)

    @property
    def _makes_indexes(self) -> bool:
        """Of several legs to one target the last: until then the rows of another may go back in time."""
        return self._settings.leg is None or self._settings.leg.last

    def _version(self, replication: Replication | None) -> dict[str, object] | None:
        if replication is None:
            return None
        position, committed_at = next(iter(replication.positions().values()))
        return {"position": position, "committed_at": committed_at}


def _is_ordered(plan: TablePlan) -> bool:
    """Whether it can be cut. What arrives without a key cannot: one snapshot holds it all."""
    return (
        not plan.is_keyless
        and plan.read.key_width > 0
        and all(column.order for column in plan.read.key)
    )


@contextmanager
def _one_line() -> Iterator[None]:
    """What Spark says in eighty lines, in one."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise explain_spark(error) from error
