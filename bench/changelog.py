"""How fast a change log takes events, and how fast a table is restored from it.

    python -m bench.changelog [--json] [--rows N]

What the figures mean and what they should be: docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import truecopy
from bench.backlog import TABLE, make_backlog
from bench.copies import empty, settings_of
from bench.figures import Figure, at_most, print_figures
from bench.tables import BUFFER_POOL, fill_table
from bench.timing import ROUNDS, seconds_of
from tests.servers import Database, MariaDB
from truecopy import spark
from truecopy.changelog.record import Recording
from truecopy.changelog.restore import restore
from truecopy.stream.request import Request
from truecopy.transfer.run import Transfer


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.changelog", description="Measures change logs.")
    parser.add_argument(
        "--rows", type=int, default=1_000_000, metavar="N", help="default: 1 million"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecopy-bench-") as state:
        os.environ["TRUECOPY_STATE"] = state
        print_figures(measure(chosen.rows, Path(state) / "log"), chosen.json)


def measure(rows: int, log: Path) -> list[Figure]:
    with (
        MariaDB(buffer_pool=BUFFER_POOL) as here,
        MariaDB(buffer_pool=BUFFER_POOL) as there,
    ):
        source, target = here.create_database("shop"), there.create_database("copy")
        fill_table(source, TABLE, rows)
        session = spark.session()
        record = partial(Recording(Request(source.url), log, interval=0).run, "current")
        base = seconds_of(record)
        source.execute(f"UPDATE {TABLE} SET k = k + 1 WHERE id <= 1000")
        record()  # warms up
        changes = make_backlog(source, rows)
        recorded = seconds_of(record)
        restored, copied = in_turns(source, target, log)
        session.stop()
    return [
        Figure("restore_time_over_copy", restored / copied, at_most(2.0)),
        Figure("events_per_second", changes / recorded),
        Figure("base_rows_per_second", rows / base),
        Figure("restore_seconds", restored),
        Figure("copy_seconds", copied),
        Figure("events", changes),
    ]


def in_turns(source: Database, target: Database, log: Path) -> tuple[float, float]:
    """Medians of a restore at the log's end and of a plain copy, after a round that warms up."""
    restores, copies = list[float](), list[float]()
    for _ in range(ROUNDS + 1):
        restores.append(seconds_of(partial(restore, log, TABLE, "current", target.url)))
        require_equal(source, target)
        empty(target)
        transfer = Transfer(settings_of(source, target))
        copies.append(seconds_of(partial(transfer.run, snapshot_only=True)))
        empty(target)
    return statistics.median(restores[1:]), statistics.median(copies[1:])


def require_equal(source: Database, target: Database) -> None:
    report = truecopy.verify(source.url, target.url, tables=(TABLE,))
    if report.verdict != "equal":
        raise RuntimeError(f"the restored table is {report.verdict}")


if __name__ == "__main__":
    main()
