"""`truecopy.verify`: from two endpoints to a report."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from truecopy import spark as spark_settings
from truecopy.engines import connect, pool
from truecopy.engines.protocols import Digests, Introspects, Reads, Replicates, Session
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.fingerprint import Digest
from truecopy.model.relation import Chunk
from truecopy.telemetry import span
from truecopy.verify import runner
from truecopy.verify.buckets import compare_by_buckets
from truecopy.verify.certificate import issue_certificate
from truecopy.verify.chunks import chunk_rows, plan_chunks, sample_chunks
from truecopy.verify.compare import ChunkResult
from truecopy.verify.differences import from_arrow, from_bytes
from truecopy.verify.live import Settled, settle
from truecopy.verify.matching import Comparison, NotCompared, match, pair_tables
from truecopy.verify.options import Options
from truecopy.verify.report import DIFFERENT, NOT_COMPARED, Report, TableReport, overall
from truecopy.verify.summary import (
    CLOSING,
    settled_result,
    table_report,
    to_record,
    without_differences,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from truecopy.metastore.runs import RunRecord

ROWS_WITHOUT_SPARK = 200_000
"""Up to here this process is done before a JVM would have started."""
STALE_AFTER = 24 * 3600


class Listener(Protocol):
    """Hears of the progress; every method may be called from the verifying thread only."""

    def planned(
        self, comparisons: Sequence[Comparison], chunks: int, rows: int, done: int
    ) -> None: ...
    def advanced(self, comparison: Comparison, result: ChunkResult) -> None: ...
    def said(self, message: str) -> None: ...


class Silence:
    """A listener that hears nothing."""

    def planned(self, comparisons: Sequence[Comparison], chunks: int, rows: int, done: int) -> None:
        """Nothing."""

    def advanced(self, comparison: Comparison, result: ChunkResult) -> None:
        """Nothing."""

    def said(self, message: str) -> None:
        """Nothing."""


@span("verify")
def verify(
    source: str | Endpoint,
    target: str | Endpoint,
    *,
    options: Options | None = None,
    master: str | None = None,
    spark: SparkSession | None = None,
    checkpoint: str | Path | None = None,
    fresh: bool = False,
    listener: Listener | None = None,
    **choices: Any,
) -> Report:
    """Compares the tables of two databases.

    Args:
        source: A URL, or a parsed one; its rows are taken to be right.
        target: Likewise; its rows are compared with the source's.
        options: What to compare and how; or give single fields of `Options` by keyword.
        master: A Spark master; without one, small work runs in this process and the rest on all cores.
        spark: A session to run on.
        checkpoint: The file that remembers what is done; by default one is kept per configuration.
        fresh: Forget what an interrupted run had done.
        listener: Hears of the progress.
        **choices: Fields of `Options`.

    Returns:
        The report. Differing rows are read from the checkpoint when they are asked for.
    """
    chosen = options or Options(**choices)
    ends = tuple(parse_endpoint(end) if isinstance(end, str) else end for end in (source, target))
    if master is not None:
        spark_settings.choose_master(master)
    with ExitStack() as stack:
        sides = cast(
            tuple[Session, Session],
            tuple(stack.enter_context(closing(connect(end))) for end in ends),
        )
        stack.callback(pool.close_idle)
        work = _Verification(sides, chosen, master, spark, listener or Silence())
        work.prepare()
        work.open_record(checkpoint, fresh)
        return work.run()


@dataclass(frozen=True)
class _Plan:
    """The chunks of one comparison; None where it is compared through Spark's frames."""

    chunks: tuple[Chunk, ...] | None
    rows: int

    def to_json(self) -> object:
        return None if self.chunks is None else [self.rows, [[c.low, c.high] for c in self.chunks]]

    @staticmethod
    def from_json(value: Any, rows: int) -> _Plan:
        if value is None:
            return _Plan(None, rows)
        ends = [[end and tuple(end) for end in pair] for pair in value[1]]
        return _Plan(tuple(Chunk(low, high) for low, high in ends), value[0])


class _Verification:
    """The steps of one verification, in the order of its methods."""

    def __init__(
        self,
        sides: tuple[Session, Session],
        options: Options,
        master: str | None,
        spark: SparkSession | None,
        listener: Listener,
    ) -> None:
        self.source, self.target = sides
        self.options = options
        self.master = master
        self.listener = listener
        self._spark = spark
        self.started_at = time.time()
        self._start = time.monotonic()
        self.comparisons: list[Comparison] = []
        self.refused: list[NotCompared] = []
        self.alone: list[NotCompared] = []
        self.plans: list[_Plan] = []
        self.resumed = 0
        self.stopped: str | None = None

    def prepare(self) -> None:
        """Matches tables and columns, and refuses what can never work."""
        source, target = cast(Introspects, self.source), cast(Introspects, self.target)
        self._refuse_impossible()
        self.positions = {"source_before": source.position(), "target_before": target.position()}
        pairs, self.alone = pair_tables(source, target, self.options)
        if not pairs:
            raise UsageError(
                f"{self.source.endpoint} and {self.target.endpoint} have no table in common;"
                " pair them with --table SOURCE=TARGET"
            )
        for pair in pairs:
            matched = match(self.source, self.target, pair, self.options)
            if isinstance(matched, NotCompared):
                self.refused.append(matched)
            elif self.options.live and not matched.source.key_width:
                reason = "a table without a key cannot be verified live: rows have no name to look at again"
                self.refused.append(NotCompared(matched.source_name, matched.target_name, reason))
            else:
                self.comparisons.append(matched)

    def _refuse_impossible(self) -> None:
        cluster = self.master or (str(self._spark.sparkContext.master) if self._spark else "local")
        for side in (self.source, self.target):
            if side.driver_local and not spark_settings.is_local(cluster):
                raise UsageError(
                    f"{side.endpoint} is a file of this machine, which the executors of {cluster} cannot open:"
                    " run it without --master"
                )
        if self.options.replica is not None:
            with pool.lease(self.options.replica) as replica:
                if not isinstance(replica, Replicates) or replica.lag_seconds() is None:
                    raise UsageError(
                        f"{self.options.replica} is not a replica, or its replication is stopped"
                    )

    def open_record(self, checkpoint: str | Path | None, fresh: bool) -> None:
        """Finds the interrupted run of the same configuration, or plans a new one."""
        self.named_checkpoint = checkpoint is not None
        configuration = self.options.fingerprint(self.source.endpoint, self.target.endpoint)
        structure = [
            [c.name, [*c.column_names], [repr(t) for t in c.source.types]] for c in self.comparisons
        ]
        self.record = open_record(checkpoint, configuration)
        before = None if fresh else self.record.resume(configuration)
        stale = before is not None and checkpoint is None and time.time() - before[0] > STALE_AFTER
        if before is not None and not stale and before[1][0] == structure:
            plans = cast(list[Any], before[1][1])
            self.plans = [
                _Plan.from_json(plan, chunk_rows(c, self.options))
                for plan, c in zip(plans, self.comparisons, strict=True)
            ]
            return
        if before is not None and checkpoint is not None and not stale:
            raise UsageError(
                f"the tables changed since the run in {checkpoint} began: start anew with --fresh"
            )
        self.plans = [self._plan(comparison) for comparison in self.comparisons]
        self.record.start(configuration, [structure, [plan.to_json() for plan in self.plans]])

    def _plan(self, comparison: Comparison) -> _Plan:
        rows = chunk_rows(comparison, self.options)
        in_databases = isinstance(self.source, Digests) and isinstance(self.target, Digests)
        if not in_databases or (not comparison.ordered and comparison.rows > rows):
            return _Plan(None, rows)
        return _Plan(tuple(plan_chunks(cast(Reads, self.source), comparison, self.options)), rows)

    def run(self) -> Report:
        """Compares what is not done yet, and makes the report."""
        done = self.record.done()
        tasks = self._tasks()
        todo = [task for task in tasks if (task.comparison, task.number) not in done]
        self.resumed = len(tasks) - len(todo)
        total = sum(comparison.rows for comparison in self.comparisons)
        if self.resumed:
            self.listener.said(f"resuming: {self.resumed} of {len(tasks)} chunks were done before")
        self.listener.planned(self.comparisons, len(tasks), total, self.resumed)
        try:
            self._compare(todo, done)
            if self.options.live:
                self._settle()
        except KeyboardInterrupt:
            raise CannotFinish(
                "interrupted; the same command goes on where this one stopped"
            ) from None
        if self.stopped is None or not self.named_checkpoint:
            # A run that was told to stop goes on only from a checkpoint that the user named: the next
            # one may come after a repair, and must not repeat what was true before it.
            self.record.finish()
        return self._report()

    def _tasks(self) -> list[runner.ChunkTask]:
        tasks: list[runner.ChunkTask] = []
        for number, plan in enumerate(self.plans):
            chunks = plan.chunks or ()
            tasks.extend(
                runner.ChunkTask(number, chosen, chunks[chosen], plan.rows)
                for chosen in sample_chunks(range(len(chunks)), self.options)
            )
        return tasks

    def _planned(self, number: int) -> int | None:
        """How many chunks of a comparison are to be compared; None where it has none."""
        chunks = self.plans[number].chunks
        return None if chunks is None else len(sample_chunks(range(len(chunks)), self.options))

    def _compare(self, todo: Sequence[runner.ChunkTask], done: set[tuple[int, int]]) -> None:
        framed = [number for number, plan in enumerate(self.plans) if plan.chunks is None]
        waiting = [number for number in framed if (number, CLOSING) not in done]
        for result in self._results(todo, waiting):
            self.record.add(to_record(result))
            self.listener.advanced(self.comparisons[result.comparison], result)
            if self._must_stop():
                return

    def _results(
        self, todo: Sequence[runner.ChunkTask], framed: Sequence[int]
    ) -> Iterator[ChunkResult]:
        rows = sum(comparison.rows for comparison in self.comparisons)
        small = rows <= ROWS_WITHOUT_SPARK and self.master is None and self._spark is None
        if todo and small:
            yield from runner.run_here(todo, self.comparisons, self.options)
        elif todo:
            from truecopy.verify.spark_runner import run_on_spark  # small work does without Spark

            yield from run_on_spark(self._session(), todo, self.comparisons, self.options)
        for number in framed:
            self.record.forget(number)
            with spark_settings.explained():
                yield from compare_by_buckets(
                    self._session(),
                    self.comparisons[number],
                    number,
                    (self.source, self.target),
                    self.options,
                )
            yield ChunkResult(number, CLOSING, Digest(), Digest())

    def _session(self) -> SparkSession:
        if self._spark is None:
            self.listener.said("starting Spark")
            self._spark = spark_settings.session(self.master)
        return self._spark

    def _must_stop(self) -> bool:
        limit, most = self.options.limit, self.options.max_time
        if limit is not None and not self.options.live and self.record.count_found() >= limit:
            self.stopped = f"stopped after {limit} differing rows"
        elif most is not None and time.monotonic() - self._start > most:
            self.stopped = f"stopped after {most:g} seconds"
        return self.stopped is not None

    def _settle(self) -> None:
        """Looks again at rows that differed in a live run, and keeps only what really differs."""
        for number, comparison in enumerate(self.comparisons):
            suspects = [
                difference
                for record in self.record.records(number, only_found=True)
                for difference in from_arrow(from_bytes(record.differences))
            ]
            if not suspects:
                continue
            settled = Settled((), len(suspects))
            if self.stopped is None:
                self.listener.said(
                    f"{comparison.source_name}: watching {len(suspects):,} rows until they stand still"
                )
                settled = settle(comparison, suspects, self.options)
            compared = [without_differences(record) for record in self.record.records(number)]
            # In one step: a kill between the two would leave rows that were never judged as equal.
            self.record.replace(number, [*compared, to_record(settled_result(number, settled))])

    def _report(self) -> Report:
        self.positions |= {
            "source_after": cast(Introspects, self.source).position(),
            "target_after": cast(Introspects, self.target).position(),
        }
        tables = [
            table_report(
                comparison,
                number,
                self.record.records(number),
                self._planned(number),
                self.options,
                self.stopped,
            )
            for number, comparison in enumerate(self.comparisons)
        ]
        tables += [
            TableReport(refused.source_name, refused.target_name, NOT_COMPARED, refused.reason)
            for refused in self.refused
        ]
        only_source = tuple(lone.source_name for lone in self.alone if lone.source_name)
        only_target = tuple(lone.target_name for lone in self.alone if lone.target_name)
        verdict = overall(tuple(tables))
        if self.options.strict_structure and (only_source or only_target):
            verdict = DIFFERENT
        report = Report(
            source=self.source.endpoint,
            target=self.target.endpoint,
            options=self.options,
            verdict=verdict,
            tables=tuple(tables),
            seconds=time.monotonic() - self._start,
            started_at=self.started_at,
            positions=self.positions,
            only_source=only_source,
            only_target=only_target,
            resumed=self.resumed,
            comparisons=tuple(self.comparisons),
            record=self.record,
        )
        return issue_certificate(report)


def open_record(checkpoint: str | Path | None, configuration: str) -> RunRecord:
    """The named file, or one of the state folder for this configuration."""
    from truecopy.metastore.runs import RunRecord  # workers of Spark do without its libraries

    if checkpoint is not None:
        return RunRecord(Path(checkpoint))
    folder = spark_settings.state_folder() / "verify"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.db*"):
        if time.time() - old.stat().st_mtime > 7 * STALE_AFTER:
            old.unlink(missing_ok=True)
    try:
        return RunRecord(folder / f"{configuration}.db")
    except CannotFinish:  # the same work runs beside this one: do without its checkpoint
        return RunRecord(folder / f"{configuration}-{uuid.uuid4()}.db")
