"""SIGKILL of `cutover` and `switch-back` at random instants, under writers who go where the switch sends them.

The instants come from a seed, another one each time, which is printed; `TRUECOPY_SEED` takes that of a failure again,
and `TRUECOPY_KILLS` makes them more or fewer.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import psycopg
import pymysql
import pytest

from tests.program import PROGRAM
from tests.servers import Database
from tests.transfer.cutting import Application, application, dump, fill, slots, started, wait_until
from tests.transfer.killing import kill_all
from truecopy.transfer.cutover.standing import settings_back, standing
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("TRUECOPY_KILLS", "10"))
PAIRS = {
    "mariadb to mariadb": ("mariadb_db", "second_mariadb_db"),
    "postgresql to mariadb": ("postgres_db", "mariadb_db"),
}
_OPEN = 0.3
"""The share of instants before writers are locked out: most of the time, in which the least can go wrong."""


@dataclass
class Mover:
    """Writers of an application; each goes to the side that the last switch named, and knows what it was told."""

    sides: Mapping[str, Application]
    where: Path
    told: list[str] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = threading.Event()
        threads = [threading.Thread(target=self._write, args=(n, stop)) for n in (1, 2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    @property
    def side(self) -> str:
        return self.where.read_text().strip() if self.where.exists() else "back"

    def _write(self, number: int, stop: threading.Event) -> None:
        count, at, connection = 0, "", None
        while not stop.wait(0.1):
            count += 1
            try:
                if connection is None or at != self.side:
                    at = self.side
                    connection = self.sides[at].connect()
                code = f"w{number}-{count}"
                with connection.cursor() as cursor:
                    cursor.execute("INSERT INTO orders (code, total) VALUES (%s, 1)", (code,))
                    self.told.append(code)
                    cursor.execute("UPDATE notes SET body = %s WHERE id = %s", (str(count), number))
                    self.counts[number] = count
            except (pymysql.MySQLError, psycopg.Error):
                with suppress(pymysql.MySQLError, psycopg.Error):
                    if connection is not None:
                        connection.close()
                connection = None
        if connection is not None:
            connection.close()


@dataclass
class Killing:
    """Commands of one task, each of which is killed, or ends before that."""

    settings: Settings
    file: Path
    folder: Path
    dice: random.Random
    runs: list[subprocess.Popen[str]] = field(default_factory=list)

    def measure(self) -> tuple[float, float]:
        """Cuts over; how long it takes until writers are locked out, and from there to the end."""
        began = time.monotonic()
        run, log = self._start()
        self._await(run, log, ": holding (")
        held = time.monotonic()
        self._await(run, log, ": switched (")
        ended = time.monotonic()
        assert run.wait(180) == 0, log.read_text()
        return held - began, ended - held

    def kill(self, approach: float, locked: float) -> str:
        """One command, killed at an instant; says what came of it."""
        run, log = self._start()
        if self.dice.random() < _OPEN:
            wait = self.dice.uniform(0, approach)
        else:
            self._await(run, log, ": holding (", "finishing it")
            wait = self.dice.uniform(0, locked)
        with suppress(subprocess.TimeoutExpired):
            run.wait(wait)
        if self.dice.random() < 0.5:
            run.kill()  # what it started goes on for a moment
            run.wait()
        else:
            kill_all(run)
        lines = [line for line in log.read_text().splitlines() if "(" in line or "earlier" in line]
        return f"{wait:.2f} s, {lines[-1:]}"

    def finish(self) -> None:
        """The same command again, to its end."""
        run, log = self._start()
        assert run.wait(240) == 0, log.read_text()

    def close(self) -> None:
        for run in self.runs:
            kill_all(run)

    def _start(self) -> tuple[subprocess.Popen[str], Path]:
        command = "cutover" if settings_back(self.settings) is None else "switch-back"
        log = self.folder / f"{len(self.runs)}.log"
        with log.open("w") as said:
            self.runs.append(self._process(command, said))
        return self.runs[-1], log

    def _process(self, command: str, said: IO[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [PROGRAM, command, str(self.file), "--no-wait"],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            text=True,
            start_new_session=True,
        )

    def _await(self, run: subprocess.Popen[str], log: Path, *what: str) -> None:
        deadline = time.monotonic() + 180
        while not any(one in log.read_text() for one in what) and run.poll() is None:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("pair", PAIRS)
def test_killed_at_random_instants(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    pair: str,
    record_property: Callable[[str, object], None],
) -> None:
    """No write that was told to be committed is lost, and all that stays is what the task's way needs."""
    source, target = (request.getfixturevalue(name) for name in PAIRS[pair])
    seed = int(os.environ.get("TRUECOPY_SEED", random.SystemRandom().randrange(2**32)))
    record_property("seed", seed)
    print(f"TRUECOPY_SEED={seed}")  # noqa: T201 - shown where the test fails, to run it again
    fill(source, 100)
    settings = started(source, target, "shop")
    file, where = tmp_path / "shop.yaml", tmp_path / "where"
    file.write_text(
        f"task: shop\nsource: {source.url}\ntarget: {target.url}\nconsistency: table\n"
        "cutover: {max-lag: 20s, max-downtime: 60s,"
        f" commands: {{switch: 'echo $TRUECOPY_DIRECTION > {where}.new && mv {where}.new {where}'}}}}\n",
        encoding="utf-8",
    )
    with ExitStack() as stack:
        apps = {
            "back": stack.enter_context(application(source)),
            "forth": stack.enter_context(application(target)),
        }
        mover = Mover(apps, where)
        killing = Killing(settings, file, tmp_path, random.Random(f"{seed} {pair}"))
        stack.callback(killing.close)
        with mover.running():
            approach, locked = killing.measure()
            print(f"{approach:.1f} s to the lock, {locked:.2f} s from there")  # noqa: T201
            for number in range(KILLS):
                print(f"kill {number}: {killing.kill(approach, locked)}")  # noqa: T201
            killing.finish()
            written = len(mover.told)
            wait_until(lambda: len(mover.told) > written + 5)
        _check(settings, source, target, mover)


def _check(settings: Settings, source: Database, target: Database, mover: Mover) -> None:
    to, other = mover.side, {"forth": "back", "back": "forth"}[mover.side]
    assert mover.sides[to].can_write()
    assert not mover.sides[other].can_write()
    way = standing(settings)
    now, old = (target, source) if to == "forth" else (source, target)
    assert way.source == now.url
    Transfer(way).run(until_caught_up=True)
    assert dump(source) == dump(target)
    codes = {code for (code,) in now.execute("SELECT code FROM orders")}
    assert set(mover.told) <= codes
    bodies: dict[int, str] = dict(now.execute("SELECT id, body FROM notes WHERE id IN (1, 2)"))
    assert all(int(bodies[number]) >= count for number, count in mover.counts.items())
    for database in (now, old):
        if database.server.scheme == "postgresql":
            assert len(slots(database)) == (1 if database is now else 0)
        else:
            expected = 0 if database is now else 1
            assert database.execute("SELECT @@global.read_only + 0") == [(expected,)]
