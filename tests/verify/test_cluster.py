"""On a real standalone cluster, with nothing installed on the workers; and with a worker killed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark
import pytest

import truecopy
from tests.program import truecopy as program
from tests.servers import Database
from tests.verify.rows import fill
from truecopy.verify.compare import ChunkResult
from truecopy.verify.matching import Comparison
from truecopy.verify.verification import Silence


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One master and two workers, whose Python has none of this project's packages."""
    folder = tmp_path_factory.mktemp("cluster")
    home = Path(pyspark.__file__).parent
    bare = Path(sys.base_prefix) / "bin"
    assert (bare / "python3.11").exists()
    environment = {
        "PATH": f"{bare}:/usr/bin:/bin",
        "HOME": str(folder),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
    }
    if "JAVA_HOME" in os.environ:
        environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
    port = free_port()
    processes: list[subprocess.Popen[bytes]] = []

    def launch(*arguments: str) -> None:
        with (folder / f"{len(processes)}.log").open("wb") as log:
            command = [str(home / "bin" / "spark-class"), *arguments]
            processes.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
            )

    master = f"spark://127.0.0.1:{port}"
    launch(
        "org.apache.spark.deploy.master.Master",
        *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())),
    )
    for number in range(2):
        work = folder / f"work{number}"
        launch(
            "org.apache.spark.deploy.worker.Worker",
            *("--cores", "1", "--memory", "1g", "--host", "127.0.0.1"),
            *("--webui-port", str(free_port()), "--work-dir", str(work), master),
        )
    try:
        _wait_for_workers(folder / "0.log", 2)
        yield master
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def _wait_for_workers(log: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while log.read_text(errors="replace").count("Registering worker") < count:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


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
