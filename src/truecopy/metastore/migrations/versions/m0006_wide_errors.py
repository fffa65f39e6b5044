"""Errors of rows that are larger than a TEXT of MySQL and MariaDB; and how many of the pending rows have failed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0006"
down_revision = "0005"

_TEXTS = {
    "validation": ("message", "position", "processed", "report"),
    "validation_table": ("message",),
    "validation_error": ("name", "row_key", "columns", "source", "target"),
}
_FAILED = "insert_failed", "update_failed", "delete_failed"


def upgrade() -> None:
    """Other databases have texts of any size already; columns that are there are left alone."""
    there = {
        column["name"] for column in sa.inspect(op.get_bind()).get_columns("validation_pending")
    }
    for name in _FAILED:
        if name not in there:
            column = sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
            op.add_column("validation_pending", column)
    if op.get_bind().dialect.name in ("mysql", "mariadb"):
        for table, names in _TEXTS.items():
            for name in names:
                op.alter_column(table, name, type_=LONGTEXT(), existing_nullable=False)
        op.alter_column("validation_error", "released_at", type_=LONGTEXT(), existing_nullable=True)
