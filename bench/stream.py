"""How fast the change stream is: against python-mysql-replication, in parallel, live, and idle.

    python -m bench.stream [--json] [--rows N]

What the figures mean and what they should be: docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

from bench.figures import Figure, at_least, at_most, print_figures
from bench.logs import BULK, SINGLE, TYPES, Log, filled_log
from bench.rivals import replication_rate
from bench.timing import seconds_of
from truecopy import spark
from truecopy.model.endpoint import parse_endpoint
from truecopy.stream.changes import read_changes
from truecopy.stream.log import ChangeLog, Mark, Wanted, open_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_START = time.monotonic()
_EVERYTHING = 1 << 40
_RATE = 1000
_LIVE_SECONDS = 30
_IDLE_SECONDS = 15
DECODER_GOALS = {BULK: 8.0, TYPES: 5.0, SINGLE: 12.0}
SOURCE_GOALS = {BULK: 5.0, SINGLE: 12.0}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.stream", description="Measures the change stream.")
    parser.add_argument(
        "--rows", type=int, default=1_000_000, metavar="N", help="default: 1 million"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecopy-bench-") as state:
        os.environ["TRUECOPY_STATE"] = state
        print_figures(measure(chosen.rows), chosen.json)


def measure(rows: int) -> list[Figure]:
    figures: list[Figure] = []
    session = spark.session()
    for kind in (BULK, TYPES, SINGLE):
        say(f"filling a server: {kind}, {rows:,} rows")
        with filled_log(kind, rows) as log:
            rival = replication_rate(log.database)
            say(f"python-mysql-replication: {rival:,.0f} rows/s")
            figures += decoder_figures(log, rival)
            if kind in SOURCE_GOALS:
                figures += source_figures(session, log, rival)
    say("live and idle")
    with filled_log(SINGLE, 1000) as log:
        figures += live_figures(session, log)
    session.stop()
    return sorted(figures, key=lambda figure: figure.goal is None)


def decoder_figures(log: Log, rival: float) -> list[Figure]:
    """One part over the whole log, in this process: one core, no Spark."""
    with opened(log) as changes:
        start = changes.oldest()
        (part,) = changes.split(start, end_of(changes, start), 1)

        def decode() -> int:
            return sum(batch.num_rows for batch in part.read())

        assert decode() == log.rows
        rate = log.rows / statistics.median(seconds_of(decode) for _ in range(3))
    say(f"decoder, {log.kind}: {rate:,.0f} rows/s")
    return [
        Figure(f"decoder-{log.kind}-times-rival", rate / rival, at_least(DECODER_GOALS[log.kind])),
        Figure(f"decoder-{log.kind}-rows-per-second", rate),
    ]


def source_figures(session: SparkSession, log: Log, rival: float) -> list[Figure]:
    """The Spark source into a sink that does nothing, from the first change to the last."""
    for parts in (1, 2):
        drain(session, log, parts)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    starts = []
    for _ in range(3):
        for parts, taken in seconds.items():
            start, working = drain(session, log, parts)
            starts.append(start)
            taken.append(working)
    one, two = (log.rows / statistics.median(seconds[parts]) for parts in (1, 2))
    say(f"source, {log.kind}: {one:,.0f} rows/s in one range, {two:,.0f} in two")
    return [
        Figure(f"source-{log.kind}-times-rival", two / rival, at_least(SOURCE_GOALS[log.kind])),
        Figure(f"source-{log.kind}-two-ranges-over-one", two / one, at_least(1.3)),
        Figure(f"source-{log.kind}-rows-per-second", two),
        Figure(f"source-{log.kind}-seconds-to-start", statistics.median(starts)),
    ]


def drain(session: SparkSession, log: Log, parts: int) -> tuple[float, float]:
    """Seconds that a query takes to start, and then for everything in the log.

    The start is apart, as it is for the rival: each query has a Python process of its own to start.
    """
    changes = read_changes(session, log.database.url, start="start", parts=parts)
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = changes.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        begun = time.monotonic()
        query.awaitTermination()
        taken = time.monotonic() - begun
        done = [json.loads(progress.json) for progress in query.recentProgress]
    assert sum(progress["numInputRows"] for progress in done) == log.rows
    working = sum(progress["durationMs"]["triggerExecution"] for progress in done) / 1000
    return taken - working, working


def live_figures(session: SparkSession, log: Log) -> list[Figure]:
    """From the moment before a commit to the batch that holds it; then what an idle source costs."""
    delays: list[float] = []

    def note(batch: object, _: int) -> None:
        texts = [row[0] for row in batch.selectExpr("after[3]").collect()]  # type: ignore[attr-defined]
        now = time.time()
        delays.extend(now - float(text) for text in texts)

    changes = read_changes(session, log.database.url)
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = changes.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint)
        query = writer.start()
        time.sleep(5)
        warm = len(delays)
        writing = threading.Thread(target=write_steadily, args=(log.database.url,))
        writing.start()
        time.sleep(5)  # the first batches compile what later ones use
        skipped = len(delays) - warm
        writing.join()
        time.sleep(2)
        taken = sorted(delays[warm + skipped :])
        idle = idle_share()
        query.stop()
    return [
        Figure("live-p50-seconds", taken[len(taken) // 2], at_most(0.5)),
        Figure("live-p99-seconds", taken[len(taken) * 99 // 100], at_most(1.2)),
        Figure("live-changes", len(taken)),
        Figure("idle-share-of-a-core", idle, at_most(0.03)),
    ]


def write_steadily(url: str) -> None:
    """1,000 transactions a second, by a process of its own: this one reads."""
    subprocess.run(
        [sys.executable, "-m", "bench.writer", url, str(_RATE), str(_LIVE_SECONDS)],
        check=True,
        cwd=Path(__file__).resolve().parent.parent,
    )


def idle_share() -> float:
    """The share of a core that the source's Python processes use while nothing happens."""
    processes = [
        child
        for child in psutil.Process().children(recursive=True)
        if "python" in child.name() and "bench.writer" not in " ".join(child.cmdline())
    ]
    return cpu_seconds(processes, _IDLE_SECONDS) / _IDLE_SECONDS


def cpu_seconds(processes: list[psutil.Process], seconds: float) -> float:
    def used() -> float:
        total = 0.0
        for process in processes:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total

    before = used()
    time.sleep(seconds)
    return used() - before


def opened(log: Log) -> ChangeLog:
    return open_log(parse_endpoint(log.database.url), Wanted("shop"))


def end_of(changes: ChangeLog, start: Mark) -> Mark:
    """Where the log ends; the way there makes the definitions known."""
    mark = start
    while (after := changes.advance(mark, _EVERYTHING, 2.0)) != mark:
        mark = after
    return mark


def say(message: str) -> None:
    print(f"[{time.monotonic() - _START:6.1f} s] {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
