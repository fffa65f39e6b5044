"""Running chunks on Spark; results come as they are made, not when the job ends."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam

from truecopy import spark as spark_settings
from truecopy.engines import pool
from truecopy.verify.compare import ChunkResult
from truecopy.verify.matching import Comparison
from truecopy.verify.options import Options
from truecopy.verify.runner import ChunkTask, Outcome, compare_task, result_of

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

TASKS_PER_JOB = 2000
_POLL_SECONDS = 0.02

Results = deque[Outcome]


class _Channel(AccumulatorParam[Results]):
    """Brings each task's results to the driver when the task ends, not when the job does."""

    def zero(self, value: Results) -> Results:  # noqa: ARG002 - Spark's signature
        return deque()

    def addInPlace(self, value1: Results, value2: Results) -> Results:  # noqa: N802 - Spark's name
        value1.extend(value2)
        return value1


def run_on_spark(
    spark: SparkSession,
    tasks: Sequence[ChunkTask],
    comparisons: Sequence[Comparison],
    options: Options,
) -> Iterator[ChunkResult]:
    """Runs each chunk as a Spark task. Closing the iterator cancels what is still running."""
    parallel = options.connections or spark.sparkContext.defaultParallelism
    # Fewer connections than cores: jobs of as many tasks as connections are allowed.
    size = TASKS_PER_JOB if parallel >= spark.sparkContext.defaultParallelism else parallel
    for at in range(0, len(tasks), size):
        yield from _run_job(spark, tasks[at : at + size], comparisons, options)


def _run_job(
    spark: SparkSession,
    tasks: Sequence[ChunkTask],
    comparisons: Sequence[Comparison],
    options: Options,
) -> Iterator[ChunkResult]:
    context = spark.sparkContext
    channel = context.accumulator(deque(), _Channel())
    results: Results = channel.value
    # What executors need goes into the function, secrets included: it is sent to them over the
    # wire, whereas the elements of the collection pass through a file.
    work = partial(_compare_into, channel, list(comparisons), options)
    group, failure = f"truecopy-{uuid.uuid4()}", list[BaseException]()

    def run() -> None:
        try:
            context.setJobGroup(group, "truecopy verify", interruptOnCancel=True)
            context.parallelize(list(tasks), len(tasks)).foreach(work)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            failure.append(error)

    job = threading.Thread(target=run, name=group, daemon=True)
    job.start()
    try:
        while job.is_alive() or results:
            while results:
                yield result_of(results.popleft())
            job.join(_POLL_SECONDS)
    finally:
        if job.is_alive():
            context.cancelJobGroup(group)
            job.join(10)
    if failure:
        raise spark_settings.explain_spark(failure[0]) from failure[0]


def _compare_into(
    channel: Accumulator[Results],
    comparisons: Sequence[Comparison],
    options: Options,
    task: ChunkTask,
) -> None:
    channel.add(deque([compare_task(comparisons, options, task)]))
    if options.connections:
        pool.close_idle()  # the next chunk may go to another worker, whose connection counts, too
    spark_settings.spare_the_collector("verify")
