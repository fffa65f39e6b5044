"""What the log says of a table, completed from the catalogs into a definition that decodes its rows.

The log names types by object id; what they are called is a pure function of the catalogs. Whatever
else a definition holds (NOT NULL, orders, the key behind whole-row identity) is taken from the table as it
is when the receiver first hears of it, and kept with the segments, so that rows read later or twice
have the same definition.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from truecopy.engines.postgresql import PostgreSQL
from truecopy.engines.postgresql_dialect import canonical_type
from truecopy.engines.postgresql_schema import describe_columns, unique_keys
from truecopy.engines.protocols import Statement
from truecopy.model.change import Definition
from truecopy.model.table import Column, TableName
from truecopy.model.types import Array, Decimal, Unsupported
from truecopy.stream.postgresql.folder import Folder, open_folder
from truecopy.stream.postgresql.pgoutput import LoggedColumn, LoggedRelation
from truecopy.stream.postgresql.spool import RELATION

_WHOLE_ROWS = "f"

_TYPES = """
WITH RECURSIVE base AS (
    SELECT place, type::oid, modifier
    FROM unnest(%s::bigint[], %s::int[]) WITH ORDINALITY AS given(type, modifier, place)
    UNION ALL
    SELECT b.place, t.typbasetype, t.typtypmod
    FROM base b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd'
)
SELECT b.place, format_type(t.oid, b.modifier), b.modifier, e.oid IS NOT NULL,
    COALESCE(e.typname, t.typname)::text, COALESCE(e.typtype, t.typtype) = 'e'
FROM base b
JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd'
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
"""
_ATTRIBUTES = """
SELECT attname::text, atttypid::bigint, atttypmod FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
"""


@dataclass(frozen=True)
class StreamedRelation:
    """A table's definition, with what its text decoder has to know.

    Attributes:
        bases: The base type of each column, or of its elements, as `pg_type` names it.
        whole_rows: The log has the whole row before a change, not only its key.
    """

    definition: Definition
    bases: tuple[str, ...]
    whole_rows: bool

    def to_json(self) -> str:
        plain = {
            "definition": self.definition.to_json(),
            "bases": self.bases,
            "whole_rows": self.whole_rows,
        }
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StreamedRelation:
        plain = json.loads(text)
        definition = Definition.from_json(plain["definition"])
        return cls(definition, tuple(plain["bases"]), plain["whole_rows"])

    @cached_property
    def name(self) -> str:
        """Names the content: 16 letters, the same in every process."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


def store_relation(folder: Folder, relation: StreamedRelation) -> None:
    """Keeps a definition beside the segments that refer to it."""
    if folder.read(relation.name + RELATION) is None:
        folder.write(relation.name + RELATION, relation.to_json().encode())


@lru_cache(maxsize=4096)
def load_relation(where: str, name: str) -> StreamedRelation:
    """The definition of that name."""
    folder = open_folder(where)
    data = folder.read(name + RELATION)
    if data is None:
        raise folder.lacks(name + RELATION)
    return StreamedRelation.from_json(data.decode())


def resolve_relation(session: PostgreSQL, logged: LoggedRelation) -> StreamedRelation:
    """The definition that a Relation message stands for.

    The catalogs are read in one snapshot: a table that is altered between two looks would get the columns of the
    second one, under the check of the first.
    """
    session.execute(Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))
    try:
        return _resolve(session, logged)
    finally:
        session.rollback()


def _resolve(session: PostgreSQL, logged: LoggedRelation) -> StreamedRelation:
    types = _types(session, logged.columns)
    attributes = {
        name: (type_oid, modifier)
        for name, type_oid, modifier in session.fetch(Statement(_ATTRIBUTES, (logged.oid,)))
    }
    described = {
        column.name: column
        for column in describe_columns(session.fetch, session.dialect, logged.oid)
    }
    columns, bases = [], []
    for column, (from_type, base) in zip(logged.columns, types, strict=True):
        # The table may have been changed since: then the message is right, and the catalogs are not.
        same = attributes.get(column.name) == (column.type_oid, column.modifier)
        columns.append(described.get(column.name, from_type) if same else from_type)
        bases.append(base)
    definition = Definition(
        str(TableName(logged.schema, logged.table)),
        tuple(columns),
        _key(logged, columns, unique_keys(session.fetch, logged.oid)),
    )
    return StreamedRelation(definition, tuple(bases), logged.identity == _WHOLE_ROWS)


def _types(session: PostgreSQL, columns: Sequence[LoggedColumn]) -> list[tuple[Column, str]]:
    """Each column as its type alone describes it, and the name of its base type."""
    given = ([column.type_oid for column in columns], [column.modifier for column in columns])
    found = {row[0]: row[1:] for row in session.fetch(Statement(_TYPES, given))}
    typed = []
    for place, column in enumerate(columns, 1):
        if place not in found:
            gone = f"a type that was dropped since ({column.type_oid})"
            typed.append((Column(column.name, Unsupported(f"{gone} has no text"), gone), ""))
            continue
        native, modifier, is_array, base, is_enum = found[place]
        kind = canonical_type(base, is_enum, modifier, native)
        fraction = kind.scale if isinstance(kind, Decimal) else None
        if is_array and not isinstance(kind, Unsupported):
            kind = Array(kind)
        padded = base == "bpchar"
        typed.append(
            (Column(column.name, kind, native, fraction=fraction, padded=padded), str(base))
        )
    return typed


def _key(
    logged: LoggedRelation, columns: Sequence[Column], unique: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """The replica identity, in the order of its index; for whole rows, the key that the table has."""
    if logged.identity == _WHOLE_ROWS:
        required = {column.name for column in columns if not column.nullable}
        return next((key for key in unique if required.issuperset(key)), ())
    flagged = tuple(column.name for column in logged.columns if column.is_key)
    return next((key for key in unique if set(key) == set(flagged)), flagged)
