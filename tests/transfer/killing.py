"""Runs of the program that end by SIGKILL: at any instant, or right after a certain step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

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


def wait_until(
    condition: Callable[[], bool], run: subprocess.Popen[str], seconds: float = 240
) -> None:
    """Waits for what a running program does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)
