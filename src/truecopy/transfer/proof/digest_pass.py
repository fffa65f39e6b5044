"""One pass over all rows while both sides are written to: what differs goes into the store.

Chunk digests in both databases, as `truecopy verify` takes them. A row that differs may be on its way, so
nothing is judged here: the store's looks tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Passed:
    """What a pass saw: how many tables and rows, and how many rows to look at again."""

    tables: int
    rows: int
    suspects: int


def digest_pass(scene: Scene, store: ReverifyStore, options: Options | None = None) -> Passed:
    """Compares all rows of the tables whose rows can be looked at again."""
    live = replace(options or Options(), live=True, limit=None, sample=None)
    looked_up = [plan for plan in scene.plans.values() if is_looked_up(plan)]
    plans = [plan for plan in looked_up if not plan.is_mapped]
    rows = suspects = 0
    for plan in looked_up:
        for count, differences in differing(scene, [plan]) if plan.is_mapped else ():
            rows += count
            keys = sorted({difference.key for difference in from_arrow(differences)})
            suspects += len(keys)
            store.add_keys(plan.source_name, keys)
    for result in compare_all(scene.spark, [plan.comparison for plan in plans], live):
        rows += result.source.count
        if result.found:
            keys = sorted({difference.key for difference in from_arrow(result.table)})
            suspects += len(keys)
            store.add_keys(plans[result.comparison].source_name, keys)
    return Passed(len(looked_up), rows, suspects)


def compare_all(
    spark: SparkSession | None, comparisons: Sequence[Comparison], options: Options
) -> Iterator[ChunkResult]:
    """Chunk digests of tables whose rows arrive as they are, and the rows that differ."""
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
        yield from runner.run_here(tasks, comparisons, options)
    else:
        yield from run_on_spark(spark, tasks, comparisons, options)
    for number in whole:
        comparison = comparisons[number]
        if spark is None:
            raise UsageError(f"{comparison.name} can be compared through Spark only")
        with (
            pool.lease(comparison.source.endpoint) as source,
            pool.lease(comparison.target.endpoint) as target,
        ):
            yield from compare_by_buckets(spark, comparison, number, (source, target), options)
