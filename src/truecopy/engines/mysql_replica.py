"""Replicas of MySQL and MariaDB: how far they have applied the log of their source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truecopy.engines.protocols import Statement
from truecopy.model.position import parse_position

if TYPE_CHECKING:
    from truecopy.engines.mysql import MySQL

VIEW = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
)


def replicated_position(session: MySQL) -> str | None:
    """MariaDB keeps it in a table that a replica changes in the transaction that it applies. MySQL tells that of now.

    A replica adds a line for each transaction and takes old ones out later: the last of a domain counts.
    """
    if not session.is_mariadb:
        return session.position() if session.fetch(Statement("SHOW REPLICA STATUS")) else None
    ((position,),) = session.fetch(Statement("SELECT @@GLOBAL.gtid_slave_pos"))
    if not position:
        return None  # which can be told without a right on the table
    rows = session.fetch(
        Statement("SELECT domain_id, server_id, seq_no FROM mysql.gtid_slave_pos ORDER BY sub_id")
    )
    last = {domain: f"{domain}-{server}-{number}" for domain, server, number in rows}
    return str(parse_position(",".join(last.values()))) if last else None
