"""Each tutorial, done as its page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tutorials import servers
from tests.tutorials.page import read_page
from tests.tutorials.terminal import follow

PAGES = ("first-verify", "migrate", "watch-a-replica", "upgrade", "cache", "own-engine")


@pytest.mark.long
@pytest.mark.parametrize("page", ["first-verify", "own-engine"])
def test_without_servers(page: str, tmp_path: Path) -> None:
    follow(read_page(page), tmp_path, {})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_migrate(tmp_path: Path) -> None:
    with servers.old_and_new() as variables:
        follow(read_page("migrate"), tmp_path, variables)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_watch_a_replica(tmp_path: Path) -> None:
    with servers.source_and_replica() as variables:
        follow(read_page("watch-a-replica"), tmp_path, variables)


@pytest.mark.long
def test_upgrade(tmp_path: Path) -> None:
    with servers.old_and_new() as variables:
        follow(read_page("upgrade"), tmp_path, variables)


@pytest.mark.long
def test_cache(tmp_path: Path) -> None:
    with servers.database_and_cache() as variables:
        follow(read_page("cache"), tmp_path, variables)
