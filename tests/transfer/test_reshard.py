"""A reshard from beginning to end: our filtered replication, a write load, a stream that goes over it."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.program import start, truecopy
from tests.servers import Server
from tests.stream.resharding import (
    FOUR,
    ONE,
    TWO,
    Consuming,
    KeyedConsumer,
    KeyspaceOnServers,
    Writers,
    is_in,
    keyspace_on,
    small_servers,
    wait_until,
)
from tests.transfer.sharded import legs_of, task_file
from truecopy.stream.request import Request
from truecopy.transfer.status import read_status


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    with small_servers() as found:
        yield found


@pytest.fixture
def bank(servers: list[Server], tmp_path: Path) -> Iterator[KeyspaceOnServers]:
    """Two shards that serve, four that wait, and one for all; each on a server of its generation."""
    homes = dict(zip(TWO, servers, strict=False)) | dict(zip(FOUR, servers, strict=True))
    homes |= {"-": servers[3]}
    with keyspace_on(homes, tmp_path / "bank.yaml", TWO) as keyspace:
        yield keyspace


def task_between(
    bank: KeyspaceOnServers, folder: Path, sources: Sequence[str], targets: Sequence[str]
) -> str:
    ends = [
        {
            "keyspace": "bank",
            "shards": {name: {"servers": [bank.databases[name].url]} for name in names},
            "sharding": {"account": {"column": "id", "function": "hash"}},
        }
        for names in (sources, targets)
    ]
    folder.mkdir()
    verify = {"inline": True, "target": True}
    return str(task_file(folder, *ends, verify=verify))


def carried(*arguments: str) -> dict[str, Any]:
    ended = truecopy(*arguments, "--json", seconds=600)
    assert ended.code == 0, ended.err
    return ended.document


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_shards_become_four_and_then_one_under_load(
    bank: KeyspaceOnServers, tmp_path: Path
) -> None:
    consumer = KeyedConsumer()
    request = Request(str(bank.file), wait=0.1, heartbeat=0.1, max_bytes=64 << 10)
    consuming = Consuming(request, consumer.take, "current")
    with Writers(bank, pause=0.05) as writers:
        writers.wait_for(100)
        for number, targets in enumerate((FOUR, ONE)):
            task = task_between(bank, tmp_path / str(number), bank.serving, targets)
            assert carried("check", task)["verdict"] == "ready"
            reshard(bank, writers, task, targets)
    truth = bank.rows()
    wait_until(lambda: consumer.rows == truth or consuming.failure is not None, 120)
    consuming.stop()
    assert writers.committed <= consumer.given
    assert not consumer.flaws
    assert not consumer.repeated, "the stream enters a new shard behind what was replicated"
    assert set(consuming.following.offset.marks) == set(ONE)


def reshard(bank: KeyspaceOnServers, writers: Writers, task: str, targets: Sequence[str]) -> None:
    """As an operator does it."""
    running = start("run", task)
    try:
        wait_until(lambda: running.poll() is not None or is_replicating(task), 400)
        writers.wait_for(100)
    finally:
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=120)
    assert running.returncode == 3, (out, err)
    with writers.stopped():
        carried("run", task, "--until-caught-up")
        assert carried("verify", "--task", task)["verdict"] == "equal"
        old = bank.rows()
        bank.serve(targets)
        assert bank.rows() == old
        for shard in targets:
            rows = bank.databases[shard].execute("SELECT id FROM account")
            assert all(is_in(shard, row) for (row,) in rows)
    writers.wait_for(50)


def is_replicating(task: str) -> bool:
    legs = map(read_status, legs_of(Path(task)))
    return all(leg.running and leg.progress.phase == "replicate" for leg in legs)
