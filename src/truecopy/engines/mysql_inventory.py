"""What a database of MySQL or MariaDB has beside its tables."""

from __future__ import annotations

from truecopy.engines.advice import Uncarried
from truecopy.engines.protocols import Statement
from truecopy.engines.relational import RelationalSession
from truecopy.model.errors import TruecopyError

_KINDS = {
    "views": "SELECT table_name FROM information_schema.views WHERE table_schema = %s",
    "triggers": "SELECT CONCAT(trigger_name, ' on ', event_object_table) FROM information_schema.triggers"
    " WHERE trigger_schema = %s",
    "procedures and functions": "SELECT routine_name FROM information_schema.routines WHERE routine_schema = %s",
    "events": "SELECT event_name FROM information_schema.events WHERE event_schema = %s",
    "sequences": "SELECT table_name FROM information_schema.tables"
    " WHERE table_schema = %s AND table_type = 'SEQUENCE'",
    "partitions": "SELECT DISTINCT table_name FROM information_schema.partitions"
    " WHERE table_schema = %s AND partition_name IS NOT NULL",
    "checks": "SELECT CONCAT(c.constraint_name, ' on ', t.table_name) FROM information_schema.check_constraints c"
    " JOIN information_schema.table_constraints t ON t.constraint_schema = c.constraint_schema"
    " AND t.constraint_name = c.constraint_name AND t.constraint_type = 'CHECK'{same_table}"
    " WHERE c.constraint_schema = %s AND c.check_clause NOT LIKE 'json_valid(%%'",
    "grants": "SELECT grantee FROM information_schema.schema_privileges WHERE table_schema = %s"
    " UNION SELECT grantee FROM information_schema.table_privileges WHERE table_schema = %s",
}
_NOTES = {
    "sequences": "a cutover sets the numbers of those that the target has",
    "partitions": "tables are made without",
    "grants": "as far as this user may see them",
}


def inventory(session: RelationalSession, *, is_mariadb: bool) -> list[Uncarried]:
    """By kind; what the server does not know, or hides, is left out."""
    found = []
    same_table = " AND t.table_name = c.table_name" if is_mariadb else ""
    for kind, query in _KINDS.items():
        values = (session.endpoint.database,) * query.count("%s")
        text = query.replace("{same_table}", same_table) + " ORDER BY 1"
        try:
            rows = session.fetch(Statement(text, values))
        except TruecopyError:
            continue
        if rows:
            names = tuple(str(name) for (name,) in rows)
            found.append(Uncarried(kind, names, _NOTES.get(kind, "")))
    return found
