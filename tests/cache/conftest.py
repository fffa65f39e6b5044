"""Caches of every kind, empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cache.servers import private_memcached, private_redis
from truecopy.cache.store import Cache, open_cache


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with private_redis() as url:
        yield url


@pytest.fixture(scope="session")
def memcached_url() -> Iterator[str]:
    with private_memcached() as url:
        yield url


@pytest.fixture(params=["memory", "redis", "memcached"])
def cache(request: pytest.FixtureRequest) -> Iterator[Cache]:
    """Each kind in turn."""
    url = (
        "memory://"
        if request.param == "memory"
        else request.getfixturevalue(f"{request.param}_url")
    )
    cache = open_cache(url)
    cache.clear()
    yield cache
    cache.close()
