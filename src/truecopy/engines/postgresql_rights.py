"""What a user of PostgreSQL may read, and the GRANT that is missing."""

from __future__ import annotations

from collections.abc import Sequence

from truecopy.engines.postgresql_schema import Fetch
from truecopy.engines.protocols import Statement
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import Denied
from truecopy.model.table import TableName

# The functions follow roles and PUBLIC, and know what superusers and owners may do.
_RIGHTS = """
SELECT quote_ident(current_user), quote_ident(n.nspname), format('%%I.%%I', n.nspname, c.relname),
    has_schema_privilege(n.oid, 'USAGE'), has_any_column_privilege(c.oid, 'SELECT'),
    ARRAY(
        SELECT quote_ident(a.attname) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attname::text = ANY (%s::text[])
            AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT')
        ORDER BY a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
"""


def require_select(
    fetch: Fetch, endpoint: Endpoint, name: TableName, columns: Sequence[str] = ()
) -> None:
    """Refuses a table of which the user may read nothing, or not all of these columns."""
    values = (list(columns), name.schema, name.table)
    for user, schema, table, usage, some_column, denied in fetch(Statement(_RIGHTS, values)):
        lacking = [] if usage else [f"USAGE ON SCHEMA {schema}"]
        if not some_column:
            lacking.append(f"SELECT ON {table}")
        elif denied:
            lacking.append(f"SELECT ({', '.join(denied)}) ON {table}")
        if lacking:
            rights = " and ".join(right.split()[0] for right in lacking)
            grants = "; ".join(f"GRANT {right} TO {user}" for right in lacking)
            raise Denied(f"{user} lacks {rights} to read {name} on {endpoint}: {grants}")
