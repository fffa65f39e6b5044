"""The trace in which a task was started or a run asked for, and indexes by which old events and errors are found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds what is not there so far."""
    inspector = sa.inspect(op.get_bind())
    for table in ("task", "task_run"):
        if "trace" not in {column["name"] for column in inspector.get_columns(table)}:
            op.add_column(
                table, sa.Column("trace", sa.String(55), nullable=False, server_default="")
            )
    for name, table, columns in (
        ("event_at", "event", ["at"]),
        ("audit_at", "audit", ["at"]),
        ("validation_error_status", "validation_error", ["task", "status", "id"]),
    ):
        op.create_index(name, table, columns, if_not_exists=True)
