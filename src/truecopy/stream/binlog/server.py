"""What a server says about its own log: its files, its end, the position at a place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from truecopy.engines.mysql import MySQL
from truecopy.engines.protocols import Statement
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.position import parse_position, union
from truecopy.stream.binlog.place import MARIADB_NAME, MYSQL_NAME, Place, server_name
from truecopy.stream.log import Mark


@dataclass(frozen=True)
class LogFile:
    """A file of the log, and how long it is."""

    name: str
    size: int


class Server:
    """A connection for questions about the log; opened when the first one is asked."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._session: MySQL | None = None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def ask(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Runs a question; a connection that went away in a quiet hour is opened again."""
        if self._session is not None:
            try:
                return self._session.fetch(Statement(sql, values))
            except TruecopyError:
                try:
                    self._session.fetch(Statement("SELECT 1"))
                except TruecopyError:
                    self.close()
                else:
                    raise
        self._session = MySQL(self.endpoint)
        return self._session.fetch(Statement(sql, values))

    @cached_property
    def version(self) -> str:
        return str(self.ask("SELECT VERSION()")[0][0])

    @cached_property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.version.lower()

    @cached_property
    def has_gtids(self) -> bool:
        """Whether positions are GTIDs; without them they are places on this one server."""
        return self.is_mariadb or str(self.setting("gtid_mode")).upper() in ("ON", "ON_PERMISSIVE")

    @cached_property
    def logs_cascades(self) -> bool:
        """Whether rows that foreign keys change are logged: since MySQL 9.6, unless InnoDB still does it."""
        return not self.is_mariadb and self.setting("innodb_native_foreign_keys") == "OFF"

    @cached_property
    def name(self) -> str:
        """What tells this server from others, so that a place is never looked up on the wrong one."""
        name = MARIADB_NAME if self.is_mariadb else MYSQL_NAME
        return server_name(self.ask(f"SELECT {name}")[0][0])

    def setting(self, name: str) -> str | None:
        """A global variable; None where the server does not know it."""
        rows = self.ask("SHOW GLOBAL VARIABLES LIKE %s", name.replace("_", r"\_"))
        return str(rows[0][1]) if rows else None

    def files(self) -> list[LogFile]:
        return [LogFile(row[0], int(row[1])) for row in self.ask("SHOW BINARY LOGS")]

    def end(self) -> Place:
        """The end of the log now."""
        command = "SHOW MASTER STATUS"
        if not self.is_mariadb and self._is_at_least(8, 2):
            command = "SHOW BINARY LOG STATUS"
        rows = self.ask(command)
        if not rows:
            raise CannotFinish(
                f"{self.endpoint} writes no binary log: set log_bin and binlog_format=ROW, and restart it"
            )
        return Place(rows[0][0], int(rows[0][1]), self.name)

    def end_with_position(self) -> Mark | None:
        """The end of MariaDB's log where no transaction comes in between the questions."""
        before = self.ask("SELECT @@global.gtid_binlog_pos")
        place = self.end()
        if self.ask("SELECT @@global.gtid_binlog_pos") != before:
            return None
        return Mark(_normal(before[0][0]), str(place))

    def position_at(self, place: Place) -> str:
        """MariaDB's position at a place; it reads the file up to there."""
        rows = self.ask("SELECT BINLOG_GTID_POS(%s, %s)", place.file, place.offset)
        return _normal(rows[0][0])

    def start_of(self, file: LogFile) -> Mark:
        """The boundary at which a file begins."""
        place = Place(file.name, 4, self.name)
        if self.is_mariadb:
            return Mark(self.position_at(place), str(place))
        if not self.has_gtids:
            return Mark(str(place), str(place))
        position = parse_position(str(self.ask("SELECT @@global.gtid_purged")[0][0]))
        for row in self.ask(f"SHOW BINLOG EVENTS IN '{file.name}' LIMIT 3"):
            if row[2] == "Previous_gtids":
                position = union(position, parse_position(str(row[5])))
        return Mark(str(position), str(place))

    def still_has(self, place: Place, position: str) -> bool:
        """Whether the place is there and means what it meant: a log that was reset starts over."""
        sizes = {file.name: file.size for file in self.files()}
        if place.server != self.name or sizes.get(place.file, -1) < place.offset:
            return False
        return not self.is_mariadb or self.position_at(place) == position

    def behind(self) -> float | None:
        """Seconds behind its own source, 0 where it has none; None where it does not follow any more."""
        names = (
            ("SHOW ALL SLAVES STATUS",)
            if self.is_mariadb
            else ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")
        )
        self.ask("SELECT 1")  # one that is dead is not one that has no source
        for command in names:
            try:
                rows = self.ask_named(command)
            except TruecopyError:
                continue
            lags = [
                row.get("Seconds_Behind_Source", row.get("Seconds_Behind_Master")) for row in rows
            ]
            if any(lag is None for lag in lags):
                return None
            return max((float(str(lag)) for lag in lags), default=0.0)
        return 0.0

    def ask_named(self, sql: str) -> list[dict[str, object]]:
        """As `ask`, with the columns by name."""
        self.ask("SELECT 1")
        assert self._session is not None
        rows: list[dict[str, object]] = self._session.query(sql).to_pylist()
        return rows

    def _is_at_least(self, *version: int) -> bool:
        numbers = re.findall(r"\d+", self.version)[: len(version)]
        return tuple(map(int, numbers)) >= version


def _normal(position: object) -> str:
    """Domains in their order, which servers do not keep."""
    return str(parse_position(str(position or "")))
