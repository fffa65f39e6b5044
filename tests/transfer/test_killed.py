"""SIGKILL at random instants of copy, replay and replication: the same command goes on, and nothing is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import truecopy
from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database, MariaDB
from tests.transfer.killing import kill_all
from tests.transfer.load import fill, writing

DURABLE = "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"
"""Other servers may forget commits that their logs have, when they are killed."""
TASK = """task: move
source: {source}
target: {target}
chunks: {{rows: 500}}
delivery: exactly-once
"""


def is_equal(source: Database, target: Database) -> bool:
    return truecopy.verify(source.url, target.url, tables=("items",)).verdict == "equal"


def dump(database: Database) -> list[tuple[Any, ...]]:
    """Without anything of ours between."""
    return database.execute(
        "SELECT HEX(CONCAT_WS('|', id, code, name, price, made, note)) FROM items ORDER BY id"
    )


def kill(run: subprocess.Popen[str], dice: random.Random) -> None:
    """The driver with all that it started, or only its Python workers, which Spark starts again."""
    family = psutil.Process(run.pid).children(recursive=True) if run.poll() is None else []
    workers = [one for one in family if _is_worker(one)]
    if workers and dice.random() < 0.3:
        for worker in workers:
            worker.kill()
        time.sleep(dice.uniform(0.5, 4))
    kill_all(run)


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "pyspark.daemon" in " ".join(process.cmdline())
    except psutil.Error:  # gone, or about to be
        return False


def killed(
    source: Database, target: Database, tmp_path: Path, times: int, dice: random.Random
) -> None:
    file = tmp_path / "move.yaml"
    file.write_text(TASK.format(source=source.url, target=target.url), encoding="utf-8")
    with writing(source, 5000, seed=dice.randrange(1000)):
        for _ in range(times):
            run = start("run", str(file))
            time.sleep(dice.uniform(3, 14))
            assert run.poll() is None, run.communicate()
            kill(run, dice)
    ended = program("run", str(file), "--until-caught-up")
    assert ended.code == 0, ended.err
    assert dump(source) == dump(target)
    assert is_equal(source, target)


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, 30])
@pytest.mark.timeout(1800)
def test_killed(
    mariadb_db: Database,
    second_mariadb_db: Database,
    tmp_path: Path,
    times: int,
    record_property: Callable[[str, object], None],
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    record_property("seed", seed)
    fill(mariadb_db, 5000)
    killed(mariadb_db, second_mariadb_db, tmp_path, times, random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("end", ["source", "target"])
def test_a_server_that_is_killed_and_comes_back(tmp_path: Path, end: str) -> None:
    one, other = MariaDB(*DURABLE), MariaDB(*DURABLE)
    with one as here, other as there:
        source, target = here.create_database("shop"), there.create_database("shop")
        fill(source, 2000)
        file = tmp_path / "move.yaml"
        file.write_text(TASK.format(source=source.url, target=target.url), encoding="utf-8")
        run = start("run", str(file))
        time.sleep(20)
        source.execute("UPDATE items SET price = price + 1 WHERE id % 3 = 0")
        (one if end == "source" else other).restart(signal.SIGKILL)
        source.execute("DELETE FROM items WHERE id % 5 = 0")
        time.sleep(10)
        kill_all(run)
        ended = program("run", str(file), "--until-caught-up")
        assert ended.code == 0, ended.err
        assert dump(source) == dump(target)
