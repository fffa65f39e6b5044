"""Sequences of PostgreSQL that belong to no column."""

from __future__ import annotations

from truecopy.engines.protocols import Statement
from truecopy.engines.relational import RelationalSession
from truecopy.engines.sql import table_sql
from truecopy.model.table import TableName

_NAMES = """
SELECT n.nspname::text, c.relname::text, has_sequence_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'S' AND c.relpersistence <> 't' AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i', 'e'))
ORDER BY 1, 2
"""
# The catalog does not tell a number that was set and not given yet; the sequence does.
_NEXT = """
SELECT q.last_value::numeric + CASE WHEN q.is_called THEN s.seqincrement ELSE 0 END,
    s.seqincrement, s.seqmin, s.seqmax
FROM {0} AS q, pg_sequence AS s WHERE s.seqrelid = %s::regclass
"""


def next_numbers(session: RelationalSession) -> dict[TableName, int | None]:
    """See `HasSequences`; numbers that sessions hold in reserve are passed over."""
    found: dict[TableName, int | None] = {}
    for schema, name, is_readable in session.fetch(Statement(_NAMES)):
        sequence = TableName(schema, name)
        found[sequence] = _facts(session, sequence)[0] if is_readable else None
    return found


def advance(session: RelationalSession, name: TableName, number: int) -> None:
    """One that is further already stays as it is."""
    own, step, lowest, highest = _facts(session, name)
    further = max(number, own) if step > 0 else min(number, own)
    given = min(max(further, lowest), highest)
    # One that has run out is told its last number, and that it was given.
    is_over = given != further
    session.fetch(
        Statement("SELECT setval(%s::regclass, %s, %s)", (_sql(session, name), given, is_over))
    )


def _facts(session: RelationalSession, name: TableName) -> tuple[int, int, int, int]:
    asked = _NEXT.format(table_sql(session.dialect, name))
    ((number, step, lowest, highest),) = session.fetch(Statement(asked, (_sql(session, name),)))
    return int(number), int(step), int(lowest), int(highest)


def _sql(session: RelationalSession, name: TableName) -> str:
    """As a value, in which a sign of percent is only that."""
    return table_sql(session.dialect, name).replace("%%", "%")
