"""Replica identities: what PostgreSQL's log has of a row that is changed.

Without one, a published table refuses every UPDATE and DELETE. The server takes it from where the row is: each
partition has one of its own, whatever that of its table is, and a key whose check can be deferred is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from truecopy.engines.postgresql_dialect import PostgreSQLDialect
from truecopy.engines.postgresql_left_out import log_whole_rows
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.model.table import TableName

_SHOWN = 3
"""How many tables of a long list are named."""

# Changes come under the name of the table, and as its identity says: a partition must log at least as much.
_LACKING = """
WITH logged AS (
    SELECT l.oid, l.relnamespace, l.relname, l.relreplident = 'f' AS whole, ARRAY(
        SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = l.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])) AS key
    FROM pg_class l LEFT JOIN pg_index i ON i.indrelid = l.oid AND i.indisunique AND i.indisvalid
        AND i.indimmediate AND i.indpred IS NULL
        AND CASE l.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
    WHERE l.relkind IN ('r', 'p')
), held AS (
    SELECT oid AS whole, oid AS part FROM pg_class WHERE relkind IN ('r', 'p')
    UNION
    SELECT c.oid, t.relid FROM pg_class c CROSS JOIN LATERAL pg_partition_tree(c.oid) t
    WHERE c.relkind = 'p' AND NOT c.relispartition AND t.isleaf
)
SELECT rn.nspname::text, r.relname::text, pn.nspname::text, p.relname::text
FROM held JOIN logged r ON r.oid = held.whole JOIN logged p ON p.oid = held.part
JOIN pg_namespace rn ON rn.oid = r.relnamespace JOIN pg_namespace pn ON pn.oid = p.relnamespace
WHERE NOT (p.whole OR NOT r.whole AND r.key <> '{}' AND p.key @> r.key)
ORDER BY 1, 2, held.part <> held.whole, 3, 4
"""


def lacking_identity(
    fetch: Callable[[Statement], list[tuple[Any, ...]]],
) -> dict[TableName, tuple[TableName, ...]]:
    """The tables without a replica identity: of each, itself and its partitions, as far as they lack one."""
    found: dict[TableName, tuple[TableName, ...]] = {}
    for schema, table, part_schema, part in fetch(Statement(_LACKING)):
        name = TableName(schema, table)
        found[name] = (*found.get(name, ()), TableName(part_schema, part))
    return found


def identity_missing(
    dialect: PostgreSQLDialect, name: TableName, lacking: Sequence[TableName]
) -> str:
    """Why such a table cannot be published, with the remedy behind the colon."""
    shown, more = lacking[:_SHOWN], len(lacking[_SHOWN:])
    said = "it has no replica identity"
    if [*lacking] != [name]:
        names = ", ".join(map(str, shown)) + (f" and {more} more" if more else "")
        said = f"it is partitioned, and a partition needs a replica identity of its own, which {names} lack"
    statements = "; ".join(log_whole_rows(table_sql(dialect, one)) for one in shown)
    key = "give it a primary key, or " if name in lacking else ""
    rest = f"; and so for {more} more" if more else ""
    return f"{said}, so the log cannot say which row was changed: {key}{statements}{rest}"
