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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from truecopy import telemetry
from truecopy.engines import connect, pool
from truecopy.engines.protocols import Creates, Introspects, Session
from truecopy.mapping.routes import parse_name
from truecopy.metastore.definitions import choose_metastore
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.model.position import parse_position
from truecopy.model.token import EventToken, KeyspacePosition
from truecopy.spark import choose_settings, explained
from truecopy.spark import session as spark_session
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.offset import Offset
from truecopy.stream.removal import remove
from truecopy.transfer.carried import Departed, Departures
from truecopy.transfer.continuous.together import validating
from truecopy.transfer.copying import Copying
from truecopy.transfer.cutover.returning import forget_given_up
from truecopy.transfer.cutover.state import require_no_cutover
from truecopy.transfer.indexes import make_indexes, tie_tables
from truecopy.transfer.joining import begin_notes, require_joined
from truecopy.transfer.ledger import (
    REPLAY,
    REPLICATE,
    SNAPSHOT,
    Ledger,
    TaskLine,
    taken_over,
)
from truecopy.transfer.packing import apply_each
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.planning import Planning
from truecopy.transfer.progress import Progress, version_of
from truecopy.transfer.proof.chosen import Watch, open_verifiers
from truecopy.transfer.proof.observed import AppliedByQuery
from truecopy.transfer.proof.shapes import altering
from truecopy.transfer.proof.shrinking import ShrinkRules
from truecopy.transfer.proof.verifier import Scene
from truecopy.transfer.redefinition import DefinitionChanged
from truecopy.transfer.replicate import Replication, replicated
from truecopy.transfer.settings import Settings
from truecopy.transfer.steering import Steering
from truecopy.transfer.ties import tied_plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class TableState:
    """How far one table is.

    Attributes:
        changes_applied: By this run.
        version: As `Version.plain` gives it, of several legs by leg; None before a change of it was applied.
    """

    rows_copied: int = 0
    changes_applied: int = 0
    version: dict[str, object] | None = None


@dataclass(frozen=True)
class RunReport:
    """What `truecopy run` ends with.

    Attributes:
        lag_seconds: How far the target was behind the source at the end; None where nothing was replicated.
        rows_waiting: Rows that were written and not verified again; the next run goes on with them.
        refused: Indexes and foreign keys that the target would not have, in this run.
    """

    task: str
    state: str
    lag_seconds: float | None
    tables: Mapping[str, TableState]
    seconds: float = 0.0
    rows_waiting: int = 0
    refused: int = 0


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
        self._planning = Planning(settings, self._listener.said)
        choose_settings(settings.spark)
        if settings.metastore is not None:
            choose_metastore(settings.metastore)
        self._applied = AppliedByQuery({})
        self._end_asked_at = 0.0
        self._is_stopping = False
        self._stop_work: Callable[[], None] | None = None
        self._refused = 0

    def run(self, *, snapshot_only: bool = False, until_caught_up: bool = False) -> RunReport:
        """Goes on where the ledger says that the task stands, to the end that was asked for."""
        with telemetry.span("run", task=self._settings.task), ExitStack() as stack:
            stack.callback(pool.close_idle)
            return self._run(snapshot_only, until_caught_up)

    def _run(self, snapshot_only: bool, until_caught_up: bool) -> RunReport:
        begun = time.monotonic()
        # Neither is held open: a file must be free when workers write to it, and a copy may take longer than a server
        # keeps a connection that says nothing.
        with connect(self._source) as source, pool.lease(self._target) as target:
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
        self._stop_work = steering.gate.close
        state, applied, waiting = SNAPSHOT, Counter[str](), 0
        replication: Replication | None = None
        with steering.running(beside=not is_file), ExitStack() as stack:
            spark = spark_session(self._settings.master)
            watch = stack.enter_context(
                self._watching(spark, self._still_there(plans), line, steering)
            )
            if not snapshot_only and not until_caught_up:
                is_new = self._planning.is_beginning
                stack.enter_context(
                    validating([self._settings], self._listener.said, is_new=is_new)
                )
            if self._settings.leg is not None:
                watch.expect_shapes()  # other legs, with stores of their own, alter the same tables
            with watch.reading_along():
                if line.phase == SNAPSHOT:
                    steering.enter(SNAPSHOT)
                    self._copy(spark, plans, line, steering, watch)
                if not snapshot_only:
                    replication = self._replay(spark, plans, line, steering, watch)
            if replication is not None:
                replication.replaying = False
                steering.enter(REPLICATE)
                if until_caught_up:
                    watch.look()
                    steering.pulse.lags(self._lag())
                else:
                    with (
                        watch.beside(steering.gate),
                        telemetry.span(REPLICATE, task=self._settings.task),
                    ):
                        self._keep_up(spark, replication, steering, watch)
                state, applied = REPLICATE, replication.applied
            waiting = watch.waiting
        return RunReport(
            self._settings.task,
            state,
            steering.pulse.progress().lag_seconds,
            self._states(plans, applied),
            time.monotonic() - begun,
            waiting,
            self._refused,
        )

    def _replay(
        self,
        spark: SparkSession,
        plans: Mapping[str, TablePlan],
        line: TaskLine,
        steering: Steering,
        watch: Watch,
    ) -> Replication:
        """Passes the end of the copy, and finishes the tables."""
        there = self._still_there(plans)
        self._tie_tables(there)
        steering.expect({name: plan.comparison.rows for name, plan in plans.items()})
        replication = self.replication(plans, line)
        replication.replaying = line.phase != REPLICATE
        replication.connections = lambda: steering.gate.limits.connections
        steering.enter(REPLAY)
        with telemetry.span(REPLAY, task=self._settings.task):
            self._catch_up(spark, replication, steering, watch)
            self._finish_tables(there, line)
        return replication

    def _still_there(self, plans: Mapping[str, TablePlan]) -> dict[str, TablePlan]:
        """Those of tables that the source has now; of others only the log tells."""
        return {name: plan for name, plan in plans.items() if name not in self._planning.departed}

    def stop(self) -> None:
        """Ends a run that another thread is in, after the chunks or the batch that are under way."""
        self._is_stopping = True
        if self._stop_work is not None:
            self._stop_work()

    def _ledger(self, target: Session) -> Ledger:
        return Ledger(cast(Any, target), self._settings.task)

    # Before the first row

    def prepare(self, source: Session, target: Session) -> dict[str, TablePlan]:
        """The way of each table, by its name on the source; missing tables are made, what cannot be is refused."""
        return self._planning.prepare(source, target)

    def planned(self, source: Session, target: Session) -> dict[str, TablePlan]:
        """The same for a task that has made its tables; nothing is written."""
        return self._planning.planned(source, target)

    def claim(self, ledger: Ledger, origin: Mapping[str, Any]) -> TaskLine:
        """Takes the task over, once `prepare` has planned it, with what it says of its tables from now on."""
        known = ledger.sources().keys() | ledger.tables()
        left = {table for table in known if not self._settings.wants(parse_name(table))}
        return ledger.claim(origin, self._planning.sources, left, self._planning.terms)

    def _claim(self, target: Session, plans: Mapping[str, TablePlan]) -> TaskLine:
        ledger = self._ledger(target)
        is_new = ledger.find() is None
        if is_new != self._planning.is_beginning:  # begun, or deleted, since it was planned
            raise taken_over(self._settings.task)
        origin = self.beginning(plans) if is_new else {}
        require_no_cutover(self._target, self._settings.task)
        require_joined(target, self._settings.task)
        claimed = self.claim(ledger, origin)
        begin_notes(target, self._settings.task, claimed)
        require_no_cutover(self._target, self._settings.task)  # nor has one been quicker
        forget_given_up(self._settings, plans, claimed.epoch)
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

    def copying(self, plans: Mapping[str, TablePlan], line: TaskLine) -> Copying:
        """What copies the chunks that the ledger does not have."""
        return Copying(self._settings, plans, line)

    def _copy(
        self,
        spark: SparkSession,
        plans: Mapping[str, TablePlan],
        line: TaskLine,
        steering: Steering,
        watch: Watch,
    ) -> None:
        with telemetry.span(SNAPSHOT, task=self._settings.task), explained():
            self.copying(plans, line).copy(spark, steering, watch.check)
        with pool.lease(self._target) as target:
            self._ledger(target).enter(REPLAY, line.epoch)

    def _states(
        self, tables: Iterable[str], applied: Mapping[str, int]
    ) -> Mapping[str, TableState]:
        with pool.lease(self._target) as session:
            ledger = self._ledger(session)
            copied, parts = ledger.copied(), ledger.progress()
        return {
            name: TableState(
                copied[name].rows if name in copied else 0,
                applied.get(name, 0),
                version.plain() if (version := version_of(name, parts)) else None,
            )
            for name in tables
        }

    @contextmanager
    def _watching(
        self,
        spark: SparkSession,
        plans: Mapping[str, TablePlan],
        line: TaskLine,
        steering: Steering,
    ) -> Iterator[Watch]:
        """The verifiers that the task asks for, from before the first write to the end of the run."""
        (shard,) = Offset.parse(line.origin).marks
        self._applied = AppliedByQuery({self._source: shard})
        settings = self._settings
        scene = Scene(
            settings.task, settings.annotation, plans, spark, self._applied, steering.gate
        )
        watch = Watch(open_verifiers(scene, settings.verify, self._target, ShrinkRules()))
        try:
            watch.start(resumed=not self._planning.is_beginning)
            yield watch
        finally:
            if left := watch.waiting:
                rows = "1 row is" if left == 1 else f"{left:,} rows are"
                self._listener.said(
                    f"{rows} still to be verified again: the next run goes on with that"
                )
            watch.close()

    # Replicating

    def replication(self, plans: Mapping[str, TablePlan], line: TaskLine) -> Replication:
        """What applies changes, from where the ledger stands."""
        origin = Offset.parse(line.origin)
        origins = {s: (mark.position, mark.committed_at) for s, mark in origin.marks.items()}
        settings = replace(self._settings, rules=self._planning.rules)
        return Replication(settings, self._target, plans, origins, line.epoch)

    def _catch_up(
        self, spark: SparkSession, replication: Replication, steering: Steering, watch: Watch
    ) -> None:
        """Everything that was committed is in, and the tables are still those that are carried."""
        self._replicate(spark, replication, steering, watch, once=True)
        try:
            replication.tables.judge_present()
        except DefinitionChanged:
            # It may have happened since the end that was read to: what came before it is carried.
            self._replicate(spark, replication, steering, watch, once=True)
            replication.tables.judge_present()

    def _keep_up(
        self, spark: SparkSession, replication: Replication, steering: Steering, watch: Watch
    ) -> None:
        """Goes on until it is stopped, or a table has gone that the log does not tell of."""
        departures = Departures(replication.tables)
        while True:
            try:
                self._replicate(
                    spark, replication, steering, watch, once=False, check=departures.look
                )
            except Departed:
                self._catch_up(spark, replication, steering, watch)
            else:
                return

    def _replicate(
        self,
        spark: SparkSession,
        replication: Replication,
        steering: Steering,
        watch: Watch,
        *,
        once: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Reads from where the ledger stands; Spark's own checkpoint is thrown away afterwards."""
        from pyspark.errors import StreamingQueryException

        tokens = tuple(
            EventToken(committed_at, shard, parse_position(position))
            for shard, (position, committed_at) in replication.start().items()
        )
        start = tokens[0] if len(tokens) == 1 else KeyspacePosition(tokens)
        self._end_asked_at = time.monotonic()
        if once and (end := self._end_at(start)):
            self._applied.reached = end
            return
        with tempfile.TemporaryDirectory(prefix="truecopy-") as checkpoint, explained():
            traced = telemetry.apart("batch", replication.apply, task=self._settings.task)
            apply = steering.held(watch.observed(traced), replication.applied)
            writer = apply_each(
                spark, replicated(self._request), str(start), replication.columns, apply
            )
            writer = writer.option("checkpointLocation", checkpoint)
            query = (writer.trigger(availableNow=True) if once else writer).start()
            self._applied.query = query
            self._stop_work = partial(steering.stop, query)
            if self._is_stopping:
                self._stop_work()

            def both() -> None:
                watch.check()
                check()

            try:
                steering.follow(query, both)
            except StreamingQueryException:
                if replication.failure is not None:
                    raise replication.failure from None
                watch.check()
                raise
            replication.settle()
            if once and self._is_stopping:
                raise CannotFinish(f"{self._settings.task} was stopped before it had caught up")

    def _end_at(self, start: EventToken | KeyspacePosition) -> Offset | None:
        """The end of the stream, if it is where we are: a query takes seconds to find nothing."""
        with KeyspaceStream(self._request) as stream:
            offset = stream.start(start)
            return offset if stream.has_reached(offset, stream.current()) else None

    def _lag(self) -> float | None:
        """Seconds: what was committed before the end of the log was asked for is in, and some or all that came since.

        None where the source does not answer any more.
        """
        with suppress(TruecopyError), KeyspaceStream(self._request) as stream:
            reached, end = self._applied.end, stream.current()
            since = time.monotonic() - self._end_asked_at
            if reached is None:
                return since
            # A log that was quiet tells the age of its last change: far too much, once there is a new one.
            behind = min(stream.lag(reached).seconds, since)
            return 0.0 if stream.has_reached(reached, end) else behind
        return None

    def _tie_tables(self, plans: Mapping[str, TablePlan]) -> None:
        """Foreign keys that have to act, before the first change by which they do."""
        if tied_plans(plans):
            with (
                self._altering(plans),
                pool.lease(self._source) as source,
                pool.lease(self._target) as target,
            ):
                tie_tables(cast(Introspects, source), target, plans, self._settings.annotation)

    def _finish_tables(self, plans: Mapping[str, TablePlan], line: TaskLine) -> None:
        """Indexes and foreign keys, once nothing goes back in time any more."""
        with pool.lease(self._target) as target:
            ledger = self._ledger(target)
            found = ledger.find()
            if found is None or found.phase != REPLAY:
                return
            if isinstance(target, Creates) and self._makes_indexes:
                with self._altering(plans), pool.lease(self._source) as source:
                    here = cast(Introspects, source)
                    self._refused = make_indexes(
                        here, target, plans, self._settings.annotation, self._listener.said
                    )
            ledger.enter(REPLICATE, line.epoch)

    def _altering(self, plans: Mapping[str, TablePlan]) -> AbstractContextManager[None]:
        tables = [plan.target.tables[0] for plan in plans.values()]
        return altering(self._settings.task, self._target, tables)

    @property
    def _makes_indexes(self) -> bool:
        """Of several legs to one target the last: until then the rows of another may go back in time."""
        return self._settings.leg is None or self._settings.leg.last
