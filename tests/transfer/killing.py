"""Runs of the program that end by SIGKILL: at any instant, or right after a certain step."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
import pymysql
import pytest

from tests.servers import Database
from truecopy.metastore.known_progress import Known, KnownProgress

# Runs the program, and kills it when a function, named as module:path, has done its work.
_KILLED = """
import importlib, os, signal, sys
from truecopy.cli.main import main

module, _, path = sys.argv.pop(1).partition(":")
owner = importlib.import_module(module)
*owners, name = path.split(".")
for one in owners:
    owner = getattr(owner, one)
done = getattr(owner, name)

def and_die(*arguments, **named):
    done(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, name, and_die)
main()
"""

# Runs at the start of each Python process; only workers of Spark are meant, which are forked from its daemon.
_HIT = """
import os, sys

if sys.orig_argv[-2:] == ["pyspark.daemon", "pyspark.worker"]:
    from truecopy.transfer.ledger import Ledger

    entered = Ledger.{at}

    def be_hit(*arguments, **named):
        try:
            file = os.open({hit!r}, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return entered(*arguments, **named)
        os.write(file, str(os.getpid()).encode())
        os.kill(os.getpid(), {by})
        return entered(*arguments, **named)

    Ledger.{at} = be_hit
"""


def started_to_die(after: str, *arguments: str) -> subprocess.Popen[str]:
    """The program, which kills itself after a function such as `truecopy.transfer.ledger:Ledger.claim`."""
    return subprocess.Popen(
        [sys.executable, "-c", _KILLED, after, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def await_death(run: subprocess.Popen[str], seconds: float = 180) -> None:
    """Waits until it has killed itself, and ends what it leaves behind."""
    try:
        _, said = run.communicate(timeout=seconds)
    finally:
        kill_all(run)
    assert run.returncode == -signal.SIGKILL, said


def kill_all(run: subprocess.Popen[str]) -> None:
    """The driver with all that it started."""
    try:
        os.killpg(run.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    run.communicate()


def kill(run: subprocess.Popen[str], dice: random.Random) -> None:
    """The driver with all that it started, or before that only its Python workers, which Spark starts again."""
    if dice.random() < 0.3 and kill_workers(run):
        time.sleep(dice.uniform(0.5, 4))
    kill_all(run)


def kill_workers(run: subprocess.Popen[str]) -> int:
    """Only its Python workers, with the daemon that forks them; says how many there were."""
    family = psutil.Process(run.pid).children(recursive=True) if run.poll() is None else []
    workers = [one for one in family if _is_worker(one)]
    for worker in workers:
        with suppress(psutil.NoSuchProcess):  # it has ended by itself, or with its daemon
            worker.kill()
    return len(workers)


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "pyspark.daemon" in " ".join(process.cmdline())
    except psutil.Error:  # gone, or about to be
        return False


@contextmanager
def workers_hit(folder: Path, by: signal.Signals, at: str) -> Iterator[Path]:
    """Programs that are started in the block: the first worker that enters a method of the ledger is hit there.

    Gives the file that has the worker's number, as soon as it was.
    """
    folder.mkdir()
    hit = folder / "hit"
    (folder / "sitecustomize.py").write_text(
        _HIT.format(hit=str(hit), by=int(by), at=at), encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield hit


def wait_until(
    condition: Callable[[], bool], run: subprocess.Popen[str], seconds: float = 240
) -> None:
    """Waits for what a running program does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


def put_back(task: str, target: Database, before: Mapping[str, str], known: Known) -> None:
    """As if a run had been killed before some parts committed: they stand as `before`, and nobody noted more."""
    notes = KnownProgress(task)
    ended = notes.find()
    assert ended is not None
    notes.begin(replace(ended, applied=known.applied))
    target.executemany(
        "UPDATE truecopy_progress SET position = %s WHERE part = %s",
        [(position, part) for part, position in before.items()],
    )


def phase(target: Database) -> str:
    """The phase of the task once it has copied something; empty before."""
    try:
        copied = target.execute("SELECT 1 FROM truecopy_chunk WHERE copied IS NOT NULL LIMIT 1")
        found = target.execute("SELECT phase FROM truecopy_task") if copied else []
    except (pymysql.Error, psycopg.Error):
        return ""  # its tables are not there yet
    return str(found[0][0]) if found else ""
