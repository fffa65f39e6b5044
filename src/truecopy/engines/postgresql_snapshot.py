"""Snapshots of PostgreSQL whose place in the log is known: those that a new logical slot exports.

A slot begins at a point of the log, and its snapshot shows the transactions that were committed before
that point and no other, in the order of the log. A lock on the table would do as well, but writers would
wait behind it, and it asks for rights that a reader does not have; a slot asks for those of the stream.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import psycopg

from truecopy.engines.postgresql_identity import identity_missing, lacking_identity
from truecopy.engines.protocols import Statement
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.relation import Relation

if TYPE_CHECKING:
    from truecopy.engines.postgresql import PostgreSQL

SLOT_SECONDS = 300
"""How long to wait for a transaction that is open when the slot is made."""


def require_position(session: PostgreSQL, relation: Relation) -> None:
    """Refuses tables that cannot be published without making their updates fail."""
    lacking = lacking_identity(session.fetch)
    for name in relation.tables:
        if name in lacking:
            why = identity_missing(session.dialect, name, lacking[name])
            raise UsageError(
                f"{name} has no key, and its changes are not streamed: {why}, or leave it out"
            )


def open_exported(session: PostgreSQL, replicating: psycopg.Connection[tuple[Any, ...]]) -> str:
    """Opens a transaction of the session that sees one state of all tables; gives its position.

    Args:
        session: Reads in that transaction from then on.
        replicating: A replication connection, which holds the snapshot until the session has it. A row's
            position is the end of its commit, so those in the snapshot are at most the one given here.
    """
    slot = f"truecopy_copy_{secrets.token_hex(8)}"
    with psycopg.ClientCursor(replicating) as cursor:
        try:
            found = cursor.execute(
                f'CREATE_REPLICATION_SLOT "{slot}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'.encode()
            ).fetchall()
        except psycopg.errors.LockNotAvailable:
            raise CannotFinish(
                f"transactions on {session.endpoint} have been open for more than {SLOT_SECONDS} s: a table without a"
                " key is copied when all that are open have ended"
            ) from None
    ((_, position, snapshot, _),) = found
    session.execute(Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))
    session.execute(Statement(f"SET TRANSACTION SNAPSHOT '{snapshot}'"))
    return str(position)
