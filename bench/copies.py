"""Copies of a database, ours and a rival's, each into a target without tables.

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
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from bench.memory import PeakMemory
from bench.timing import side_by_side
from tests.servers import Database, PostgreSQLServer, Server
from truecopy import spark
from truecopy.engines import connect
from truecopy.engines.protocols import DatabaseSession
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.relation import WHOLE
from truecopy.transfer.run import RunReport, Transfer
from truecopy.transfer.settings import Settings
from truecopy.verify.chunks import chunks_between
from truecopy.verify.matching import match_tables
from truecopy.verify.options import Options

CHUNK_ROWS = 20_000


@dataclass(frozen=True)
class Copy:
    """A copy that was made: how long it took, and the share of it that verification had (ours)."""

    seconds: float
    verify_share: float = 0.0


def settings_of(source: Database, target: Database) -> Settings:
    return Settings("bench", source.url, target.url)


def copy(source: Database, target: Database) -> Copy:
    """Rows with inline verification, changes made meanwhile, indexes: all of `truecopy run --until-caught-up`."""
    begun = time.monotonic()
    report = _run(settings_of(source, target))
    return Copy(time.monotonic() - begun, report.verify_share)


def dump_and_load(source: Database, target: Database) -> Copy:
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
    return Copy(time.monotonic() - begun)


def fingerprint_seconds(source: Database, table: str) -> float:
    """What the fingerprints cost that the source computes while it is read, on one connection."""
    endpoint = parse_endpoint(source.url)
    with connect(endpoint) as session:
        reads = cast(DatabaseSession, session)
        found = reads.find(table)
        assert found is not None
        described = reads.describe(found)
        relation = match_tables(endpoint, (described,), endpoint, described, Options()).source
        chunks = chunks_between(reads.boundaries(relation, WHOLE, CHUNK_ROWS))

        def read_with() -> None:
            for chunk in chunks:
                reads.fingerprinted_rows(relation, chunk)

        def read_without() -> None:
            for chunk in chunks:
                reads.rows(relation, chunk)

        times = side_by_side({"with": read_with, "without": read_without})
    return times["with"] - times["without"]


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


def _run(settings: Settings) -> RunReport:
    report = Transfer(settings).run(until_caught_up=True)
    if report.state != "replicate":
        raise RuntimeError(f"a copy ended in the state {report.state}")
    return report


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
