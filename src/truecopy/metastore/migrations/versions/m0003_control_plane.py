"""Tasks with their runs and leases, events, the audit log, tokens."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0003"
down_revision = "0002"

# Names are told apart by case, whatever the server's default.
_OPTIONS: dict[str, Any] = {
    f"{dialect}_{name}": value
    for dialect in ("mysql", "mariadb")
    for name, value in (("charset", "utf8mb4"), ("collate", "utf8mb4_bin"), ("engine", "InnoDB"))
}
_LONG = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """Makes the tables of the control plane."""
    _create(
        "task",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("text", _LONG, nullable=False),
        sa.Column("command", sa.String(20), nullable=False),
        sa.Column("master", sa.String(255), nullable=False),
        sa.Column("hook", sa.Text, nullable=False),
        sa.Column("wanted", sa.String(10), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("progress", _LONG, nullable=False),
        sa.Column("progress_at", sa.BigInteger, nullable=False),
        sa.Column("made_by", sa.String(64), nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
    )
    _create(
        "task_run",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("task", sa.String(64), nullable=False),
        sa.Column("task_kind", sa.String(10), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("asked_by", sa.String(64), nullable=False),
        sa.Column("asked_at", sa.BigInteger, nullable=False),
        sa.Column("stop_asked", sa.Boolean, nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("pid", sa.BigInteger, nullable=False),
        sa.Column("process_began", sa.String(40), nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.Column("exit_code", sa.Integer),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("result", _LONG, nullable=False),
        sqlite_autoincrement=True,
    )
    _index("task_run_task", "task_run", ["task", "task_kind", "ended_at"])
    _create(
        "run_item",
        sa.Column("run_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("document", _LONG, nullable=False),
    )
    _create(
        "certificate",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("task", sa.String(64), nullable=False),
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("verdict", sa.String(20), nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("document", _LONG, nullable=False),
        sa.Column("page", _LONG, nullable=False),
    )
    _create(
        "sample",
        sa.Column("task", sa.String(64), primary_key=True),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("lag_seconds", sa.Float),
        sa.Column("rate", sa.Float, nullable=False),
        sa.Column("rows_copied", sa.BigInteger, nullable=False),
        sa.Column("changes_applied", sa.BigInteger, nullable=False),
    )
    _create(
        "lease",
        sa.Column("name", sa.String(190), primary_key=True),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
    _create(
        "event",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("task", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    _index("event_task", "event", ["task", "id"])
    _create(
        "audit",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    _create(
        "token",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )
    _index("token_digest", "token", ["digest"])
    _create(
        "web_session",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )


def _create(name: str, *columns: sa.Column[Any], **options: Any) -> None:
    op.create_table(name, *columns, if_not_exists=True, **_OPTIONS, **options)


def _index(name: str, table: str, columns: list[str]) -> None:
    op.create_index(name, table, columns, if_not_exists=True)
