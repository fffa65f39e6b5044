"""Processes of this machine: told apart for ever, found again by whoever comes after, and ended."""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class ProcessId:
    """A process: a pid is used again, on one machine a pid with its time of beginning is not."""

    machine: str
    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        return cls(this_machine(), pid, _began(pid) or "")

    @classmethod
    def parse(cls, text: str) -> ProcessId | None:
        machine, _, rest = text.partition("|")
        pid, _, began = rest.partition("|")
        return cls(machine, int(pid), began) if pid.isdecimal() and began else None

    def __str__(self) -> str:
        return f"{self.machine}|{self.pid}|{self.began}"

    @property
    def is_here(self) -> bool:
        """Whether it would be found here, if it were alive."""
        return self.machine == this_machine()

    @property
    def is_alive(self) -> bool:
        return self.is_here and bool(self.began) and _began(self.pid) == self.began

    def signal(self, number: int) -> None:
        """To the process alone; the others of its session follow it."""
        if self.is_alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def kill_session(self) -> None:
        """To it, as the leader of its session, and all that it has started there."""
        if self.is_alive:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def end(self, seconds: float) -> None:
        """Asks it to end, waits, and makes it end."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while self.is_alive and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        self.kill_session()


@cache
def this_machine() -> str:
    """This machine by name, and what tells it from another one of that name: its boot, and where pids are counted."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(_BOOT.read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return f"{parts[0]}/{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:8]}"


def ends_with_parent() -> None:
    """In a new process: ask the system for a SIGTERM when the one that started it is gone (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _began(pid: int) -> str | None:
    """When a process began, in the system's own words; None where it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return _began_elsewhere(pid) if not Path("/proc/self").exists() else None
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]


def _began_elsewhere(pid: int) -> str | None:
    """The same where there is no /proc."""
    found = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, errors="replace", check=False
    )
    return found.stdout.strip()[:40] or None
