"""Holding writers off in MySQL and MariaDB: a read-only server, or read locks on tables."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from truecopy.engines.protocols import Session, Statement
from truecopy.engines.sql import table_sql
from truecopy.engines.writers import READ_ONLY, TABLES, Before
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.table import TableName

if TYPE_CHECKING:
    from truecopy.engines.mysql import MySQL

_SETTINGS = ("read_only", "super_read_only")
"""In the order in which they are set; MariaDB knows the first one only."""
_LEAVE_SECONDS, _LOOK_SECONDS = 5.0, 0.02


class MySQLWriters:
    """See `truecopy.engines.writers.WriterGate`.

    A read-only server turns away whoever has no right to write on (SUPER, READ ONLY ADMIN, and on MySQL
    nobody at all while `super_read_only` is set). A transaction that is open fails when it commits. Table
    locks make writers wait instead, and end with the session.
    """

    ways = (READ_ONLY, TABLES)

    def __init__(self, session: MySQL) -> None:
        self._session = session

    def survey(self, way: str, tables: Sequence[TableName]) -> dict[str, Any]:  # noqa: ARG002
        return self._settings() if way == READ_ONLY else {}

    def hold(
        self,
        way: str,
        tables: Sequence[TableName],
        before: Before,  # noqa: ARG002
        seconds: float,
    ) -> None:
        self._execute(f"SET SESSION lock_wait_timeout = {max(math.ceil(seconds), 1)}")
        if way == TABLES:
            names = ", ".join(table_sql(self._session.dialect, name) for name in tables)
            self._execute(f"FLUSH TABLES {names} WITH READ LOCK")
            return
        for name in self._settings():
            self._execute(f"SET GLOBAL {name} = 1")
        if not all(map(int, self._settings().values())):
            raise CannotFinish(f"{self._session.endpoint} did not become read-only")

    def release(self, way: str, before: Before) -> list[str]:
        if way == TABLES:
            self._execute("UNLOCK TABLES")
            return []
        for statement in self.undoing(way, before):
            self._execute(statement)
        return []

    def undoing(self, way: str, before: Before) -> list[str]:
        if way == TABLES:
            return []
        names = reversed([name for name in _SETTINGS if name in before])
        return [f"SET GLOBAL {name} = {int(before[name])}" for name in names]

    def closes(self, way: str, other: Session) -> bool:
        if way != READ_ONLY or type(other) is not type(self._session):
            return False
        # Names and numbers of servers are alike wherever one setup is used twice; a lock is seen in one server only.
        name = f"truecopy-{secrets.token_hex(8)}"
        self._session.fetch(Statement("SELECT GET_LOCK(%s, 0)", (name,)))
        try:
            ((holder,),) = other.fetch(Statement("SELECT IS_USED_LOCK(%s)", (name,)))
        finally:
            self._session.fetch(Statement("SELECT RELEASE_LOCK(%s)", (name,)))
        return holder is not None

    def is_held(self, way: str, tables: Sequence[TableName]) -> bool:  # noqa: ARG002
        # Table locks last as long as the session that has them: it does not answer when they are gone.
        settings = self._settings()
        return way == TABLES or bool(settings["read_only"])

    def beyond(self) -> list[str]:
        return []  # it cannot tell; the log shows what they write

    def ease(self, way: str) -> None:
        if way == READ_ONLY and "super_read_only" in self._settings():
            self._execute("SET GLOBAL super_read_only = 0")

    def leave(self, way: str, tables: Sequence[TableName]) -> str:  # noqa: ARG002
        where = self._session.endpoint
        if way == READ_ONLY:
            return f"{where} stays read-only, so that nobody writes there by mistake (SET GLOBAL read_only = 0)"
        deadline = time.monotonic() + _LEAVE_SECONDS
        while (waiting := self._waiting()) and time.monotonic() < deadline:
            for number in waiting:
                with suppress(TruecopyError):  # it is gone already
                    self._execute(f"KILL {number}")
            time.sleep(_LOOK_SECONDS)
        self._execute("UNLOCK TABLES")
        return f"the table locks on {where} are gone: nothing keeps others from writing there"

    def _waiting(self) -> list[int]:
        """Sessions that wait for locks of tables, and may write here as soon as ours are gone.

        The server does not say of which tables: neither their default database nor their statement would, which
        may be a call or fire a trigger.
        """
        rows = self._session.fetch(
            Statement(
                "SELECT id FROM information_schema.processlist"
                " WHERE id <> CONNECTION_ID() AND state LIKE 'Waiting for table%%'"
            )
        )
        return [int(number) for (number,) in rows]

    def _settings(self) -> dict[str, int]:
        rows = self._session.fetch(
            Statement(
                "SHOW GLOBAL VARIABLES WHERE variable_name IN ('read_only', 'super_read_only')"
            )
        )
        # MySQL 8 and MariaDB 11 say ON, and the latter has more values than two.
        found = {str(name): int(str(value).upper() not in ("OFF", "0")) for name, value in rows}
        return {name: found[name] for name in _SETTINGS if name in found}

    def _execute(self, sql: str) -> None:
        self._session.execute(Statement(sql))
