"""What filtered replication recorded in a shard's log: which source transactions it has applied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from truecopy.model.change import ORIGIN_TABLE, OWN_PREFIX, Definition
from truecopy.stream.binlog import walk
from truecopy.stream.binlog.ddl import parse_statement
from truecopy.stream.binlog.events import Query
from truecopy.stream.binlog.logged_table import LoggedTable, Origin
from truecopy.stream.binlog.table_map import parse_names, parse_table_map
from truecopy.stream.binlog.walk import INSERTED, Walk


def changing_transactions(walked: Walk, definition: Definition) -> Iterator[Origin | None]:
    """Every transaction that changed rows of the database: its origin, if it has one.

    The walk stands at the transaction's end then.

    Args:
        walked: Through the log.
        definition: Of the table that records origins.
    """
    table: LoggedTable | None = None
    home = definition.table.partition(".")[0]
    number, found, has_rows = b"", None, False
    for what, detail, buf, start, end in walked.steps():
        if what == walk.TABLE:
            raw = buf[start:end]
            database, name = parse_names(raw)
            if f"{database}.{name}" == definition.table:
                number = raw[:6]
                table = table or LoggedTable(parse_table_map(raw), definition, keys_only=False)
            # A ledger that moves by itself brings nothing.
            is_own = name.startswith(OWN_PREFIX) and name != ORIGIN_TABLE
            has_rows = has_rows or (database == home and not is_own)
        elif what == walk.ROWS:
            if table is not None and buf[start : start + 6] == number:
                found = table.origin(*table.open_rows(detail, buf, start, end))
                found = replace(found, begins=detail.change == INSERTED)
        elif what == walk.STATEMENT:
            has_rows = has_rows or _changes_rows(detail, home)
        elif what == walk.END:
            if has_rows:
                yield found
            number, found, has_rows = b"", None, False


def _changes_rows(query: Query, home: str) -> bool:
    statement = parse_statement(query.text, query.database)
    if statement.kind == "rows":
        return query.database == home
    return statement.empties and any(database == home for database, _ in statement.tables)
