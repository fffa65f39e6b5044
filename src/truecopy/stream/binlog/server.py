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
from truecopy.stream.binlog.place import Place
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
    def name(self) -> str:
        """What tells this server from others, so that a place is never looked up on the wrong one."""
        if not self.is_mariadb:
            return str(self.setting("server_uuid"))
        rows = self.ask("SELECT CONCAT_WS('-', @@server_id, @@hostname, @@port)")
        return re.sub(r"[^\w.-]", "_", str(rows[0][0]))

    def setting(self, name: str) -> str | None:
        """A global variable; None where the server does not know it."""
        rows = self.ask("SHOW GLOBAL VARIABLES LIKE %s", name.replace("_", r"\_"))
        return str(rows[0][1]) if rows else None

    def files(self) -> list[LogFile]:
        return [LogFile(row[0], int(row[1])) for row in self.ask("SHOW BINARY LOGS")]

    def end(self) -> Mark:
        """The end of the log now."""
        command = "SHOW MASTER STATUS"
        if not self.is_mariadb and self._is_at_least(8, 2):
            command = "SHOW BINARY LOG STATUS"
        rows = self.ask(command)
        if not rows:
            raise CannotFinish(
                f"{self.endpoint} writes no binary log: set log_bin and binlog_format=ROW, and restart it"
            )
        file, offset = rows[0][0], int(rows[0][1])
        executed = str(rows[0][4]).replace("\n", "") if len(rows[0]) > 4 else ""
        return self.mark(file, offset, executed)

    def mark(self, file: str, offset: int, executed: str = "") -> Mark:
        """A boundary by its place; `executed` is MySQL's GTID set there, if it is known."""
        place = Place(file, offset, self.name)
        if self.is_mariadb:
            rows = self.ask("SELECT BINLOG_GTID_POS(%s, %s)", file, offset)
            position = str(rows[0][0] or "")
        elif self.has_gtids:
            position = executed
        else:
            position = str(place)
        return Mark(position, str(place))

    def start_of(self, file: LogFile) -> Mark:
        """The boundary at which a file begins."""
        if self.is_mariadb or not self.has_gtids:
            return self.mark(file.name, 4)
        for row in self.ask(f"SHOW BINLOG EVENTS IN '{file.name}' LIMIT 3"):
            if row[2] == "Previous_gtids":
                return self.mark(file.name, 4, str(row[5]).replace("\n", ""))
        return self.mark(file.name, 4)

    def still_has(self, place: Place, position: str) -> bool:
        """Whether the place is there and means what it meant: a log that was reset starts over."""
        sizes = {file.name: file.size for file in self.files()}
        if place.server != self.name or sizes.get(place.file, -1) < place.offset:
            return False
        if self.is_mariadb:
            return self.mark(place.file, place.offset).position == position
        return True

    def behind(self) -> float | None:
        """Seconds behind its own source, 0 where it has none; None where it does not follow any more."""
        names = (
            ("SHOW ALL SLAVES STATUS",)
            if self.is_mariadb
            else ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")
        )
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
