"""How a table of MySQL, MariaDB or TiDB is made: its columns, indexes and references."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from truecopy.engines.mysql_dialect import MySQLDialect, canonical_type, is_ordered_by
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.model.table import Column, ForeignKey, Index, TableName
from truecopy.model.types import Json, Text

Fetch = Callable[[Statement], list[tuple[Any, ...]]]

# Quoted texts and names are tokens of their own, so that nothing inside them looks like a check.
_JSON_CHECK = re.compile(
    r"CHECK \(json_valid\(`(?P<column>(?:[^`]|``)+)`\)\)"
    r"|'(?:[^'\\]|''|\\.)*'|`(?:[^`]|``)*`",
    re.DOTALL,
)
_GENERATED = re.compile(r"\b(VIRTUAL|STORED|PERSISTENT) GENERATED|INVISIBLE.*SYSTEM")


@dataclass(frozen=True)
class Columns:
    """The columns, and what is known of them beside their types; see `model.table.Table`."""

    columns: tuple[Column, ...]
    numbered: tuple[str, ...]
    collations: tuple[tuple[str, str], ...]
    defaulted: tuple[str, ...]
    uncarried: tuple[str, ...]


@dataclass(frozen=True)
class Indexes:
    """The primary key, whole unique keys with it first, and the other indexes."""

    primary: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]
    indexes: tuple[Index, ...]
    uncarried: tuple[str, ...]
    partly_unique: bool


def read_columns(fetch: Fetch, name: TableName, *, is_mariadb: bool) -> Columns:
    """The columns of a table in their order."""
    rows = fetch(
        Statement(
            "SELECT column_name, data_type, column_type, is_nullable, numeric_scale, datetime_precision,"
            " character_set_name, collation_name, extra, column_default FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (name.schema, name.table),
        )
    )
    documents = _json_checked(fetch, name) if is_mariadb else set()
    found, numbered, collations, defaulted, uncarried = [], [], [], [], []
    for row in rows:
        column, data_type, native, nullable, scale, fraction, charset, collation, extra, value = row
        kind = canonical_type(data_type.lower(), native.lower(), scale and int(scale))
        if isinstance(kind, Text) and column in documents:
            kind = Json("mariadb")
        generated = bool(_GENERATED.search(extra))
        found.append(
            Column(
                name=column,
                type=kind,
                native=native,
                nullable=nullable == "YES",
                order=is_ordered_by(data_type.lower(), kind, collation),
                fraction=int(scale or 0) if data_type == "decimal" else int(fraction or 0),
                charset=charset,
                padded=data_type == "char",
                generated=generated,
            )
        )
        if "auto_increment" in extra:
            numbered.append(column)
        if collation:
            collations.append((column, collation))
        if generated:
            uncarried.append(f"the expression of the computed column {column}")
        elif value not in (None, "NULL") or "on update" in extra.lower():
            defaulted.append(column)
            uncarried.append(f"the default of {column}")
    return Columns(
        tuple(found), tuple(numbered), tuple(collations), tuple(defaulted), tuple(uncarried)
    )


def _json_checked(fetch: Fetch, name: TableName) -> set[str]:
    """MariaDB keeps JSON as LONGTEXT with a check; the check tells it from other text.

    Read from the statement that makes the table: information_schema hides checks from a user who
    has SELECT on the table and no other right.
    """
    table = table_sql(MySQLDialect(), name)
    ((_, definition),) = fetch(Statement(f"SHOW CREATE TABLE {table}"))
    checked = (token["column"] for token in _JSON_CHECK.finditer(definition))
    return {column.replace("``", "`") for column in checked if column is not None}


def read_indexes(fetch: Fetch, name: TableName) -> Indexes:
    """Indexes over columns; those over expressions or words are only named."""
    rows = fetch(
        Statement(
            "SELECT index_name, column_name, sub_part, non_unique, index_type"
            " FROM information_schema.statistics"
            " WHERE table_schema = %s AND table_name = %s ORDER BY index_name, seq_in_index",
            (name.schema, name.table),
        )
    )
    parts: dict[str, list[tuple[Any, ...]]] = {}
    for index, *part in rows:
        parts.setdefault(index, []).append(tuple(part))
    keys, found, uncarried, partly_unique = [], [], [], False
    for index, columns in parts.items():
        names = tuple(str(column) for column, *_ in columns)
        prefixes = tuple(None if part is None else int(part) for _, part, *_ in columns)
        unique = not int(columns[0][2])
        kind = str(columns[0][3])
        if any(column is None for column, *_ in columns) or kind not in ("BTREE", "HASH", "LSM"):
            uncarried.append(f"the index {index} ({kind})")
            partly_unique |= unique
            continue
        whole = not any(prefixes)
        partly_unique |= unique and not whole
        if unique and whole:
            keys.append((index, names))
        if index != "PRIMARY":
            found.append(Index(index, names, unique, () if whole else prefixes))
    keys.sort(key=lambda item: (item[0] != "PRIMARY", len(item[1]), item[0]))
    return Indexes(
        primary=dict(keys).get("PRIMARY", ()),
        unique=tuple(columns for _, columns in keys),
        indexes=tuple(sorted(found, key=lambda index: (not index.unique, index.name))),
        uncarried=tuple(uncarried),
        partly_unique=partly_unique,
    )


def taken_names(fetch: Fetch, name: TableName) -> list[str]:
    """What no other index of a table may be called."""
    rows = fetch(
        Statement(
            "SELECT DISTINCT index_name FROM information_schema.statistics"
            " WHERE table_schema = %s AND table_name = %s",
            (name.schema, name.table),
        )
    )
    return [name for (name,) in rows]


def read_foreign_keys(fetch: Fetch, name: TableName) -> tuple[ForeignKey, ...]:
    """The references to other tables."""
    rows = fetch(
        Statement(
            "SELECT constraint_name, column_name, referenced_table_schema, referenced_table_name,"
            " referenced_column_name FROM information_schema.key_column_usage"
            " WHERE table_schema = %s AND table_name = %s AND referenced_table_name IS NOT NULL"
            " ORDER BY constraint_name, ordinal_position",
            (name.schema, name.table),
        )
    )
    if not rows:
        return ()
    rules = {
        constraint: (on_delete, on_update)
        for constraint, on_delete, on_update in fetch(
            Statement(
                "SELECT constraint_name, delete_rule, update_rule"
                " FROM information_schema.referential_constraints"
                " WHERE constraint_schema = %s AND table_name = %s",
                (name.schema, name.table),
            )
        )
    }
    found: dict[str, list[tuple[str, TableName, str]]] = {}
    for constraint, column, schema, table, referenced in rows:
        found.setdefault(constraint, []).append((column, TableName(schema, table), referenced))
    return tuple(
        ForeignKey(
            tuple(column for column, _, _ in parts),
            parts[0][1],
            tuple(referenced for _, _, referenced in parts),
            *rules.get(constraint, ("NO ACTION", "NO ACTION")),
        )
        for constraint, parts in found.items()
    )
