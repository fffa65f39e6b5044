"""An application's queries to PostgreSQL, and what a server says of what they see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from truecopy.engines.postgresql import connection_parameters, explain_refusal
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError

_STANDING = """
SELECT pg_is_in_recovery(),
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text,
    (extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000000)::bigint
"""
_END = """
SELECT CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
    ELSE pg_current_wal_insert_lsn() END::text
"""

Found = tuple[tuple[str, ...], list[list[Any]]]
"""Names of columns, and rows."""


@dataclass(frozen=True)
class Standing:
    """How far a server is: what it has logged, or of a standby what it has replayed, and when that was committed."""

    is_standby: bool
    lsn: str | None
    at: int


class PostgreSQLAsking:
    """One connection, whose values are as the driver types them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        try:
            self._connection = psycopg.connect(**connection_parameters(endpoint), autocommit=True)
        except psycopg.Error as error:
            raise explain_refusal(error, endpoint) from None

    def close(self) -> None:
        self._connection.close()

    def query(self, sql: str, values: Sequence[object] = ()) -> Found:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql.encode(), tuple(values) or None)
                if cursor.description is None:
                    return (), []
                names = tuple(field.name for field in cursor.description)
                return names, [list(row) for row in cursor.fetchall()]
        except psycopg.Error as error:
            line = " ".join(str(error).split())
            kind = UsageError if isinstance(error, psycopg.ProgrammingError) else CannotFinish
            raise kind(f"{self._endpoint}: {line}") from None

    def standing(self) -> Standing:
        """Before a snapshot is taken: what was logged by then can be seen in it, unless it is under way."""
        ((is_standby, lsn, at),) = self.query(_STANDING)[1]
        return Standing(is_standby, lsn, int(at or 0))

    def open_snapshot(self) -> str:
        """Opens one, and says which transactions it admits."""
        self.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        ((snapshot,),) = self.query("SELECT pg_current_snapshot()::text")[1]
        return str(snapshot)

    def close_snapshot(self) -> None:
        self.query("ROLLBACK")

    def log_end(self) -> str | None:
        """The end of the log; of a standby, which shows a commit a moment before it counts as replayed, as received."""
        ((lsn,),) = self.query(_END)[1]
        return str(lsn) if lsn else None
