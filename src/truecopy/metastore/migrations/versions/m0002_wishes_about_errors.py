"""Errors say when somebody asked to look again, and how far changes were when one was let go of; not only whether."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_TABLE = "validation_error"


def upgrade() -> None:
    """Puts two columns in the place of two others; what is done already is left alone."""
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(_TABLE)}
    for name, kind in (("asked_at", sa.BigInteger), ("released_at", sa.Text)):
        if name not in there:
            op.add_column(_TABLE, sa.Column(name, kind))
    if not {"asked", "released"} <= there:
        return
    op.execute(f"UPDATE {_TABLE} SET asked_at = first_failed_at WHERE asked")
    op.execute(f"UPDATE {_TABLE} SET released_at = '{{}}' WHERE released")
    # SQLite makes the table anew, and would forget that numbers are never used again.
    with op.batch_alter_table(_TABLE, table_kwargs={"sqlite_autoincrement": True}) as table:
        table.drop_column("asked")
        table.drop_column("released")
