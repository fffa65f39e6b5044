"""Sequences of MariaDB, which MySQL does not have."""

from __future__ import annotations

from truecopy.engines.protocols import Statement
from truecopy.engines.relational import RelationalSession
from truecopy.engines.sql import table_sql
from truecopy.model.table import TableName

_NAMES = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_schema = %s AND table_type = 'SEQUENCE' ORDER BY 2
"""


def next_numbers(session: RelationalSession) -> dict[TableName, int | None]:
    """Numbers that a server has in its memory, and may have given, are passed over."""
    found: dict[TableName, int | None] = {}
    for schema, name in session.fetch(Statement(_NAMES, (session.endpoint.database,))):
        sequence = TableName(str(schema), str(name))
        asked = f"SELECT next_not_cached_value FROM {table_sql(session.dialect, sequence)}"
        ((number,),) = session.fetch(Statement(asked))
        found[sequence] = int(number)
    return found


def advance(
    session: RelationalSession, name: TableName, number: int, annotation: str | None
) -> None:
    """One that would have to go back stays as it is: SETVAL does not do that."""
    sequence = table_sql(session.dialect, name)
    limits = f"SELECT minimum_value, maximum_value FROM {sequence}"
    ((lowest, highest),) = session.fetch(Statement(limits))
    given = min(max(number, int(lowest)), int(highest))
    mark = f"/* {annotation} */ " if annotation else ""
    # One that has run out is told its last number, and that it was given.
    setting = f"{mark}SELECT SETVAL({sequence}, {given:d}, {int(given != number)})"
    session.fetch(Statement(setting.replace("%", "%%")))
