"""SIGKILL at random instants of copy, replay and replication: the same command goes on, and nothing is lost."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pymysql
import pytest

import truecopy
from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database, MariaDB, PostgreSQL
from tests.transfer.killing import kill, kill_all, phase, wait_until
from tests.transfer.load import fill, writing
from truecopy.transfer.ledger import REPLAY, REPLICATE, SNAPSHOT

DURABLE: Mapping[type, tuple[str, ...]] = {
    MariaDB: ("--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"),
    PostgreSQL: ("--fsync=on", "--full_page_writes=on", "--synchronous_commit=on"),
}
"""Other servers may forget commits that their logs have, when they are killed."""
KILL: Mapping[type, signal.Signals] = {MariaDB: signal.SIGKILL, PostgreSQL: signal.SIGQUIT}
"""PostgreSQL is many processes: those that its first one leaves behind keep a new one from starting."""
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


def killed(
    source: Database, target: Database, tmp_path: Path, times: int, dice: random.Random
) -> Counter[str]:
    """How often a run was killed in each phase: a third of the kills aim at the copy, and a third at the replay."""
    file, phases = tmp_path / "move.yaml", Counter[str]()
    text = TASK.replace("500", "150").format(source=source.url, target=target.url)
    with writing(source, 5000, seed=dice.randrange(1000)):
        for number in range(times):
            aim = (SNAPSHOT, REPLAY, REPLICATE)[3 * number // times]
            slow = "throttle: {rate: 150}\n" if aim == SNAPSHOT else ""
            file.write_text(text + slow, encoding="utf-8")
            before = copied(target)
            run = start("run", str(file))
            later = (REPLAY, REPLICATE) if aim == SNAPSHOT else (aim, REPLICATE)
            wait_until(
                lambda: (
                    phase(target) in later  # noqa: B023 - waited for here
                    or (aim == SNAPSHOT and copied(target) > before)  # noqa: B023 - likewise
                ),
                run,
            )
            # Where it is there from the beginning, the run itself has to come to it.
            time.sleep(dice.uniform(0, 3 if aim == SNAPSHOT else 12))
            assert run.poll() is None, run.communicate()
            phases[phase(target)] += 1
            kill(run, dice)
    file.write_text(text, encoding="utf-8")
    ended = program("run", str(file), "--until-caught-up")
    assert ended.code == 0, ended.err
    assert dump(source) == dump(target)
    assert is_equal(source, target)
    return phases


def copied(target: Database) -> int:
    """Chunks that are in."""
    try:
        return len(target.execute("SELECT 1 FROM truecopy_chunk WHERE copied IS NOT NULL"))
    except pymysql.Error:
        return 0  # its tables are not there yet


@pytest.mark.slow
@pytest.mark.parametrize("times", [6, 30])
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
    phases = killed(mariadb_db, second_mariadb_db, tmp_path, times, random.Random(seed))
    record_property("phases", dict(phases))
    assert phases.keys() >= {SNAPSHOT, REPLAY, REPLICATE}, phases


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", ["copy", "replication"])
@pytest.mark.parametrize("end", ["source", "target"])
@pytest.mark.parametrize("kind", [MariaDB, PostgreSQL])
def test_a_server_that_is_killed_and_comes_back(
    tmp_path: Path, kind: type[MariaDB | PostgreSQL], end: str, moment: str
) -> None:
    options = DURABLE[kind]
    one, other = kind(*options), kind(*options)
    with one as here, other as there:
        source, target = here.create_database("shop"), there.create_database("shop")
        fill(source, 2000)
        file = tmp_path / "move.yaml"
        pace = "throttle: {rate: 200}\n" if moment == "copy" else ""
        file.write_text(TASK.format(source=source.url, target=target.url) + pace, encoding="utf-8")
        run = start("run", str(file))
        wait_until(lambda: phase(target) == ("snapshot" if pace else "replicate"), run)
        source.execute("UPDATE items SET price = price + 1 WHERE id % 3 = 0")
        hit = one if end == "source" else other
        hit.restart(KILL[kind])
        source.execute("DELETE FROM items WHERE id % 5 = 0")
        time.sleep(10)
        kill_all(run)
        ended = program("run", str(file), "--until-caught-up")
        assert ended.code == 0, ended.err
        assert is_equal(source, target)
        query = "SELECT id, code, name, price, made, note FROM items ORDER BY id"
        assert source.execute(query) == target.execute(query)
