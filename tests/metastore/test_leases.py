"""Leases: one holder at a time, and no write by one that was held up for too long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from truecopy.metastore.leases import LeaseLost, Leases
from truecopy.metastore.tasks import TaskLine, Tasks, say_state

_WORKER = """
import os, signal, sys
from sqlalchemy.exc import SQLAlchemyError
from truecopy.metastore import leases as module
from truecopy.metastore.leases import Leases, LeaseLost
from truecopy.metastore.tasks import Tasks, say_state
url, where = sys.argv[1:]
module.IDLE_SECONDS = 1
leases, line = Leases(url), Tasks(url).find("shop")

def pause():
    print("paused", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

lease = leases.take("task:shop", "the first", 1.0)
with leases.fenced(lease) as connection:
    say_state(connection, line, "running", "by the first")
if where == "between":
    pause()
try:
    with leases.fenced(lease) as connection:
        say_state(connection, line, "running", "by the first, too late")
        if where == "inside":
            pause()
except (LeaseLost, SQLAlchemyError) as error:
    print(type(error).__name__, flush=True)
"""


def _replace_while_paused(url: str, where: str) -> str:
    """Has a process pause itself, gives its lease to another, and lets it go on; what it says then."""
    tasks, leases = Tasks(url), Leases(url)
    line = tasks.add(TaskLine("shop", "task", "task: shop"))
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, url, where],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "paused\n"
        while (second := leases.take("task:shop", "the second", 30.0)) is None:
            time.sleep(0.1)
        assert second.epoch == 2
        with leases.fenced(second) as connection:
            say_state(connection, line, "running", "by the second")
        os.kill(worker.pid, signal.SIGCONT)
        said, _ = worker.communicate(timeout=180)
    finally:
        worker.kill()
        worker.wait()
    found = tasks.find("shop")
    assert found is not None
    assert found.message == "by the second"
    return said


def test_a_process_that_was_paused_past_its_lease_writes_nothing(metastore_url: str) -> None:
    assert _replace_while_paused(metastore_url, "between") == "LeaseLost\n"


def test_a_process_that_is_paused_while_it_writes_keeps_nobody_from_the_lease(
    metastore_url: str,
) -> None:
    if metastore_url.startswith("sqlite"):
        pytest.skip("a file waits for the process that has locked it")
    assert _replace_while_paused(metastore_url, "inside").endswith("Error\n")


def test_one_of_many_takes_it(metastore_url: str) -> None:
    leases = Leases(metastore_url)
    with ThreadPoolExecutor(8) as threads:
        for round_ in range(5):
            taken = list(
                threads.map(
                    lambda who, name=f"t{round_}": leases.take(name, str(who), 30.0), range(8)
                )
            )
            assert sum(lease is not None for lease in taken) == 1


def test_what_ran_out_is_refused_though_nobody_took_it(metastore_url: str) -> None:
    leases = Leases(metastore_url)
    lease = leases.take("shop", "me", 0.05)
    assert lease is not None
    time.sleep(0.2)
    with pytest.raises(LeaseLost), leases.fenced(lease):
        pytest.fail("what is fenced ran")
    with pytest.raises(LeaseLost):
        leases.renew(lease, 1.0)


def test_a_released_lease_can_be_taken_and_an_old_release_does_nothing(metastore_url: str) -> None:
    leases = Leases(metastore_url)
    first = leases.take("shop", "me", 30.0)
    assert first is not None
    leases.release(first)
    second = leases.take("shop", "you", 30.0)
    assert second is not None
    leases.release(first)
    assert leases.lines()["shop"].holder == "you"
    assert leases.lines()["shop"].seconds_left > 20
