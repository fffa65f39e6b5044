"""Long values that PostgreSQL leaves out of its log where they did not change.

A row whose key changes is another row to whoever reads the log. Its long values are then on no side of the log, and
nobody can say where they are to be found: the old row may be gone before, or may never have been copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from truecopy.engines.protocols import Statement
from truecopy.model.finding import Finding, Level, Subject
from truecopy.model.table import Table, TableName
from truecopy.model.types import Text, Uuid

# Of a partitioned table it is the partitions that are logged, and the table that says how they are read. What a column
# may hold at most is in its modifier.
_LONG_COLUMNS = """
SELECT n.nspname::text, c.relname::text, array_agg(a.attname::text ORDER BY a.attnum), bool_or(c.relkind = 'p')
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attstorage IN ('x', 'e')
WHERE c.relkind IN ('r', 'p') AND a.atttypmod < %s AND (a.atttypmod < 0 OR a.atttypmod > %s) AND EXISTS (
    SELECT FROM pg_class l WHERE l.relreplident <> 'f' AND (l.oid = c.oid
        OR c.relkind = 'p' AND l.oid IN (SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf)))
GROUP BY 1, 2
"""
_SHORT = 500
"""Columns of so few characters are hardly ever kept apart from their row."""
_MOST = 1 << 30


def log_whole_rows(table: str) -> str:
    """The statement after which changes of a table, quoted, are logged with all values."""
    return f"ALTER TABLE {table} REPLICA IDENTITY FULL"


def changed_keys(
    fetch: Callable[[Statement], list[tuple[Any, ...]]],
    quoted: Callable[[TableName], str],
    tables: Sequence[Table],
) -> Iterator[Finding]:
    """Tables of which a changed key cannot be carried; a key that the database gives is not changed by anybody."""
    found = fetch(Statement(_LONG_COLUMNS, (_MOST, _SHORT)))
    long = {(schema, table): columns for schema, table, columns, _ in found}
    partitioned = {(schema, table) for schema, table, _, is_partitioned in found if is_partitioned}
    for table in tables:
        key = table.keys[0] if table.keys else ()
        name = table.name.schema, table.name.table
        left_out = [
            column
            for column in long.get(name, ())
            if column not in key and table.column(column) is not None
        ]
        types = [column.type for column in table.columns if column.name in key]
        is_given = set(key) <= {*table.numbered} or all(isinstance(one, Uuid) for one in types)
        if not key or not left_out or is_given:
            continue
        parts = " and of each of its partitions" if name in partitioned else ""
        named = ", ".join(left_out[:3]) + (", …" if len(left_out) > 3 else "")
        yield Finding(
            Level.WARNING if any(isinstance(one, Text) for one in types) else Level.INFO,
            Subject.LOG,
            f"the log leaves out long values ({named}) that do not change: a row whose key ({', '.join(key)}) changes"
            " stops the run",
            f"{log_whole_rows(quoted(table.name))}{parts}, if keys change",
            str(table.name),
        )
