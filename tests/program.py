"""The program as a user runs it: a process with arguments, output and an exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = str(Path(sys.executable).with_name("truecopy"))
_started: list[subprocess.Popen[str]] = []


@dataclass(frozen=True)
class Ended:
    """What a run left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document on standard output."""
        found: dict[str, Any] = json.loads(self.out)
        return found


def truecopy(*arguments: str, seconds: float = 180) -> Ended:
    """Runs `truecopy` to its end."""
    done = subprocess.run(
        [PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def start(*arguments: str) -> subprocess.Popen[str]:
    """Starts `truecopy` and does not wait."""
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    _started.append(process)
    return process


def end_started() -> None:
    """Kills what a test that failed has left running: it would be in the way of the tests after it."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            pass
