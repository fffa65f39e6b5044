"""Subscriptions of PostgreSQL: how far they have applied the log of their publisher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truecopy.engines.protocols import Statement
from truecopy.model.errors import UsageError

if TYPE_CHECKING:
    from truecopy.engines.postgresql import PostgreSQL

VIEW = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",)


def replicated_position(session: PostgreSQL) -> str | None:
    """Of the only subscription of this database; of now, whatever view is open."""
    rows = session.fetch(
        Statement(
            "SELECT 'pg_' || oid FROM pg_subscription"
            " WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    )
    if not rows:
        return None
    if len(rows) > 1:
        raise UsageError(
            f"{session.endpoint} has {len(rows)} subscriptions, each at a position of its own: write applied: lag"
        )
    asked = Statement("SELECT pg_replication_origin_progress(%s, false)::text", rows[0])
    ((position,),) = session.fetch(asked)
    return str(position) if position else None
