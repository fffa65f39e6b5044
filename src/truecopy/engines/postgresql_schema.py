"""How a PostgreSQL table is made: its columns, keys and references, from the catalogs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from truecopy.engines.postgresql_dialect import PostgreSQLDialect, canonical_type, order_of
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.model.table import Column, ForeignKey, Index, Table, TableName
from truecopy.model.types import Array, Decimal, Unsupported

Fetch = Callable[[Statement], list[tuple[Any, ...]]]

_OWN_SCHEMAS = "n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'"
# current_schemas() leaves out those that the user may not use; such a table is there all the same.
_ON_SEARCH_PATH = """(n.nspname = ANY (current_schemas(false)) OR quote_ident(n.nspname) = ANY (
    regexp_split_to_array(
        replace(current_setting('search_path'), '"$user"', quote_ident(current_user)), '\\s*,\\s*')))"""
_REFUSED = {
    "v": "a view: verify the tables that it reads from",
    "m": "a materialized view: verify the tables that it reads from",
    "f": "a foreign table: verify it on the server that holds it",
}
_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT attnum, atttypid AS type, atttypmod AS modifier FROM pg_attribute
    WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT b.attnum, t.typbasetype, t.typtypmod
    FROM base b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd'
)
SELECT a.attname::text, format_type(t.oid, b.modifier), b.modifier, a.attnotnull,
    a.attgenerated <> '', e.oid IS NOT NULL, COALESCE(e.typname, t.typname)::text,
    COALESCE(e.typtype, t.typtype) = 'e',
    to_jsonb(c) || jsonb_build_object(
        'actual', CASE WHEN c.collprovider <> 'd' THEN pg_collation_actual_version(c.oid) END)
FROM base b
JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd'
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
JOIN pg_attribute a ON a.attrelid = %s AND a.attnum = b.attnum
LEFT JOIN pg_collation c ON c.oid = a.attcollation
ORDER BY a.attnum
"""
# A key that can be deferred is no replica identity: it is the last choice.
_UNIQUE = """
SELECT array_agg(a.attname::text ORDER BY k.place)
FROM pg_index i
JOIN pg_class x ON x.oid = i.indexrelid
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
    AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indimmediate, i.indisprimary, x.relname
ORDER BY i.indimmediate DESC, i.indisprimary DESC, count(*), x.relname
"""
_FOREIGN = """
SELECT array_agg(a.attname::text ORDER BY k.place), min(n.nspname::text), min(p.relname::text),
    array_agg(o.attname::text ORDER BY k.place), min(f.confdeltype::text), min(f.confupdtype::text)
FROM pg_constraint f
CROSS JOIN LATERAL unnest(f.conkey, f.confkey) WITH ORDINALITY AS k(number, other, place)
JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.number
JOIN pg_attribute o ON o.attrelid = f.confrelid AND o.attnum = k.other
JOIN pg_class p ON p.oid = f.confrelid
JOIN pg_namespace n ON n.oid = p.relnamespace
WHERE f.conrelid = %s AND f.contype = 'f' GROUP BY f.oid, f.conname ORDER BY f.conname
"""
_ACTIONS = {"a": "NO ACTION", "r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}
_INDEXES = """
SELECT x.relname::text, i.indisunique, i.indisprimary, m.amname::text,
    array_agg(a.attname::text ORDER BY k.place) FILTER (WHERE k.place <= i.indnkeyatts),
    i.indpred IS NULL AND i.indexprs IS NULL
FROM pg_index i
JOIN pg_class x ON x.oid = i.indexrelid
JOIN pg_am m ON m.oid = x.relam
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND i.indisvalid
GROUP BY x.relname, i.indisunique, i.indisprimary, m.amname, i.indpred IS NULL, i.indexprs IS NULL
ORDER BY NOT i.indisunique, x.relname
"""
_DETAILS = """
SELECT a.attname::text, a.attidentity <> '' OR s.oid IS NOT NULL, a.attgenerated <> '',
    a.atthasdef AND s.oid IS NULL AND a.attgenerated = '',
    CASE WHEN c.collname <> 'default' AND a.attcollation <> t.typcollation
        THEN quote_ident(n.nspname) || '.' || quote_ident(c.collname) END
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_collation c ON c.oid = a.attcollation
LEFT JOIN pg_namespace n ON n.oid = c.collnamespace
LEFT JOIN pg_class s ON s.relkind = 'S' AND s.oid =
    to_regclass(pg_get_serial_sequence(a.attrelid::regclass::text, a.attname::text))
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_CHECKS = "SELECT conname::text FROM pg_constraint WHERE conrelid = %s AND contype IN ('c', 'x') ORDER BY 1"
# Whoever reads a table reads them as well; those that are temporary are seen by their own session only.
_CHILDREN = """
SELECT n.nspname::text, c.relname::text FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = %s AND NOT c.relispartition AND c.relpersistence <> 't' ORDER BY 1, 2
"""
# A partitioned table has no rows of its own: its leaves do. The estimate is as old as the last ANALYZE; as the planner
# does, only the rows of a page are taken from it, and how many pages there are from the file.
_SIZE = """
SELECT bool_and(c.reltuples >= 0 AND (c.relpages > 0 OR pg_relation_size(c.oid) = 0)),
    sum(c.reltuples::float8 * pg_relation_size(c.oid) / current_setting('block_size')::int
        / greatest(c.relpages, 1))::bigint,
    sum(pg_table_size(c.oid))::bigint
FROM pg_class c WHERE c.relkind = 'r' AND c.oid IN
    (SELECT relid FROM pg_partition_tree(%s) UNION ALL SELECT %s)
"""


def list_tables(fetch: Fetch) -> list[TableName]:
    """Tables that hold data of their own: no partitions, nothing temporary."""
    rows = fetch(
        Statement(
            "SELECT n.nspname::text, c.relname::text FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'"
            f" AND {_OWN_SCHEMAS} ORDER BY 1, 2"
        )
    )
    return [TableName(*row) for row in rows]


def home_schema(fetch: Fetch) -> str | None:
    """The first schema of the search path that has tables: that of the user's own name may be there without any."""
    ((name,),) = fetch(
        Statement(
            "SELECT coalesce((SELECT n.nspname FROM pg_namespace n WHERE n.nspname = ANY (current_schemas(false))"
            " AND EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p'))"
            " ORDER BY array_position(current_schemas(false), n.nspname) LIMIT 1), current_schema())::text"
        )
    )
    return str(name) if name is not None else None


def find_table(fetch: Fetch, name: str) -> TableName | None:
    """The relation of that name, as it is written or else in lower case, as if unquoted."""
    cuts = [at for at, character in enumerate(name) if character == "."]
    for text in dict.fromkeys((name, name.lower())):
        places = [("", text), *((text[:at], text[at + 1 :]) for at in cuts)]
        for schema, table in places:
            rows = fetch(
                Statement(
                    "SELECT n.nspname::text, c.relname::text FROM pg_class c"
                    " JOIN pg_namespace n ON n.oid = c.relnamespace"
                    " WHERE c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"
                    f" AND (n.nspname = %s OR %s = '' AND {_ON_SEARCH_PATH})"
                    " ORDER BY array_position(current_schemas(false), n.nspname) LIMIT 1",
                    (table, schema, schema),
                )
            )
            if rows:
                return TableName(*rows[0])
    return None


def describe_table(
    fetch: Fetch, dialect: PostgreSQLDialect, endpoint: Endpoint, name: TableName
) -> Table:
    """The definition of a table; what is no table is refused with the reason."""
    rows = fetch(
        Statement(
            "SELECT c.oid, c.relkind::text FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')",
            (name.schema, name.table),
        )
    )
    if not rows:
        raise UsageError(f"there is no table {name} on {endpoint}")
    table, kind = rows[0]
    if kind in _REFUSED:
        raise UsageError(f"{name} on {endpoint} is {_REFUSED[kind]}")
    columns = describe_columns(fetch, dialect, table)
    required = {column.name for column in columns if not column.nullable}
    unique = unique_keys(fetch, table)
    count, row_bytes = _size(fetch, dialect, table, name)
    return Table(
        name=name,
        columns=columns,
        keys=tuple(key for key in unique if required.issuperset(key)),
        unique=unique,
        foreign_keys=tuple(
            ForeignKey(
                tuple(own),
                TableName(schema, parent),
                tuple(others),
                _ACTIONS[on_delete],
                _ACTIONS[on_update],
            )
            for own, schema, parent, others, on_delete, on_update in fetch(
                Statement(_FOREIGN, (table,))
            )
        ),
        rows=count,
        row_bytes=row_bytes,
        engine="postgresql",
        children=tuple(TableName(*row) for row in fetch(Statement(_CHILDREN, (table,)))),
        **_details(fetch, table),
    )


def _details(fetch: Fetch, table: int) -> dict[str, Any]:
    """What only a table made from the description needs: indexes, numbering, collations."""
    primary: tuple[str, ...] = ()
    indexes, uncarried, partly_unique = [], [], False
    for name, unique, is_primary, method, columns, is_plain in fetch(Statement(_INDEXES, (table,))):
        if is_primary:
            primary = tuple(columns)
        elif is_plain and method in ("btree", "hash"):
            indexes.append(Index(name, tuple(columns), unique))
        else:
            uncarried.append(f"the index {name} ({method})")
            partly_unique |= unique
    numbered, collations, defaulted = [], [], []
    for name, is_numbered, generated, has_default, collation in fetch(
        Statement(_DETAILS, (table,))
    ):
        if is_numbered:
            numbered.append(name)
        if collation:
            collations.append((name, collation))
        if generated:
            uncarried.append(f"the expression of the computed column {name}")
        if has_default:
            defaulted.append(name)
            uncarried.append(f"the default of {name}")
    uncarried += [f"the check {name}" for (name,) in fetch(Statement(_CHECKS, (table,)))]
    return {
        "primary": primary,
        "indexes": tuple(indexes),
        "numbered": tuple(numbered),
        "next_number": _next_number(fetch, table, numbered[0]) if len(numbered) == 1 else None,
        "collations": tuple(collations),
        "defaulted": tuple(defaulted),
        "uncarried": tuple(uncarried),
        "partly_unique": partly_unique,
    }


def _next_number(fetch: Fetch, table: int, column: str) -> int | None:
    """None where the sequence was never used, or hides its numbers from the user."""
    ((last,),) = fetch(
        Statement(
            "SELECT CASE WHEN has_sequence_privilege(s, 'USAGE, SELECT')"
            " THEN pg_sequence_last_value(s) END FROM (SELECT"
            " pg_get_serial_sequence(%s::regclass::text, %s)::regclass AS s) AS t",
            (table, column),
        )
    )
    return None if last is None else int(last) + 1


def taken_names(fetch: Fetch, schema: str | None) -> list[str]:
    """What no index of a schema may be called: its tables, sequences and indexes have one namespace."""
    rows = fetch(
        Statement(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = coalesce(%s, current_schema())",
            (schema,),
        )
    )
    return [name for (name,) in rows]


def unique_keys(fetch: Fetch, table: int) -> tuple[tuple[str, ...], ...]:
    """Every unique constraint of the table with this object id, the primary key first, deferrable ones last."""
    return tuple(tuple(key) for (key,) in fetch(Statement(_UNIQUE, (table,))))


def describe_columns(fetch: Fetch, dialect: PostgreSQLDialect, table: int) -> tuple[Column, ...]:
    """The columns of the table with this object id; none where there is no such table."""
    database = _database(fetch)
    found = []
    for name, native, modifier, required, generated, is_array, base, is_enum, collation in fetch(
        Statement(_COLUMNS, (table, table))
    ):
        kind = canonical_type(base, is_enum, modifier, native)
        fraction = kind.scale if isinstance(kind, Decimal) else None
        if is_array and not isinstance(kind, Unsupported):
            kind = Array(kind)
        found.append(
            Column(
                name=name,
                type=kind,
                native=native,
                nullable=not required,
                order=order_of(base, kind, collation, database, dialect.encoding),
                fraction=fraction,
                padded=base == "bpchar",
                generated=generated,
            )
        )
    return tuple(found)


def _database(fetch: Fetch) -> dict[str, object]:
    """The row of `pg_database`, whose columns differ by version, with the library's version."""
    ((version,),) = fetch(Statement("SELECT current_setting('server_version_num')::int"))
    # Before 15 only collations told their version; all those of the C library have the same.
    actual = (
        "pg_database_collation_actual_version(d.oid)"
        if version >= 150000
        else "(SELECT max(pg_collation_actual_version(oid))"
        " FROM pg_collation WHERE collprovider = 'c')"
    )
    ((row,),) = fetch(
        Statement(
            f"SELECT to_jsonb(d) || jsonb_build_object('actual', {actual}) FROM pg_database d"
            " WHERE d.datname = current_database()"
        )
    )
    return dict(row)


def _size(fetch: Fetch, dialect: PostgreSQLDialect, table: int, name: TableName) -> tuple[int, int]:
    """Rows, counted where the server has no estimate, and bytes of an average row."""
    known, estimate, size = fetch(Statement(_SIZE, (table, table)))[0]
    count = int(estimate or 0)
    if not known or not count:
        ((count,),) = fetch(Statement(f"SELECT count(*) FROM {table_sql(dialect, name)}"))
    return count, max(16, int(size or 0) // count if count else 100)
