"""How fast a transfer is: the copy, its verification, the changes, the cutover, and as tables grow.

    python -m bench.transfer [--json] [--rows N]

What the figures mean and what they should be: docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import truecopy
from bench.backlog import TABLE, LogPosition, log_position, make_backlog, seconds_of_replica
from bench.copies import (
    copy,
    copy_unverified,
    dump_and_load,
    empty,
    peak_of_fresh_driver,
    settings_of,
)
from bench.figures import Figure, at_least, at_most, exactly, print_figures
from bench.tables import BUFFER_POOL, fill_table
from bench.timing import ROUNDS, seconds_of
from bench.writer import FIRST
from tests.servers import Database, MariaDB, PostgreSQL
from truecopy import spark
from truecopy.transfer.cutover.cutover import Cutover
from truecopy.transfer.cutover.settings import How
from truecopy.transfer.proof.chosen import INLINE
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import TABLE as TABLE_WISE
from truecopy.transfer.settings import Settings

_START = time.monotonic()
_TIMES = 4
"""The large table has so many times the rows of the small one."""
_RATE = 1000
_WARM_SECONDS = 5
_LOAD_SECONDS = 180


@dataclass(frozen=True)
class Places:
    """The databases of a run.

    Attributes:
        small, large: On the source, one table each.
        mariadb, spare, postgresql: Targets, without tables.
        replica: A server whose table is equal to the small one.
    """

    rows: int
    small: Database
    large: Database
    mariadb: Database
    spare: Database
    postgresql: Database
    replica: Database


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.transfer", description="Measures transfers.")
    parser.add_argument(
        "--rows", type=int, default=1_000_000, metavar="N", help="default: 1 million"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecopy-bench-") as state:
        os.environ["TRUECOPY_STATE"] = state
        print_figures(measure(chosen.rows), chosen.json)


def measure(rows: int) -> list[Figure]:
    say(f"filling servers with {rows:,} and {_TIMES * rows:,} rows")
    with places(rows) as here:
        # First, while no other driver shares memory with those that are measured.
        figures = memory_figures(here)
        session = spark.session()
        small = copy_figures(here)
        figures += small
        seconds = next(figure.value for figure in small if figure.name == "copy_seconds")
        figures += large_figures(here, seconds)
        figures += backlog_figures(here)
        figures += cutover_figures(here)
        session.stop()
    return sorted(figures, key=lambda figure: figure.goal is None)


@contextmanager
def places(rows: int) -> Iterator[Places]:
    with (
        MariaDB(buffer_pool=BUFFER_POOL) as source,
        MariaDB(buffer_pool=BUFFER_POOL) as target,
        MariaDB(buffer_pool=BUFFER_POOL) as replica,
        PostgreSQL(shared_buffers="1GB") as postgresql,
    ):
        here = Places(
            rows,
            source.create_database("small"),
            source.create_database("large"),
            target.create_database("copy"),
            target.create_database("spare"),
            postgresql.create_database("copy"),
            replica.create_database("small"),
        )
        for database, count in (
            (here.small, rows),
            (here.replica, rows),
            (here.large, _TIMES * rows),
        ):
            fill_table(database, TABLE, count)
        yield here


def memory_figures(here: Places) -> list[Figure]:
    """Whether memory grows with the table."""
    say("peak memory, each size in a fresh driver")
    least = peak_of_fresh_driver([here.small, here.small], here.mariadb)
    most = peak_of_fresh_driver([here.small, here.large], here.mariadb)
    return [
        Figure("copy_peak_memory_of_4_times_the_rows", most / least, at_most(1.15)),
        Figure("copy_peak_memory_megabytes", least / 2**20),
    ]


def copy_figures(here: Places) -> list[Figure]:
    """Against a dump that is loaded, which verifies nothing."""
    say("copies and the rival")
    copies = in_turns(
        {
            "mariadb": (partial(copy, here.small), here.mariadb),
            "rival": (partial(dump_and_load, here.small), here.mariadb),
            "mariadb, unverified": (partial(copy_unverified, here.small), here.mariadb),
            "postgresql": (partial(copy, here.small), here.postgresql),
            "postgresql, unverified": (partial(copy_unverified, here.small), here.postgresql),
        }
    )
    times = {name: statistics.median(seconds) for name, seconds in copies.items()}
    shares = {
        name: 1 - times[f"{name}, unverified"] / times[name] for name in ("mariadb", "postgresql")
    }
    return [
        Figure("copy_time_over_dump", times["mariadb"] / times["rival"], at_most(1.0)),
        Figure("copy_to_postgresql_over_dump", times["postgresql"] / times["rival"], at_most(1.3)),
        Figure("copy_verify_share", shares["mariadb"], at_most(0.3)),
        Figure("copy_to_postgresql_verify_share", shares["postgresql"], at_most(0.3)),
        Figure("copy_seconds", times["mariadb"]),
        Figure("copy_unverified_seconds", times["mariadb, unverified"]),
        Figure("copy_to_postgresql_seconds", times["postgresql"]),
        Figure("copy_to_postgresql_unverified_seconds", times["postgresql, unverified"]),
        Figure("dump_seconds", times["rival"]),
    ]


def large_figures(here: Places, small_seconds: float) -> list[Figure]:
    say("copies of the large table")
    copies = in_turns({"mariadb": (partial(copy, here.large), here.mariadb)}, warm_up=False)
    seconds = statistics.median(copies["mariadb"])
    return [
        Figure("copy_time_of_4_times_the_rows", seconds / small_seconds, at_most(4.4)),
        Figure("copy_of_4_times_the_rows_seconds", seconds),
    ]


def backlog_figures(here: Places) -> list[Figure]:
    """Changes that were made while nobody read them, beside MariaDB's own replication."""
    say("a backlog of changes")
    start = log_position(here.small)
    copy(here.small, here.mariadb)
    here.small.execute(f"UPDATE {TABLE} SET k = k + 1 WHERE id <= 1000")
    replicate(here, start)  # warms up
    start = log_position(here.small)
    changes = make_backlog(here.small, here.rows)
    ours, theirs = replicate(here, start)
    require_equal(here.small, here.mariadb)
    require_equal(here.small, here.replica)
    task = settings_of(here.small, here.mariadb)
    slower = {}
    for turn, settings in enumerate(
        (
            replace(task, consistency=TABLE_WISE),
            replace(task, consistency=TABLE_WISE, verify=(INLINE,)),
        ),
        2,
    ):
        say(f"the same by table{', verified' if settings.verify else ''}")
        made = make_backlog(here.small, here.rows, turn)
        slower[settings.verify] = made / seconds_to_the_end(settings)
        require_equal(here.small, here.mariadb)
    return [
        Figure("replicate_changes_per_second", changes / ours, at_least(30_000)),
        Figure("replicate_by_table_changes_per_second", slower[()]),
        Figure("replicate_and_verify_changes_per_second", slower[INLINE,]),
        Figure("replica_changes_per_second", changes / theirs),
        Figure("replicate_changes", changes),
    ]


def replicate(here: Places, start: LogPosition) -> tuple[float, float]:
    """Seconds to the end of the log: of a run that goes on where the last one ended, and of the replica."""
    ours = seconds_to_the_end(settings_of(here.small, here.mariadb))
    return ours, seconds_of_replica(here.small, here.replica, start)


def seconds_to_the_end(settings: Settings) -> float:
    return seconds_of(partial(Transfer(settings).run, until_caught_up=True))


def cutover_figures(here: Places) -> list[Figure]:
    """The write downtime of the task whose backlog was replicated, under a steady load."""
    say(f"a cutover at {_RATE:,} writes a second")
    copy(here.large, here.spare)
    large, _ = cut_over(here.large, here.spare, rehearse=True)
    downtime, is_locked_out = cut_over(here.small, here.mariadb)
    return [
        Figure("cutover_downtime_seconds", downtime, at_most(5)),
        Figure("cutover_came_under_load", is_locked_out, exactly(1)),
        Figure("cutover_writes_per_second", writes_per_second(here.small)),
        Figure("cutover_downtime_of_4_times_the_rows_seconds", large),
    ]


def cut_over(source: Database, target: Database, *, rehearse: bool = False) -> tuple[float, bool]:
    """The downtime of a cutover under load, and whether writers were there to be locked out."""
    with application(source) as url, written_to(url) as writer:
        time.sleep(_WARM_SECONDS)
        with Cutover(settings_of(source, target), How()) as cutover:
            report = cutover.run(rehearse=rehearse)
        # Locked out it fails; one that came to its end was waited for, since the changes ran ahead.
        is_locked_out = writer.wait() != 0
    if report.state != ("rehearsed" if rehearse else "switched"):
        raise RuntimeError(f"the cutover ended {report.state}: {report.reason}")
    return report.downtime_seconds, is_locked_out


Work = tuple[Callable[[Database], float], Database]


def in_turns(works: Mapping[str, Work], *, warm_up: bool = True) -> dict[str, list[float]]:
    """Seconds, of rounds in which all take their turn, after one that warms up; to empty targets is not counted."""
    made: dict[str, list[float]] = {name: [] for name in works}
    for number in range(-1 if warm_up else 0, ROUNDS):
        for name, (work, target) in works.items():
            seconds = work(target)
            empty(target)
            if number >= 0:
                made[name].append(seconds)
                say(f"{name}: {seconds:.1f} s")
    return made


def require_equal(source: Database, target: Database) -> None:
    report = truecopy.verify(source.url, target.url, tables=(TABLE,))
    if report.verdict != "equal":
        raise RuntimeError(f"{target.server.scheme}: the table is {report.verdict}")


@contextmanager
def application(database: Database) -> Iterator[str]:
    """The URL of a user who may only write: what locks writers out does not stop a superuser."""
    name, password = f"app_of_{database.name}", secrets.token_hex(12)
    database.execute(f"CREATE USER {name} IDENTIFIED BY '{password}'")
    database.execute(f"GRANT SELECT, INSERT ON {database.name}.* TO {name}")
    server = replace(database.server, user=name, password=password)
    yield server.url(database.name)


@contextmanager
def written_to(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes steadily, until it may not any more, or for some minutes."""
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "bench.writer", url, str(_RATE), str(_LOAD_SECONDS)]
    with subprocess.Popen(command, cwd=root, stderr=subprocess.DEVNULL) as writer:
        try:
            yield writer
        finally:
            writer.terminate()


def writes_per_second(database: Database) -> float:
    """Of the writer, by the times that it wrote."""
    ((rate,),) = database.execute(
        f"SELECT COUNT(*) / (MAX(pad + 0e0) - MIN(pad + 0e0)) FROM {TABLE} WHERE id >= {FIRST}"
    )
    return float(rate)


def say(message: str) -> None:
    print(f"[{time.monotonic() - _START:6.1f} s] {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
