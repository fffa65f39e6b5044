"""The tables of continuous validation in the metastore."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects.mysql import LONGTEXT

_LARGE = (1 << 32) - 1
_LONG = Text().with_variant(LONGTEXT(), "mysql", "mariadb")

KINDS = "insert", "update", "delete"

metadata = MetaData()
VALIDATION = Table(
    "validation",
    metadata,
    Column("task", String(190), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("state", String(20), nullable=False),
    Column("message", _LONG, nullable=False),
    Column("stop_asked", Boolean, nullable=False),
    Column("mode", String(10), nullable=False),
    Column("position", _LONG, nullable=False),
    Column("processed", _LONG, nullable=False),
    Column("caught_up", Boolean, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("heard_at", BigInteger, nullable=False),
    Column("report", _LONG, nullable=False),
)
TABLE = Table(
    "validation_table",
    metadata,
    Column("task", String(190), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("stage", String(20), nullable=False),
    Column("message", _LONG, nullable=False),
)
PENDING = Table(
    "validation_pending",
    metadata,
    Column("task", String(190), primary_key=True),
    Column("part", String(190), primary_key=True),
    Column("piece", Integer, primary_key=True),
    Column("insert_rows", BigInteger, nullable=False),
    Column("update_rows", BigInteger, nullable=False),
    Column("delete_rows", BigInteger, nullable=False),
    *(Column(f"{kind}_failed", BigInteger, nullable=False, server_default="0") for kind in KINDS),
    Column("error_rows", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("payload", LargeBinary(_LARGE), nullable=False),
)
ERROR = Table(
    "validation_error",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("task", String(190), nullable=False),
    Column("identity", String(64), nullable=False),
    Column("name", _LONG, nullable=False),
    Column("table_name", String(255), nullable=False),
    Column("status", String(20), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("row_key", _LONG, nullable=False),
    Column("columns", _LONG, nullable=False),
    Column("source", _LONG, nullable=False),
    Column("target", _LONG, nullable=False),
    Column("first_failed_at", BigInteger, nullable=False),
    Column("last_failed_at", BigInteger, nullable=False),
    # When somebody asked to look again; and how far changes were taken up when somebody let go of the row.
    Column("asked_at", BigInteger),
    Column("released_at", _LONG),
    Index("validation_error_row", "task", "identity"),
    Index("validation_error_status", "task", "status", "id"),
    sqlite_autoincrement=True,
)


def of_task(statement: Any, task: str) -> Any:
    """A statement about the lines of one task."""
    table = statement.table if hasattr(statement, "table") else statement.get_final_froms()[0]
    return statement.where(table.c.task == task)
