"""What databases of the metastore say each in their own way; all else SQLAlchemy says for them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Dialect
from sqlalchemy.sql import ColumnElement, literal_column

from truecopy.metastore.control import now

_OF_MYSQL = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
_CLOCKS = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
    "mysql": _OF_MYSQL,
    "mariadb": _OF_MYSQL,
}


def database_clock(dialect: Dialect) -> ColumnElement[Any]:
    """The time as the metastore's own server has it: the clocks of those who ask need not agree."""
    clock = _CLOCKS.get(dialect.name)
    return literal_column(clock or str(now()), BigInteger)


def idle_limit(dialect: Dialect, seconds: int) -> str:
    """What has the server end a transaction in which it waits for us for too long; empty where it cannot.

    A process that is held up right there would keep its lines locked from everybody. A file of SQLite knows no such
    limit.
    """
    if dialect.name == "postgresql":
        return f"SET LOCAL idle_in_transaction_session_timeout = {seconds * 1000}"
    if getattr(dialect, "is_mariadb", False):
        return f"SET SESSION idle_write_transaction_timeout = {seconds}"
    return ""
