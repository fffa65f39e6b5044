"""Holding writers off in PostgreSQL: their rights on the tables are taken back, and open transactions ended.

`default_transaction_read_only` would not do: any session may set it back. Superusers cannot be held off at
all; whoever cuts over looks into the log afterwards for what they wrote.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from truecopy.engines.protocols import Session, Statement
from truecopy.engines.sql import table_sql
from truecopy.engines.writers import REVOKE, Before
from truecopy.model.errors import CannotFinish
from truecopy.model.table import TableName

if TYPE_CHECKING:
    from truecopy.engines.postgresql import PostgreSQL

_WRITING = ("INSERT", "UPDATE", "DELETE", "TRUNCATE")
_GRACE_SECONDS = 0.5
_LOOK_SECONDS = 0.02

# Rights of tables and of single columns, in the order in which they could be given again: those that
# somebody gave on come after the ones that let him do it. Ours stay: changes are written back with them.
_RIGHTS = """
WITH RECURSIVE one AS (
    SELECT c.oid, format('%%I.%%I', n.nspname, c.relname) AS name, NULL::text AS col, c.relowner, x.*
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
        aclexplode(COALESCE(c.relacl, acldefault('r', c.relowner))) x
    WHERE c.oid = ANY (%s::oid[])
    UNION ALL
    SELECT c.oid, format('%%I.%%I', n.nspname, c.relname), quote_ident(a.attname), c.relowner, x.*
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_attribute a ON a.attrelid = c.oid, aclexplode(a.attacl) x
    WHERE c.oid = ANY (%s::oid[])
), ordered AS (
    SELECT one.*, 0 AS depth FROM one WHERE grantor = relowner
    UNION ALL
    SELECT one.*, ordered.depth + 1 FROM one JOIN ordered
        ON one.oid = ordered.oid AND one.privilege_type = ordered.privilege_type
        AND one.grantor = ordered.grantee AND one.grantee <> ordered.grantee AND ordered.is_grantable
        AND (ordered.col IS NULL OR one.col = ordered.col)
    WHERE one.grantor <> one.relowner AND ordered.depth < 20
)
SELECT name, col, privilege_type, COALESCE(quote_ident(e.rolname), 'PUBLIC'), is_grantable,
    quote_ident(r.rolname), MIN(depth)
FROM ordered LEFT JOIN pg_roles e ON e.oid = grantee JOIN pg_roles r ON r.oid = grantor
WHERE privilege_type = ANY (%s::text[]) AND e.rolname IS DISTINCT FROM current_user
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY MIN(depth), 1, 2 NULLS FIRST, 3, 4
"""

# Whoever passed the check of rights before they were taken back holds a lock until his transaction ends;
# who came later was turned away, though he may hold a lock for a moment.
_HOLDERS = """
SELECT DISTINCT l.pid FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'relation' AND l.granted AND l.relation = ANY (%s::oid[])
    AND l.pid IS DISTINCT FROM pg_backend_pid()
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    AND COALESCE(a.xact_start, '-infinity') < %s::timestamptz
"""

# Our own role keeps its rights, and whoever may become it has them; those of superusers and of writers of all data are
# of no table. Our sessions carry our name. What others are is hidden from whoever may not read all of that.
_BEYOND = """
SELECT format('%%s (%%s, pid %%s)', r.rolname, COALESCE(NULLIF(a.application_name, ''), 'without a name'), a.pid)
FROM pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid
WHERE a.datname = current_database() AND COALESCE(a.backend_type, 'client backend') = 'client backend'
    AND COALESCE(a.application_name, '') <> 'truecopy' AND a.pid <> pg_backend_pid()
    AND (pg_has_role(r.oid, current_user::regrole, 'MEMBER')
        OR pg_has_role(r.oid, to_regrole('pg_write_all_data'), 'MEMBER'))
ORDER BY a.pid
"""

# Rights on a table say nothing of its partitions and children, which can be written to by their own names.
_TABLES = """
WITH RECURSIVE mine AS (
    SELECT to_regclass(name)::oid AS number FROM unnest(%s::text[]) AS name
    UNION
    SELECT i.inhrelid FROM pg_inherits i JOIN mine ON i.inhparent = mine.number
)
SELECT number FROM mine WHERE number IS NOT NULL
"""

# Since rights were taken, whoever had them may be gone: that must not keep them from the others.
_STILL_THERE = """
SELECT to_regclass(name) IS NOT NULL AND (role = 'PUBLIC' OR to_regrole(role) IS NOT NULL)
    AND (col IS NULL OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = to_regclass(name)
        AND quote_ident(a.attname) = col AND NOT a.attisdropped)),
    to_regrole(giver) IS NOT NULL
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[])
    WITH ORDINALITY AS x(name, col, role, giver, place) ORDER BY place
"""


class PostgreSQLWriters:
    """See `truecopy.engines.writers.WriterGate`."""

    ways = (REVOKE,)

    def __init__(self, session: PostgreSQL) -> None:
        self._session = session

    def survey(self, way: str, tables: Sequence[TableName]) -> dict[str, Any]:  # noqa: ARG002
        numbers = self._numbers(tables)
        rows = self._session.fetch(Statement(_RIGHTS, (numbers, numbers, list(_WRITING))))
        names = ("table", "column", "right", "role", "may_give", "by")
        return {"rights": [dict(zip(names, row[:6], strict=True)) for row in rows]}

    def hold(self, way: str, tables: Sequence[TableName], before: Before, seconds: float) -> None:  # noqa: ARG002
        deadline = time.monotonic() + seconds
        self._in_one([_revoke(one) for one in reversed(before["rights"])])
        ((now,),) = self._session.fetch(Statement("SELECT clock_timestamp()::text"))
        graceful = time.monotonic() + _GRACE_SECONDS
        numbers = self._numbers(tables)
        while pids := [pid for (pid,) in self._session.fetch(Statement(_HOLDERS, (numbers, now)))]:
            if time.monotonic() > deadline:
                raise CannotFinish(
                    f"sessions of {self._session.endpoint} still write to the task's tables, and could not be ended"
                )
            if time.monotonic() > graceful:
                self._end(pids)
            time.sleep(_LOOK_SECONDS)

    def release(self, way: str, before: Before) -> list[str]:  # noqa: ARG002
        rights = before.get("rights")
        if not rights:
            return []
        columns = [[one[name] for one in rights] for name in ("table", "column", "role", "by")]
        there = self._session.fetch(Statement(_STILL_THERE, tuple(columns)))
        known = [
            # What somebody gave who is gone is given by ourselves.
            one if has_giver else {**one, "by": ""}
            for one, (is_there, has_giver) in zip(rights, there, strict=True)
            if is_there
        ]
        self._in_one([_grant(one) for one in known])
        return [
            f"{one['role']} does not get {_right(one)} on {one['table']} back: one of them is gone"
            for one, (is_there, _) in zip(rights, there, strict=True)
            if not is_there
        ]

    def closes(self, way: str, other: Session) -> bool:  # noqa: ARG002
        return False

    def beyond(self) -> list[str]:
        return [who for (who,) in self._session.fetch(Statement(_BEYOND))]

    def undoing(self, way: str, before: Before) -> list[str]:  # noqa: ARG002
        return [_grant(one) for one in before.get("rights", ())]

    def is_held(self, way: str, tables: Sequence[TableName]) -> bool:
        return not self.survey(way, tables)["rights"]

    def ease(self, way: str) -> None:
        """Nothing to do: our own rights were left alone."""

    def leave(self, way: str, tables: Sequence[TableName]) -> str:  # noqa: ARG002
        return (
            f"the rights to write on {self._session.endpoint} stay revoked, so that nobody writes there by mistake:"
            " switch-back gives them back"
        )

    def _end(self, pids: Sequence[int | None]) -> None:
        for pid in pids:
            if pid is None:
                raise CannotFinish(
                    f"a prepared transaction on {self._session.endpoint} has written to the task's tables: COMMIT"
                    " PREPARED or ROLLBACK PREPARED it (pg_prepared_xacts)"
                )
            self._session.fetch(Statement("SELECT pg_terminate_backend(%s)", (pid,)))

    def _in_one(self, statements: Sequence[str]) -> None:
        self._execute("BEGIN")
        try:
            for statement in statements:
                self._execute(statement)
        except BaseException:
            self._session.rollback()
            raise
        self._execute("COMMIT")

    def _numbers(self, tables: Sequence[TableName]) -> list[int]:
        names = [table_sql(self._session.dialect, name) for name in tables]
        rows = self._session.fetch(Statement(_TABLES, (names,)))
        return [int(number) for (number,) in rows]

    def _execute(self, sql: str) -> None:
        self._session.execute(Statement(sql.replace("%", "%%")))


def _revoke(one: dict[str, Any]) -> str:
    return _as(one["by"], f"REVOKE {_right(one)} ON {one['table']} FROM {one['role']} CASCADE")


def _grant(one: dict[str, Any]) -> str:
    option = " WITH GRANT OPTION" if one["may_give"] else ""
    return _as(one["by"], f"GRANT {_right(one)} ON {one['table']} TO {one['role']}{option}")


def _right(one: dict[str, Any]) -> str:
    return f"{one['right']} ({one['column']})" if one["column"] else str(one["right"])


def _as(role: str, statement: str) -> str:
    """By whom a right was given decides who can take it back. What fails takes the change of role back with it."""
    return f"SET ROLE {role}; {statement}; RESET ROLE" if role else statement
