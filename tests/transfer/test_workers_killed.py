"""Only the Python workers of a run are killed: the same run goes on to its end, and no row is lost or there twice."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer import test_keyless as keyless
from tests.transfer.killing import kill_workers, phase, wait_until, workers_hit
from tests.transfer.load import fill, writing
from truecopy.transfer.ledger import SNAPSHOT

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Kind:
    """A table, what changes it, and how its rows are read without anything of ours between."""

    make: Callable[[Database, int], None]
    change: Callable[[Database], object]
    rows: Callable[[Database], Any]


def _change_items(database: Database) -> None:
    database.execute(
        "INSERT INTO items (id, code) VALUES (-1, 'new'), (-2, 'newer');"
        "UPDATE items SET price = price + 1 WHERE id % 3 = 0;"
        "DELETE FROM items WHERE id % 5 = 0;"
        "UPDATE items SET id = id + 10000 WHERE id % 7 = 0"
    )


def _change_seen(database: Database) -> None:
    database.executemany("INSERT INTO seen VALUES (%s, 'new')", [(n % 7,) for n in range(200)])


def _items(database: Database) -> list[tuple[Any, ...]]:
    rows = database.execute("SELECT id, code, name, price, note, made FROM items ORDER BY id")
    # PostgreSQL tells the zone, which is that of the machine for both.
    return [(*row, made and made.replace(tzinfo=None)) for *row, made in rows]


KINDS = {
    "with a key": Kind(fill, _change_items, _items),
    "without a key": Kind(keyless.make, _change_seen, keyless.dump),
}


@dataclass(frozen=True)
class Ends:
    source: Database
    target: Database
    kind: Kind

    def is_equal(self) -> bool:
        return bool(self.kind.rows(self.target) == self.kind.rows(self.source))


@pytest.fixture(
    params=[("with a key", "postgres_db"), ("without a key", "second_mariadb_db")], ids=" to ".join
)
def ends(request: pytest.FixtureRequest, mariadb_db: Database) -> Ends:
    kind, target = request.param
    return Ends(mariadb_db, request.getfixturevalue(target), KINDS[kind])


def task(folder: Path, ends: Ends, more: str) -> str:
    file = folder / "move.yaml"
    file.write_text(
        f"task: move\nsource: {ends.source.url}\ntarget: {ends.target.url}\ndelivery: exactly-once\n{more}",
        encoding="utf-8",
    )
    return str(file)


@pytest.mark.long
@pytest.mark.parametrize("moment", ["copy", "replication"])
def test_a_worker_that_is_killed_inside_its_transaction(
    ends: Ends, tmp_path: Path, moment: str
) -> None:
    ends.kind.make(ends.source, 1000)
    file = task(tmp_path, ends, "chunks: {rows: 200}\n")
    if moment == "replication":
        assert program("run", file, "--until-caught-up").code == 0
        ends.kind.change(ends.source)
        assert not ends.is_equal()
    at = "note_copied" if moment == "copy" else "advance"
    with workers_hit(tmp_path / "hook", signal.SIGKILL, at) as hit:
        ended = program("run", file, "--until-caught-up")
    assert hit.exists()
    assert ended.code == 0, ended.err
    assert ends.is_equal()


# One without a key is copied in one piece, the middle of which nobody sees from outside.
@pytest.mark.slow
@pytest.mark.parametrize("ends", [("with a key", "postgres_db")], ids=" to ".join, indirect=True)
def test_all_workers_that_are_killed_at_random_instants_of_the_copy(
    ends: Ends, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    record_property("seed", seed)
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    dice, killed = random.Random(seed), 0
    ends.kind.make(ends.source, 3000)
    more = "throttle: {rate: 120}\nchunks: {rows: 150}\n"
    run = start("run", task(tmp_path, ends, more), "--until-caught-up")
    with writing(ends.source, 3000, seed % 1000):
        wait_until(lambda: phase(ends.target) == SNAPSHOT, run)
        for _ in range(3):
            time.sleep(dice.uniform(0, 3))
            killed += kill_workers(run)
    assert killed
    assert phase(ends.target) == SNAPSHOT, "what was written is before the end that it goes to"
    _, said = run.communicate(timeout=240)
    assert run.returncode == 0, said
    assert ends.is_equal()
