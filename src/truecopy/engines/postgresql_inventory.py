"""What a PostgreSQL database has beside its tables."""

from __future__ import annotations

from truecopy.engines.advice import Uncarried
from truecopy.engines.postgresql_schema import Fetch
from truecopy.engines.protocols import Statement

_OWN = "n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'"
# What an extension made comes with the extension.
_LOOSE = "NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = {0}.oid AND d.deptype = 'e')"
_RELATION = (
    "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relkind = '{0}' AND " + _OWN + " AND " + _LOOSE.format("c")
)
_KINDS = {
    "views": _RELATION.format("v"),
    "materialized views": _RELATION.format("m"),
    "foreign tables": _RELATION.format("f"),
    "partitioned tables": _RELATION.format("p"),
    "triggers": "SELECT t.tgname || ' on ' || t.tgrelid::regclass FROM pg_trigger t"
    " JOIN pg_class c ON c.oid = t.tgrelid"
    f" JOIN pg_namespace n ON n.oid = c.relnamespace WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND {_OWN}",
    "functions and procedures": "SELECT p.oid::regproc::text FROM pg_proc p"
    f" JOIN pg_namespace n ON n.oid = p.pronamespace WHERE {_OWN} AND {_LOOSE.format('p')}",
    "types": "SELECT t.oid::regtype::text FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace"
    " LEFT JOIN pg_class c ON c.oid = t.typrelid"
    f" WHERE (t.typtype IN ('e', 'd', 'r') OR c.relkind = 'c') AND {_OWN} AND {_LOOSE.format('t')}",
    # A sequence of a column goes with its column.
    "sequences": _RELATION.format("S")
    + " AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i'))",
    "rules": "SELECT r.rulename || ' on ' || r.ev_class::regclass FROM pg_rewrite r"
    " JOIN pg_class c ON c.oid = r.ev_class"
    f" JOIN pg_namespace n ON n.oid = c.relnamespace WHERE r.rulename <> '_RETURN' AND {_OWN}",
    "policies": "SELECT p.polname || ' on ' || p.polrelid::regclass FROM pg_policy p",
    "extensions": "SELECT extname::text FROM pg_extension WHERE extname <> 'plpgsql'",
    "event triggers": "SELECT evtname::text FROM pg_event_trigger",
    "grants": "SELECT DISTINCT COALESCE(quote_ident(r.rolname), 'PUBLIC') FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL aclexplode(c.relacl) a"
    f" LEFT JOIN pg_roles r ON r.oid = a.grantee WHERE a.grantee <> c.relowner AND {_OWN}",
}
_NOTES = {
    "sequences": "a cutover sets the numbers of those that the target has",
    "partitioned tables": "made as plain tables",
}


def inventory(fetch: Fetch) -> list[Uncarried]:
    """By kind."""
    found = []
    for kind, query in _KINDS.items():
        rows = fetch(Statement(f"{query} ORDER BY 1"))
        if rows:
            names = tuple(str(name) for (name,) in rows)
            found.append(Uncarried(kind, names, _NOTES.get(kind, "")))
    return found
