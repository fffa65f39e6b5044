"""The tables of the control plane; times in microseconds, 0 for never."""

from __future__ import annotations

import time

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects.mysql import LONGTEXT

metadata = MetaData()
_LONG = Text().with_variant(LONGTEXT(), "mysql", "mariadb")

task = Table(
    "task",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("kind", String(10), primary_key=True),
    Column("text", _LONG, nullable=False),
    Column("command", String(20), nullable=False),
    Column("master", String(255), nullable=False),
    Column("hook", Text, nullable=False),
    Column("wanted", String(10), nullable=False),
    Column("state", String(20), nullable=False),
    Column("message", Text, nullable=False),
    Column("progress", _LONG, nullable=False),
    Column("progress_at", BigInteger, nullable=False),
    Column("made_by", String(64), nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("trace", String(55), nullable=False, server_default=""),
)
run = Table(
    "task_run",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("task", String(64), nullable=False),
    Column("task_kind", String(10), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("asked_by", String(64), nullable=False),
    Column("asked_at", BigInteger, nullable=False),
    Column("stop_asked", Boolean, nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("process_began", String(40), nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Column("exit_code", Integer),
    Column("message", Text, nullable=False),
    Column("result", _LONG, nullable=False),
    Column("trace", String(55), nullable=False, server_default=""),
    Index("task_run_task", "task", "task_kind", "ended_at"),
    sqlite_autoincrement=True,
)
item = Table(
    "run_item",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("document", _LONG, nullable=False),
)
certificate = Table(
    "certificate",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("task", String(64), nullable=False),
    Column("run_id", Integer, nullable=False),
    Column("verdict", String(20), nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("document", _LONG, nullable=False),
    Column("page", _LONG, nullable=False),
)
sample = Table(
    "sample",
    metadata,
    Column("task", String(64), primary_key=True),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("lag_seconds", Float),
    Column("rate", Float, nullable=False),
    Column("rows_copied", BigInteger, nullable=False),
    Column("changes_applied", BigInteger, nullable=False),
)
lease = Table(
    "lease",
    metadata,
    Column("name", String(190), primary_key=True),
    Column("holder", String(255), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
)
event = Table(
    "event",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("task", String(64), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("message", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Index("event_task", "task", "id"),
    Index("event_at", "at"),
    sqlite_autoincrement=True,
)
audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("who", String(64), nullable=False),
    Column("role", String(10), nullable=False),
    Column("address", String(64), nullable=False),
    Column("action", String(40), nullable=False),
    Column("subject", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Index("audit_at", "at"),
    sqlite_autoincrement=True,
)
token = Table(
    "token",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("role", String(10), nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("token_digest", "digest"),
)
web_session = Table(
    "web_session",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("token", String(64), nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)


def now() -> int:
    """The time as this machine has it."""
    return time.time_ns() // 1000
