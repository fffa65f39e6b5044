"""Definitions of streamed tables, and validations.

Both were made without a history before: what is there already is taken up as it is.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_LARGE = (1 << 32) - 1


def upgrade() -> None:
    """Makes what is missing."""
    op.create_table(
        "definition",
        sa.Column("schema_id", sa.String(16), primary_key=True),
        sa.Column("table_name", sa.String(255), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "definition_set",
        sa.Column("set_id", sa.String(16), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "validation",
        sa.Column("task", sa.String(190), primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("stop_asked", sa.Boolean, nullable=False),
        sa.Column("mode", sa.String(10), nullable=False),
        sa.Column("position", sa.Text, nullable=False),
        sa.Column("processed", sa.Text, nullable=False),
        sa.Column("caught_up", sa.Boolean, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("heard_at", sa.BigInteger, nullable=False),
        sa.Column("report", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "validation_table",
        sa.Column("task", sa.String(190), primary_key=True),
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("stage", sa.String(20), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "validation_pending",
        sa.Column("task", sa.String(190), primary_key=True),
        sa.Column("part", sa.String(190), primary_key=True),
        sa.Column("piece", sa.Integer, primary_key=True),
        sa.Column("insert_rows", sa.BigInteger, nullable=False),
        sa.Column("update_rows", sa.BigInteger, nullable=False),
        sa.Column("delete_rows", sa.BigInteger, nullable=False),
        sa.Column("error_rows", sa.BigInteger, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("payload", sa.LargeBinary(_LARGE), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "validation_error",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("task", sa.String(190), nullable=False),
        sa.Column("identity", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("table_name", sa.String(255), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("row_key", sa.Text, nullable=False),
        sa.Column("columns", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("first_failed_at", sa.BigInteger, nullable=False),
        sa.Column("last_failed_at", sa.BigInteger, nullable=False),
        sa.Column("asked", sa.Boolean, nullable=False),
        sa.Column("released", sa.Boolean, nullable=False),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    op.create_index(
        "validation_error_row", "validation_error", ["task", "identity"], if_not_exists=True
    )
