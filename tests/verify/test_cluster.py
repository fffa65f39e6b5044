"""On a real standalone cluster, with nothing installed on the workers; and with a worker killed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import truecopy
from tests.program import truecopy as program
from tests.servers import Database
from tests.verify.rows import fill
from truecopy.verify.compare import ChunkResult
from truecopy.verify.matching import Comparison
from truecopy.verify.verification import Silence


@pytest.mark.long
@pytest.mark.cluster
def test_same_report_on_a_cluster(
    cluster: str, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    for database in (mariadb_db, second_mariadb_db):
        fill(database, 60_000)
    second_mariadb_db.execute("UPDATE items SET c = CONCAT(c, ' ') WHERE id IN (77, 30000, 59999)")
    second_mariadb_db.execute("DELETE FROM items WHERE id = 45678")
    command = ["verify", mariadb_db.url, second_mariadb_db.url, "--json", "--chunk-rows", "5000"]
    here = program(*command, "--master", "local[2]")
    there = program(*command, "--master", cluster, "--fresh", seconds=400)
    assert (here.code, there.code) == (1, 1), there.err
    documents = [json.loads(ended.out) for ended in (here, there)]
    for document in documents:
        del document["seconds"], document["certificate"]
    assert documents[0] == documents[1]


@pytest.mark.cluster
def test_files_of_this_machine_are_refused_on_a_cluster(tmp_path: Path) -> None:
    import sqlite3

    for name in ("a.db", "b.db"):
        with sqlite3.connect(tmp_path / name) as connection:
            connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    ends = [f"sqlite:///{tmp_path / name}" for name in ("a.db", "b.db")]
    ended = program("verify", *ends, "--master", "spark://127.0.0.1:1")
    assert ended.code == 2
    assert "file of this machine" in ended.err
    assert len(ended.err.splitlines()) == 1


class _Killer(Silence):
    """Kills a Python worker of Spark as soon as some chunks were compared."""

    def __init__(self) -> None:
        self.killed: list[int] = []
        self.seen = 0

    def advanced(self, comparison: Comparison, result: ChunkResult) -> None:  # noqa: ARG002
        self.seen += 1
        if self.seen in (3, 20):
            self._kill_one()

    def planned(self, comparisons: Sequence[Comparison], chunks: int, rows: int, done: int) -> None:
        """Nothing."""

    def _kill_one(self) -> None:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it may end while it is looked at
                parent = process.parent()
                pair = [p for p in (process, parent) if p and "pyspark.daemon" in p.cmdline()]
                if len(pair) == 2:  # a worker, not the daemon that forks them
                    process.kill()
                    self.killed.append(process.pid)
                    return


@pytest.mark.long
def test_killed_worker_does_not_fail_the_run(
    spark: object,
    mariadb_db: Database,
    second_mariadb_db: Database,
) -> None:
    for database in (mariadb_db, second_mariadb_db):
        fill(database, 100_000)
    second_mariadb_db.execute("UPDATE items SET k = k + 1 WHERE id = 99999")
    killer = _Killer()
    report = truecopy.verify(
        mariadb_db.url, second_mariadb_db.url, chunk_rows=2_000, master="local[2]", listener=killer
    )
    assert killer.killed
    assert report.tables[0].rows_compared == 100_000
    assert report.tables[0].differing == 1
    assert report.tables[0].complete
