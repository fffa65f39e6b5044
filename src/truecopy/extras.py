"""Packages that are there only where an extra was asked for; a missing one is one line that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from truecopy.model.errors import UsageError

BROUGHT_BY = {
    "pymysql": "mysql",
    "psycopg": "postgresql",
    "duckdb": "duckdb",
    "deltalake": "delta",
    "redis": "redis",
    "pymemcache": "memcached",
    "trino": "trino",
    "prestodb": "presto",
    "grpc": "sc",
    "fastapi": "server",
    "uvicorn": "server",
}
"""By the name under which it is imported: the extra that brings a package."""


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Around imports: whoever lacks a package is told how to get it."""
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{what} {missing(error)}") from error


def missing(error: ImportError) -> str:
    """What is needed, and how to get it."""
    package = (error.name or str(error)).partition(".")[0]
    extra = BROUGHT_BY.get(package)
    return f"needs the Python package {package}: pip install " + (
        f"'truecopy[{extra}]'" if extra else package
    )
