"""A state folder, and so a metastore, of each test's own; nothing that a test kept running is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from truecopy.metastore import database
from truecopy.metastore.leases import Leases
from truecopy.metastore.task_runs import TaskRuns
from truecopy.tasks import keeper
from truecopy.tasks.processes import ProcessId


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "state"
    monkeypatch.setenv("TRUECOPY_STATE", str(folder))
    monkeypatch.delenv("TRUECOPY_METASTORE", raising=False)
    yield folder
    if (folder / database.FILE).exists():
        _end_all()
        database.open_metastore().dispose()
    database._opened.cache_clear()


def _end_all() -> None:
    """Keepers first, so that they start nothing again."""
    for starting in keeper._outliving:  # one that has just begun holds no lease so far
        if starting.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(starting.pid, signal.SIGKILL)
            starting.wait()
    for lease in Leases().lines().values():
        if holder := ProcessId.parse(lease.holder):
            holder.kill_session()
    for run in TaskRuns().open():
        process = ProcessId(run.host, run.pid, run.process_began)
        if process.is_alive:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
