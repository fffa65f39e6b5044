"""What the triggers must know of a SQLite table: its columns, its key, and whatever makes rows conflict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from truecopy.engines.protocols import Statement
from truecopy.engines.sqlite_schema import Fetch, read_columns
from truecopy.model.change import Definition
from truecopy.model.errors import UsageError
from truecopy.model.table import Column, TableName

PREFIX = "truecopy_"
WIDEST = 990
"""Columns of a table that can be logged: SQLite allows 2000, and an update has two images."""

_ROW_NAMES = "rowid", "_rowid_", "oid"
_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\]
      | --[^\n]* | /\*.*?\*/ | \w+ | .""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class Term:
    """One column of a unique index.

    Attributes:
        column: Its name; None for an expression.
        expression: Its text as the index has it; empty for a column.
        collation: By which the index tells values apart.
    """

    column: str | None
    expression: str
    collation: str


@dataclass(frozen=True)
class Unique:
    """A unique index, the primary key's included: rows that agree on all terms conflict.

    Attributes:
        where: The condition of a partial index, as the index has it.
    """

    terms: tuple[Term, ...]
    where: str = ""


@dataclass(frozen=True)
class Facts:
    """A table, as far as its triggers depend on it.

    Attributes:
        row: How the row's own number is called here; None for a table WITHOUT ROWID.
        primary: The primary key of a table WITHOUT ROWID, which tells its rows apart.
        key_collations: How the key's index compares the key's columns.
        defaults: Of columns that are NOT NULL: OR REPLACE puts them where a NULL was given.
        inserts_nested: Whether a trigger of the application inserts into this table.
    """

    definition: Definition
    row: str | None
    primary: tuple[Term, ...]
    key_collations: tuple[str, ...]
    unique: tuple[Unique, ...]
    defaults: tuple[tuple[str, str], ...]
    inserts_nested: bool

    @property
    def table(self) -> str:
        return self.definition.table


def read_facts(fetch: Fetch, table: str, definition: str, *, strict: bool, rowid: bool) -> Facts:
    """The facts of the table whose CREATE statement is `definition`."""
    columns, primary = read_columns(fetch, TableName(None, table), definition, strict)
    if len(columns) > WIDEST:
        raise UsageError(
            f"the table {table} has {len(columns)} columns, and at most {WIDEST} can be logged:"
            " name the tables to stream, without this one"
        )
    names = {column.name.lower() for column in columns}
    row = next((name for name in _ROW_NAMES if name not in names), None) if rowid else None
    if rowid and row is None:
        raise UsageError(
            f"the columns of {table} take all the names of the row's number (rowid, _rowid_, oid):"
            " rename one, or name the tables to stream, without this one"
        )
    indexes = _unique_indexes(fetch, table)
    whole = [(index, _columns_of(index)) for index, _ in indexes]
    key = _choose_key(columns, primary, [names for index, names in whole if not index.where])
    return Facts(
        definition=Definition(table, columns, key),
        row=row,
        primary=next((index.terms for index, origin in indexes if origin == "pk" and not row), ()),
        key_collations=_collations(key, [index for index, names in whole if names == key]),
        unique=tuple(index for index, _ in indexes),
        defaults=_defaults(fetch, table),
        inserts_nested=_inserts_nested(fetch, table),
    )


def _choose_key(
    columns: tuple[Column, ...], primary: tuple[str, ...], unique: list[tuple[str, ...] | None]
) -> tuple[str, ...]:
    """The primary key, whatever it holds now; else the narrowest unique key without NULLs."""
    if primary:
        return primary
    required = {column.name for column in columns if not column.nullable}
    fitting = [key for key in unique if key and required.issuperset(key)]
    return min(fitting, key=lambda key: (len(key), key), default=())


def _collations(key: tuple[str, ...], indexes: list[Unique]) -> tuple[str, ...]:
    # The alias of the row's number has no index, and compares integers.
    return tuple(term.collation for term in indexes[0].terms) if indexes else ("BINARY",) * len(key)


def _columns_of(index: Unique) -> tuple[str, ...] | None:
    names = tuple(term.column for term in index.terms)
    return tuple(name for name in names if name) if all(names) else None


def _unique_indexes(fetch: Fetch, table: str) -> list[tuple[Unique, str]]:
    """The unique indexes, with where they come from; `pk` first."""
    found = []
    listed = Statement(
        "SELECT l.name, l.origin, l.partial, s.sql FROM pragma_index_list(?) AS l"
        " LEFT JOIN sqlite_schema AS s ON s.type = 'index' AND s.name = l.name"
        " WHERE l.\"unique\" ORDER BY l.origin <> 'pk', l.name",
        (table,),
    )
    for name, origin, partial, sql in fetch(listed):
        rows = fetch(
            Statement(
                "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", (name,)
            )
        )
        texts, where = split_index(sql) if sql else ([""] * len(rows), "")
        terms = tuple(
            Term(column, "" if column else text, collation)
            for (column, collation), text in zip(rows, texts, strict=True)
        )
        found.append((Unique(terms, where if partial else ""), origin))
    return found


def split_index(sql: str) -> tuple[list[str], str]:
    """The terms of a CREATE INDEX statement, without collation and order, and its condition."""
    terms: list[list[str]] = []
    rest: list[str] = []
    depth, closed = 0, False
    for token in _tokens(sql):
        if closed:
            rest.append(token)
            continue
        if token == ")":
            depth -= 1
            closed = depth == 0
            if closed:
                continue
        if (depth, token) in ((0, "("), (1, ",")):
            terms.append([])
        elif depth:
            terms[-1].append(token)
        depth += token == "("
    where = "".join(rest).strip()
    condition = re.sub(r"^WHERE\b", "", where, flags=re.IGNORECASE).strip()
    return [_without_order(term) for term in terms], condition


def _without_order(term: list[str]) -> str:
    while term and not term[-1].strip():
        term = term[:-1]
    if term and term[-1].upper() in ("ASC", "DESC"):
        return _without_order(term[:-1])
    words = [place for place, token in enumerate(term) if token.strip()]
    if len(words) > 2 and term[words[-2]].upper() == "COLLATE":
        return _without_order(term[: words[-2]])
    return "".join(term).strip()


def _tokens(sql: str) -> Iterator[str]:
    for match in _TOKEN.finditer(sql):
        yield " " if match[0].startswith(("--", "/*")) else match[0]


def _defaults(fetch: Fetch, table: str) -> tuple[tuple[str, str], ...]:
    rows = fetch(
        Statement(
            'SELECT name, dflt_value FROM pragma_table_xinfo(?) WHERE "notnull"'
            " AND dflt_value IS NOT NULL AND hidden = 0",
            (table,),
        )
    )
    return tuple((name, default) for name, default in rows)


def _inserts_nested(fetch: Fetch, table: str) -> bool:
    """Whether any trigger but ours inserts into the table."""
    into = re.compile(rf'\bINTO\s+["\'`\[]?{re.escape(table)}(?!\w)', re.IGNORECASE)
    triggers = fetch(
        Statement(
            "SELECT sql FROM sqlite_schema WHERE type = 'trigger'"
            " AND name NOT LIKE 'truecopy\\_%' ESCAPE '\\'"
        )
    )
    return any(into.search(sql or "") for (sql,) in triggers)
