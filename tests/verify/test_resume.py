"""SIGKILL at any instant: the same command goes on, ends in the same report, and repeats nothing."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import truecopy
from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.verify.rows import fill

ROWS, CHUNK = 300_000, 3_000


def done_chunks(checkpoint: Path) -> set[int]:
    if not checkpoint.exists():
        return set()
    with sqlite3.connect(f"file:{checkpoint}?mode=ro", uri=True) as connection:
        try:
            return {number for (number,) in connection.execute("SELECT number FROM chunk")}
        except sqlite3.OperationalError:
            return set()


def planned_chunks(checkpoint: Path) -> dict[int, int]:
    """The number of each chunk, by the key at which it starts."""
    with sqlite3.connect(f"file:{checkpoint}?mode=ro", uri=True) as connection:
        (plan,) = connection.execute("SELECT plan FROM run").fetchone()
    ((_, chunks),) = json.loads(plan)[1]
    return {int(low[0]) if low else 0: number for number, (low, _) in enumerate(chunks)}


def asked_chunks(source: Database, checkpoint: Path) -> set[int]:
    """The chunks of which the source computed a digest since the log was emptied."""
    rows = source.execute(
        "SELECT argument FROM mysql.general_log WHERE argument LIKE 'SELECT COUNT(*), SUM(CAST(CONV(%'"
    )
    lows = [re.search(r"`id` >= (\d+)", argument) for (argument,) in rows]
    numbers = planned_chunks(checkpoint) if rows else {}
    return {numbers[int(low[1]) if low else 0] for low in lows}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_five_times(
    mariadb_db: Database,
    second_mariadb_db: Database,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    for database in (mariadb_db, second_mariadb_db):
        fill(database, ROWS)
    second_mariadb_db.execute("UPDATE items SET k = k + 1 WHERE id % 30011 = 5")
    second_mariadb_db.execute("DELETE FROM items WHERE id IN (1, 150000)")
    expected = truecopy.verify(
        mariadb_db.url, second_mariadb_db.url, chunk_rows=CHUNK, master="local[2]"
    )
    assert expected.verdict == "different"
    checkpoint = tmp_path / "run.db"
    command = ["verify", mariadb_db.url, second_mariadb_db.url, "--json", "--master", "local[2]"]
    command += ["--chunk-rows", str(CHUNK), "--checkpoint", str(checkpoint)]
    dice = random.Random()
    seed = dice.randrange(2**32)
    record_property("seed", seed)
    dice.seed(seed)
    mariadb_db.execute("SET GLOBAL log_output = 'TABLE', GLOBAL general_log = 1")
    try:
        for _ in range(5):
            before = done_chunks(checkpoint)
            mariadb_db.execute("TRUNCATE mysql.general_log")
            run = start(*command)
            # Never so many that a run may end before it is killed: the next one would start anew.
            enough = min(len(before) + dice.randrange(0, 25), ROWS // CHUNK - 20)
            while len(done_chunks(checkpoint)) < enough and run.poll() is None:
                time.sleep(0.02)
            time.sleep(dice.random() * 0.3)
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
            assert not asked_chunks(mariadb_db, checkpoint) & before
            assert done_chunks(checkpoint) >= before
        before = done_chunks(checkpoint)
        assert before, "the kills came too early to show anything"
        mariadb_db.execute("TRUNCATE mysql.general_log")
        last = program(*command)
        assert not asked_chunks(mariadb_db, checkpoint) & before
    finally:
        mariadb_db.execute("SET GLOBAL general_log = 0")
    assert last.code == 1, last.err
    found, wanted = last.document, expected.to_dict()
    for document in (found, wanted):
        del document["seconds"], document["certificate"], document["resumed_chunks"]
    assert found == wanted


def test_checkpoint_of_other_settings_is_refused(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    for database in (mariadb_db, second_mariadb_db):
        fill(database, 20_000)
    checkpoint = tmp_path / "run.db"
    stopped = truecopy.verify(
        mariadb_db.url,
        second_mariadb_db.url,
        chunk_rows=500,
        max_time=0.0001,
        checkpoint=checkpoint,
    )
    assert not stopped.tables[0].complete
    assert stopped.verdict == "not_compared"
    assert stopped.exit_code == 3
    assert stopped.record is not None
    stopped.record.close()
    command = ["verify", mariadb_db.url, second_mariadb_db.url, "--checkpoint", str(checkpoint)]
    other = program(*command, "--chunk-rows", "500", "--ignore-column", "k")
    assert other.code == 2
    assert "other settings" in other.err
    same = program(*command, "--chunk-rows", "500")
    assert same.code == 0, same.err


def test_checkpoint_in_use_is_refused(tmp_path: Path) -> None:
    from truecopy.metastore.runs import RunRecord
    from truecopy.model.errors import CannotFinish

    first = RunRecord(tmp_path / "run.db")
    with pytest.raises(CannotFinish, match="another run"):
        RunRecord(tmp_path / "run.db")
    first.close()
    RunRecord(tmp_path / "run.db").close()


def test_file_that_is_no_checkpoint(tmp_path: Path) -> None:
    from truecopy.metastore.runs import RunRecord
    from truecopy.model.errors import UsageError

    file = tmp_path / "notes.txt"
    file.write_text("not a database, but long enough to look like one " * 100)
    with pytest.raises(UsageError, match="not a checkpoint"):
        RunRecord(file)
