"""A real Spark cluster: one master and two workers, whose Python has none of this project's packages."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """The master's URL."""
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
