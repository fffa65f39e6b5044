"""The servers that readers of a page have, and the variables by which they name them.

Each page gets servers of its own: pages cut over, make servers read-only and set up replication.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.cache.servers import private_redis
from tests.servers import MariaDB, PostgreSQL, Server

Variables = Mapping[str, str]


@contextmanager
def old_and_new() -> Iterator[Variables]:
    with MariaDB() as old, PostgreSQL() as new:
        yield {**_mariadb(old), **_postgresql(new)}


def _mariadb(server: Server) -> Variables:
    server.create_database("shop")
    return {
        "MYSQL_HOST": server.host,
        "MYSQL_TCP_PORT": str(server.port),
        "MYSQL_PWD": server.password,
    }


def _postgresql(server: Server) -> Variables:
    server.create_database("shop")
    return {
        "PGHOST": server.host,
        "PGPORT": str(server.port),
        "PGUSER": server.user,
        "PGPASSWORD": server.password,
        "PGDATABASE": "shop",
    }


@contextmanager
def source_and_replica() -> Iterator[Variables]:
    source, replica = MariaDB("--server-id=31"), MariaDB("--server-id=32")
    replica.password = source.password
    with source as one, replica as other:
        yield {
            "SOURCE_PORT": str(one.port),
            "REPLICA_PORT": str(other.port),
            "MYSQL_PWD": one.password,
        }


@contextmanager
def database_and_cache() -> Iterator[Variables]:
    with MariaDB() as database, private_redis() as url:
        redis = urlsplit(url)
        yield {
            **_mariadb(database),
            "REDIS_PASSWORD": redis.password or "",
            "DATABASE": f"mariadb://root:${{MYSQL_PWD}}@{database.host}:{database.port}/shop",
            "CACHE": f"redis://:${{REDIS_PASSWORD}}@{redis.hostname}:{redis.port}/0",
        }
