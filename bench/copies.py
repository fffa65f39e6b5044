"""Copies of a database, ours and a rival's, each into a target without tables; the seconds that they took.

Run as a program it is a fresh driver that copies two databases and prints the peak memory of the second copy, so
that one size of table leaves nothing behind in the memory of the next.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.bare import without_verification
from bench.memory import PeakMemory
from tests.servers import Database, PostgreSQLServer, Server
from truecopy import spark
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings


def settings_of(source: Database, target: Database) -> Settings:
    return Settings("bench", source.url, target.url)


def copy(source: Database, target: Database) -> float:
    """Rows with inline verification, changes made meanwhile, indexes: all of `truecopy run --until-caught-up`."""
    begun = time.monotonic()
    _run(settings_of(source, target))
    return time.monotonic() - begun


def copy_unverified(source: Database, target: Database) -> float:
    """The same without fingerprints on the source and without digests on the target."""
    with without_verification():
        return copy(source, target)


def dump_and_load(source: Database, target: Database) -> float:
    """`mariadb-dump | mariadb`, which verifies nothing."""
    begun = time.monotonic()
    with (
        _login(source.server) as here,
        _login(target.server) as there,
        subprocess.Popen(
            ["mariadb-dump", f"--defaults-file={here.name}", "--single-transaction", source.name],
            stdout=subprocess.PIPE,
        ) as dump,
    ):
        loading = [f"--defaults-file={there.name}", target.name]
        subprocess.run(["mariadb", *loading], stdin=dump.stdout, check=True)
    if dump.returncode != 0:
        raise RuntimeError("mariadb-dump failed")
    return time.monotonic() - begun


def empty(target: Database) -> None:
    """Drops all tables, the ledger included; the connections that are open to the database stay good."""
    if isinstance(target.server, PostgreSQLServer):
        target.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        return
    names = [f"`{name}`" for (name,) in target.execute("SHOW TABLES")]
    if names:
        target.execute(f"DROP TABLE {', '.join(names)}")
    target.execute("FLUSH BINARY LOGS; PURGE BINARY LOGS BEFORE NOW()")


def peak_of_fresh_driver(sources: Sequence[Database], target: Database) -> int:
    """The peak in bytes of copying the second source, after the first was copied."""
    peaks = ""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.copies"],
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        for source in sources:
            empty(target)
            driver.stdin.write(json.dumps([source.url, target.url]) + "\n")
            driver.stdin.flush()
            peaks = driver.stdout.readline()
        driver.stdin.close()
    empty(target)
    return int(peaks)


def _run(settings: Settings) -> None:
    report = Transfer(settings).run(until_caught_up=True)
    if report.state != "replicate":
        raise RuntimeError(f"a copy ended in the state {report.state}")


def _login(server: Server) -> tempfile._TemporaryFileWrapper[str]:
    """An option file, since command lines can be seen by all."""
    file = tempfile.NamedTemporaryFile("w", suffix=".cnf")  # noqa: SIM115 - its user closes it
    file.write(
        f"[client]\nhost={server.host}\nport={server.port}\nuser={server.user}\npassword={server.password}\n"
        "protocol=tcp\ndefault-character-set=utf8mb4\n"
    )
    file.flush()
    return file


def _main() -> None:
    spark.session()
    for line in sys.stdin:
        source, target = json.loads(line)
        with PeakMemory() as memory:
            _run(Settings("bench", source, target))
        print(memory.peak, flush=True)


if __name__ == "__main__":
    _main()
