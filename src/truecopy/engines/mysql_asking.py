"""An application's queries to MariaDB and MySQL, and what a server says of what they see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymysql
from pymysql.converters import decoders

from truecopy.engines.mysql import explain_error, open_connection
from truecopy.model.endpoint import Endpoint

_SNAPSHOT = (
    "SHOW STATUS WHERE Variable_name IN ('binlog_snapshot_file', 'binlog_snapshot_position')"
)
_WAITING = "SHOW STATUS WHERE Variable_name = 'rpl_semi_sync_master_wait_sessions'"

Found = tuple[tuple[str, ...], list[list[Any]]]
"""Names of columns, and rows."""


class MySQLAsking:
    """One connection, whose values are as the driver types them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection = open_connection(endpoint)
        self._connection.decoders = decoders  # an application wants values, not texts

    def close(self) -> None:
        self._connection.close()

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self._connection.server_version.lower()

    def query(self, sql: str, values: Sequence[object] = ()) -> Found:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql, tuple(values) or None)
                names = tuple(field[0] for field in cursor.description or ())
                return names, [list(row) for row in cursor.fetchall()]
        except (pymysql.MySQLError, OSError) as error:
            raise explain_error(error, self._endpoint) from None

    def open_snapshot(self) -> tuple[str, int] | None:
        """Of MariaDB: opens one, and says where in the log it is; None on a server that writes none."""
        self.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        place = {name.lower(): value for name, value in self.query(_SNAPSHOT)[1]}
        file = place.get("binlog_snapshot_file")
        return (file, int(place["binlog_snapshot_position"])) if file else None

    def close_snapshot(self) -> None:
        self.query("ROLLBACK")

    def has_waiting_commits(self) -> bool:
        """Whether sessions wait for a replica to have what they have logged."""
        return any(int(count) for _, count in self.query(_WAITING)[1])

    def executed(self) -> str:
        """Of MySQL: the transactions that can be seen, as a GTID set."""
        ((executed,),) = self.query("SELECT @@global.gtid_executed")[1]
        return str(executed)
