"""Runs what most tests run, in one session, so that its JVM can write down which classes that takes.

`make test` starts some hundred JVMs, and each would spend most of its first seconds on reading and
checking the classes of Spark. A JVM that ends writes them into the file that
`SPARK_SUBMIT_OPTS=-XX:ArchiveClassesAtExit=FILE` names; those that start with
`-XX:SharedArchiveFile=FILE` map it into memory.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark import SparkContext

from truecopy.cli.main import app
from truecopy.spark import session

_TASK = """\
task: classes
source: sqlite:///{folder}/shop.db
target: sqlite:///{folder}/moved.db
"""


def main() -> None:
    """Verifies, copies and replicates a small shop, and waits until the JVM has ended."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRUECOPY_STATE"] = f"{folder}/state"
        task = Path(folder) / "task.yaml"
        task.write_text(_TASK.format(folder=folder), encoding="utf-8")
        (Path(folder) / "moved.db").touch()
        app(["demo", "--folder", folder], standalone_mode=False)
        app(["run", str(task), "--until-caught-up"], standalone_mode=False)
        gateway = SparkContext._gateway
        assert gateway is not None
        session().stop()
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    main()
