"""One pass over all rows while both sides are written to: what differs goes into the store.

Chunk digests in both databases, as `truecopy verify` takes them. A row that differs may be on its way, so
nothing is judged here: the store's looks tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from truecopy.engines import pool
from truecopy.engines.protocols import Digests, Reads
from truecopy.model.errors import UsageError
from truecopy.transfer.proof.mapped import differing, is_looked_up
from truecopy.transfer.proof.store import ReverifyStore
from truecopy.transfer.proof.verifier import Scene
from truecopy.verify import runner
from truecopy.verify.buckets import compare_by_buckets
from truecopy.verify.chunks import chunk_rows, plan_chunks
from truecopy.verify.compare import ChunkResult
from truecopy.verify.differences import from_arrow
from truecopy.verify.matching import Comparison
from truecopy.verify.options import Options
from truecopy.verify.spark_runner import run_on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_WITHOUT_SPARK = 200_000
_GROUP_SECONDS = 2.0
"""What a group of chunks should take; nothing is held up within it."""
_MOST_TIMES = 4

Turn = Callable[[Options], Options]
"""Waits until more may be compared, and gives the options with the ceilings that hold then."""


def at_any_time(options: Options) -> Options:
    """Compares as the options say, and waits for nothing."""
    return options


@dataclass(frozen=True)
class Passed:
    """What a pass saw: how many tables and rows, and how many rows to look at again."""

    tables: int
    rows: int
    suspects: int


def digest_pass(scene: Scene, store: ReverifyStore) -> Passed:
    """Compares all rows of the tables whose rows can be looked at again."""
    live = Options(live=True)
    looked_up = [plan for plan in scene.plans.values() if is_looked_up(plan)]
    plans = [plan for plan in looked_up if not plan.is_mapped]
    rows = suspects = 0
    for plan in (plan for plan in looked_up if plan.is_mapped):
        scene.wait_for_turn()
        for count, differences in differing(scene, [plan]):
            rows += count
            keys = sorted({difference.key for difference in from_arrow(differences)})
            suspects += len(keys)
            store.add_keys(plan.source_name, keys)
    comparisons = [plan.comparison for plan in plans]
    for result in compare_all(scene.spark, comparisons, live, scene.paced):
        rows += result.source.count
        if result.found:
            keys = sorted({difference.key for difference in from_arrow(result.table)})
            suspects += len(keys)
            store.add_keys(plans[result.comparison].source_name, keys)
    return Passed(len(looked_up), rows, suspects)


def compare_all(
    spark: SparkSession | None,
    comparisons: Sequence[Comparison],
    options: Options,
    turn: Turn = at_any_time,
) -> Iterator[ChunkResult]:
    """Chunk digests of tables whose rows arrive as they are, and the rows that differ.

    Args:
        spark: Where there is none, everything is compared in this process.
        comparisons: The tables.
        options: How.
        turn: Asked before each group of chunks.
    """
    tasks, whole = list[runner.ChunkTask](), list[int]()
    for number, comparison in enumerate(comparisons):
        rows = chunk_rows(comparison, options)
        with ExitStack() as stack:
            source, target = (
                stack.enter_context(pool.lease(side.endpoint))
                for side in (comparison.source, comparison.target)
            )
            in_databases = isinstance(source, Digests) and isinstance(target, Digests)
            if not in_databases or (not comparison.ordered and comparison.rows > rows):
                whole.append(number)
                continue
            chunks = plan_chunks(cast(Reads, source), comparison, options)
        tasks += [runner.ChunkTask(number, at, chunk, rows) for at, chunk in enumerate(chunks)]
    is_small = sum(comparison.rows for comparison in comparisons) <= ROWS_WITHOUT_SPARK
    if spark is None or is_small:
        groups = _in_groups(tasks, 1)
        run = runner.run_here
    else:
        groups = _in_groups(tasks, spark.sparkContext.defaultParallelism)
        run = partial(run_on_spark, spark)
    for group in groups:
        yield from run(group, comparisons, turn(options))
    for number in whole:
        comparison = comparisons[number]
        if spark is None:
            raise UsageError(f"{comparison.name} can be compared through Spark only")
        with (
            pool.lease(comparison.source.endpoint) as source,
            pool.lease(comparison.target.endpoint) as target,
        ):
            allowed = turn(options)
            yield from compare_by_buckets(spark, comparison, number, (source, target), allowed)


def _in_groups(
    tasks: Sequence[runner.ChunkTask], first: int
) -> Iterator[Sequence[runner.ChunkTask]]:
    """As many at a time as take a while, by how long it takes until the next group is asked for."""
    at, size = 0, first
    while at < len(tasks):
        began = time.monotonic()
        yield tasks[at : at + size]
        times = _GROUP_SECONDS / max(time.monotonic() - began, 0.001)
        at += size
        size = max(first, int(size * min(times, _MOST_TIMES)))
