"""Readers, invalidators, lagging replicas, evictions, a reshard on MariaDB and Redis; and what a wrong client does."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cache.scenario import NEW, OLD, Scenario, start_lagging_replica
from tests.servers import Database, MariaDB, Server
from tests.stream.resharding import KeyspaceOnServers
from truecopy.cache.readthrough import ReadThrough
from truecopy.cache.store import open_cache

SMALL = (
    "--log-slave-updates",
    "--innodb-log-file-size=4M",
    "--performance-schema=OFF",
    "--gtid-strict-mode=1",
)
_LAG_SECONDS = 1


class Careless(ReadThrough):
    """Puts whatever it was answered, without comparing tokens."""

    def _admits(self, *_: object) -> bool:
        return True


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    """Two primaries, and a replica of each that lags on purpose."""
    with ExitStack() as stack:
        found = [stack.enter_context(MariaDB(*SMALL, buffer_pool="16M")) for _ in range(4)]
        for primary, replica in (found[:2], found[2:]):
            start_lagging_replica(primary, replica, _LAG_SECONDS)
        yield found


@pytest.fixture
def bank(servers: list[Server], tmp_path: Path) -> Iterator[KeyspaceOnServers]:
    """One shard that serves, on the first pair of servers, and two that will, on the second."""
    first, first_replica, second, second_replica = servers
    name = f"bank_{secrets.token_hex(4)}"
    homes = {OLD[0]: (first, first_replica), **dict.fromkeys(NEW, (second, second_replica))}
    databases = {
        shard: primary.create_database(f"{name}_{number}")
        for number, (shard, (primary, _)) in enumerate(homes.items())
    }
    more = {
        shard: [Database(homes[shard][1], database.name).url]
        for shard, database in databases.items()
    }
    with KeyspaceOnServers(tmp_path / "bank.yaml", databases, OLD, more_servers=more) as keyspace:
        yield keyspace
    for database in databases.values():
        database.server.drop_database(database.name)


@pytest.fixture
def scenario(bank: KeyspaceOnServers, redis_url: str, tmp_path: Path) -> Scenario:
    open_cache(redis_url).clear()
    return Scenario(bank, redis_url, tmp_path)


@pytest.mark.long
def test_the_cache_never_steps_back_and_ends_up_right(scenario: Scenario) -> None:
    verdict = scenario.run(4000)
    assert verdict.is_right, verdict
    assert verdict.hits > 100, (
        verdict
    )  # on a busy machine the replicas' answers come too late for most
    assert verdict.puts > 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_same_of_a_hundred_thousand_operations(scenario: Scenario) -> None:
    verdict = scenario.run(100_000)
    assert verdict.is_right, verdict
    assert verdict.operations >= 100_000
    assert verdict.hits > 10_000


@pytest.mark.long
def test_a_client_without_tokens_is_found_out(scenario: Scenario) -> None:
    scenario.reader = Careless
    assert not scenario.run(2500).is_right
