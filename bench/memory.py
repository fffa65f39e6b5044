"""The peak memory of a verification: its driver, the driver's JVM and the Python workers.

Run as a program it is a fresh driver that verifies once and prints its peak, so that one size of
table leaves nothing behind in the memory of the next.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

import truecopy
from bench.tables import Pair
from truecopy import spark

SAMPLE_SECONDS = 0.05


def peak_of_fresh_driver(pair: Pair, warm_up: Pair) -> int:
    """The peak in bytes of verifying a pair of equal tables, after `warm_up` was verified."""
    job = {
        "source": pair.source.url,
        "target": pair.target.url,
        "tables": [warm_up.choice, pair.choice],
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory"],
        input=json.dumps(job),
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout)


class PeakMemory:
    """Samples the memory of this process and of all below it from `with` to the end of the block.

    Memory that several of them share counts once (PSS).
    """

    def __init__(self) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        here = psutil.Process()
        while not self._over.is_set():
            processes = [here, *here.children(recursive=True)]
            self.peak = max(self.peak, sum(_pss(process.pid) for process in processes))
            self._over.wait(SAMPLE_SECONDS)


def _pss(pid: int) -> int:
    """Proportional set size in bytes; 0 for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("Pss:"))
    return int(kilobytes) * 1024


def _main() -> None:
    job = json.load(sys.stdin)
    session = spark.session()
    warm_up, table = job["tables"]
    truecopy.verify(job["source"], job["target"], tables=(warm_up,), spark=session)
    with PeakMemory() as memory:
        truecopy.verify(job["source"], job["target"], tables=(table,), spark=session)
    print(memory.peak)


if __name__ == "__main__":
    _main()
