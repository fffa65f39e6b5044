"""How fast continuous validation is: a backlog of changes, its memory, and what it costs those who use the servers.

    python -m bench.validate [--json] [--changes N]

What the figures mean and what they should be: docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.backlog import EACH, TABLE, make_backlog
from bench.figures import Figure, at_least, at_most, print_figures
from bench.memory import PeakMemory
from bench.tables import BUFFER_POOL, fill_table
from tests.servers import Database, MariaDB, Server
from truecopy import spark
from truecopy.metastore.validations import Validations
from truecopy.transfer.continuous.options import LAG, ContinuousOptions
from truecopy.transfer.continuous.validator import Validator
from truecopy.transfer.packing import Packed
from truecopy.transfer.settings import Settings

_START = time.monotonic()
_KEYS = 500
_RATE = 500
_LOAD_SECONDS = 20.0
_SMALL, _LARGE = 5, 2
"""Backlogs whose memory is compared: a fifth of the changes, and twice as many."""


@dataclass(frozen=True)
class Backlog:
    """Two equal databases, and where the changes begin that made them so."""

    source: Database
    target: Database
    start: str
    changes: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.validate", description="Measures validation.")
    parser.add_argument(
        "--changes", type=int, default=500_000, metavar="N", help="default: 500,000"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.peak_of:
        print(_peak_here(json.loads(chosen.peak_of)))
        return
    with tempfile.TemporaryDirectory(prefix="truecopy-bench-") as state:
        os.environ["TRUECOPY_STATE"] = state
        print_figures(measure(chosen.changes), chosen.json)


def measure(changes: int) -> list[Figure]:
    with (
        MariaDB(buffer_pool=BUFFER_POOL) as source,
        MariaDB(buffer_pool=BUFFER_POOL) as target,
    ):
        figures = memory_figures(source, target, changes)
        session = spark.session()
        with backlog(source, target, changes) as large:
            validate(large)  # starts Spark's workers; the JVM compiles what it runs often
            figures += backlog_figures(large)
            figures += load_figures(large)
        session.stop()
    return sorted(figures, key=lambda figure: figure.goal is None)


@contextmanager
def backlog(source: Server, target: Server, changes: int) -> Iterator[Backlog]:
    """About as many changes, of as many rows; the target gets them by the same statements."""
    say(f"making a backlog of {changes:,} changes")
    name = f"bench_{secrets.token_hex(3)}"
    here, there = source.create_database(name), target.create_database(name)
    for database in (here, there):
        fill_table(database, TABLE, changes)
    ((start,),) = here.execute("SELECT @@gtid_binlog_pos")
    made = [make_backlog(database, changes) for database in (here, there)]
    try:
        yield Backlog(here, there, str(start), made[0])
    finally:
        for database in (here, there):
            database.server.drop_database(name)


def backlog_figures(large: Backlog) -> list[Figure]:
    """Validation against the bare question: the same keys, by one connection of the usual driver."""
    ours, floor = [], []
    for _ in range(3):
        ours.append(validate(large))
        floor.append(bare(large))
        say(f"validated in {ours[-1]:.1f} s, asked for in {floor[-1]:.1f} s")
    seconds = statistics.median(ours)
    return [
        Figure("validated-changes-per-second", large.changes / seconds, at_least(20_000)),
        Figure("validated-over-bare-select", seconds / statistics.median(floor), at_most(2.5)),
        Figure("bare-select-seconds", statistics.median(floor)),
    ]


class _Timed(Validator):
    """Notes when the first batch was begun, which is read only then."""

    begun = 0.0

    def _take(self, changes: Packed, number: int) -> None:
        self.begun = self.begun or time.monotonic()
        super()._take(changes, number)


def validate(what: Backlog) -> float:
    """Seconds from the first batch to the last check; that everything was right is made sure of."""
    task = f"bench_{secrets.token_hex(4)}"
    settings = Settings(task, what.source.url, what.target.url)
    options = ContinuousOptions(validate_interval=1.0, applied=LAG, lag=0.0)
    validator = _Timed(settings, options)
    at = {what.source.name: (what.start, 0)}
    thread = threading.Thread(target=lambda: validator.run(at=at))
    thread.start()
    store = Validations()
    while True:
        standing = store.find(task)
        if standing and sum(standing.processed.values()) >= what.changes:
            break
        if not thread.is_alive():
            raise RuntimeError(f"validation ended: {standing}")
        time.sleep(0.1)  # asking costs time on the same cores
    seconds = time.monotonic() - validator.begun
    validator.stop()
    thread.join()
    pending, errors = store.pending(task), store.errors.counts(task)
    if pending.total or any(errors.values()):
        raise RuntimeError(f"not everything was right: {pending} {errors}")
    store.delete(task)
    return seconds


def bare(what: Backlog) -> float:
    """Seconds of `SELECT … WHERE id IN (…)` for every key that changed."""
    keys = changed_keys(what)
    with closing(what.target.connect()) as connection, connection.cursor() as cursor:
        begun = time.monotonic()
        for at in range(0, len(keys), _KEYS):
            some = keys[at : at + _KEYS]
            places = ", ".join(["%s"] * len(some))
            cursor.execute(f"SELECT * FROM {TABLE} WHERE id IN ({places})", some)
            cursor.fetchall()
        return time.monotonic() - begun


def changed_keys(what: Backlog) -> list[int]:
    """As `make_changes` chooses them, in the order of the log."""
    each, rows = what.changes // 3, what.changes
    keys: list[int] = []
    for at in range(0, each, EACH):
        for first in (rows + at, at, rows // 2 + at):
            keys += range(first + 1, first + EACH + 1)
    return keys


def memory_figures(source: Server, target: Server, changes: int) -> list[Figure]:
    """The peak of a fresh driver with its workers, for a small backlog and a large one."""
    peaks = []
    for count in (changes // _SMALL, changes * _LARGE):
        with backlog(source, target, count) as what:
            peaks.append(_peak_of_fresh_driver(what))
            say(f"{what.changes:,} changes: {peaks[-1] / 2**20:,.0f} MB")
    return [
        Figure("memory-large-over-small-backlog", peaks[1] / peaks[0], at_most(1.25)),
        Figure("memory-large-backlog-mb", peaks[1] / 2**20),
    ]


def _peak_of_fresh_driver(what: Backlog) -> int:
    job = {
        "source": what.source.url,
        "target": what.target.url,
        "name": what.source.name,
        "start": what.start,
        "changes": what.changes,
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.validate", "--peak-of", json.dumps(job)],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout.split()[-1])


def _peak_here(job: dict[str, object]) -> int:
    settings = Settings("peak", str(job["source"]), str(job["target"]))
    options = ContinuousOptions(validate_interval=1.0, applied=LAG, lag=0.0)
    validator = Validator(settings, options)
    at = {str(job["name"]): (str(job["start"]), 0)}
    spark.session()
    with PeakMemory() as memory:
        thread = threading.Thread(target=lambda: validator.run(at=at))
        thread.start()
        while thread.is_alive():
            standing = Validations().find("peak")
            if standing and sum(standing.processed.values()) >= int(str(job["changes"])):
                break
            time.sleep(0.05)
        validator.stop()
        thread.join()
    Validations().delete("peak")
    return memory.peak


def load_figures(what: Backlog) -> list[Figure]:
    """What writers of the source and readers of the target wait, without validation and beside it."""
    alone = latencies(what)
    task = f"bench_{secrets.token_hex(4)}"
    settings = Settings(task, what.source.url, what.target.url)
    options = ContinuousOptions(validate_interval=2.0, applied=LAG, lag=0.0)
    validator = Validator(settings, options)
    thread = threading.Thread(target=validator.run)
    thread.start()
    time.sleep(8)
    beside = latencies(what)
    validator.stop()
    thread.join()
    Validations().delete(task)
    return [
        Figure(f"{end}-{name}-ms-{how}", taken[place])
        for how, found in (("alone", alone), ("beside-validation", beside))
        for end, taken in found.items()
        for place, name in enumerate(("p50", "p99"))
    ]


def latencies(what: Backlog) -> dict[str, tuple[float, float]]:
    """Milliseconds of an update on the source and of a look at the target, at a steady rate."""
    taken: dict[str, list[float]] = {"source-update": [], "target-select": []}

    def work(end: Database, name: str, statement: str, carry: bool) -> None:
        with (
            closing(end.connect()) as connection,
            connection.cursor() as cursor,
            closing(what.target.connect()) as other,
            other.cursor() as carried,
        ):
            begun = time.monotonic()
            count = 0
            while (now := time.monotonic()) - begun < _LOAD_SECONDS:
                count += 1
                before = time.monotonic()
                row = (count * 7919 % (what.changes // 6) + 1,)
                cursor.execute(statement, row)
                cursor.fetchall()
                taken[name].append((time.monotonic() - before) * 1000)
                if carry:  # as a replication would, so that what is validated is right
                    carried.execute(statement, row)
                time.sleep(max(0.0, begun + count / _RATE - now))

    threads = [
        threading.Thread(target=work, args=one)
        for one in (
            (what.source, "source-update", f"UPDATE {TABLE} SET k = k + 1 WHERE id = %s", True),
            (what.target, "target-select", f"SELECT * FROM {TABLE} WHERE id = %s", False),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: _quantiles(values) for name, values in taken.items()}


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=100)
    return cuts[49], cuts[98]


def say(line: str) -> None:
    print(f"[{time.monotonic() - _START:6.1f} s] {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
