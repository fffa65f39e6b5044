"""How far a task was known to be, beside what its target says."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0005"
down_revision = "0004"

_LONG = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """Adds the table where it is not there so far."""
    op.create_table(
        "known_progress",
        sa.Column("task", sa.String(190), primary_key=True),
        sa.Column("target", _LONG, nullable=False),
        sa.Column("origin", _LONG, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("applied", _LONG, nullable=False),
        sa.Column("reached", _LONG, nullable=False),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
        mariadb_charset="utf8mb4",
        mariadb_collate="utf8mb4_bin",
        mariadb_engine="InnoDB",
    )
