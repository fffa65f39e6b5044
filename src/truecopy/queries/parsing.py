"""Statements as sqlglot reads them: of which kind, what they write, and what makes them unsafe."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

# It would warn beside the reason that a skipped query carries.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


class Type(StrEnum):
    """Kinds of statements that are verified, and the rest."""

    SELECT = "SELECT"
    INSERT = "INSERT"
    CREATE_TABLE_AS = "CREATE_TABLE_AS"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CREATE_VIEW = "CREATE_VIEW"
    CREATE_TABLE = "CREATE_TABLE"
    OTHER = "OTHER"


class NotParsed(Exception):
    """Invalid syntax; the text says where."""


class Unsafe(Exception):
    """A statement that could change more than the tables that we made."""


@dataclass(frozen=True)
class Parsed:
    """A statement, its text, and its kind.

    Attributes:
        unsafe: Why it may change more than the table that it names, empty where it cannot.
    """

    sql: str
    dialect: str
    tree: exp.Expr
    type: Type
    unsafe: str


_WRITES = (
    exp.Insert,
    exp.Update,
    exp.Delete,
    exp.Merge,
    exp.Create,
    exp.Drop,
    exp.Alter,
    exp.TruncateTable,
)
_CHANGING_FUNCTIONS = {
    "nextval",
    "setval",
    "lo_import",
    "lo_export",
    "lo_unlink",
    "lo_create",
    "lo_put",
    "dblink",
    "dblink_exec",
    "pg_terminate_backend",
    "pg_cancel_backend",
    "pg_switch_wal",
    "pg_advisory_lock",
    "pg_notify",
    "set_config",
    "query_to_xml",
    "get_lock",
    "release_lock",
    "lastval",
    "load_extension",
    "java_method",
    "reflect",
}


@lru_cache(maxsize=1024)  # a query is done with before a thousand others are read
def parse(sql: str, dialect: str) -> Parsed:
    """The one statement in a text. The tree is shared: copy it before it is changed."""
    try:
        trees = [tree for tree in sqlglot.parse(sql, read=dialect) if tree is not None]
    except (SqlglotError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NotParsed(f"{' '.join(_plain(first).split())} ({dialect})") from None
    if len(trees) != 1:
        raise NotParsed(f"one statement is expected, here are {len(trees)}")
    return Parsed(sql, dialect, trees[0], _type_of(trees[0]), _unsafe(trees[0]))


def require_safe(parsed: Parsed) -> None:
    """Refuses what writes anywhere but at its top, takes locks, or calls functions that change things."""
    if parsed.unsafe:
        raise Unsafe(parsed.unsafe)


def function_name(node: exp.Expr) -> str:
    """The name of a function call as it was written, in lower case."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


def function_names(tree: exp.Expr) -> set[str]:
    """Every function that a statement calls."""
    return {function_name(node) for node in tree.find_all(exp.Func)}


def target_of(tree: exp.Expr) -> exp.Table:
    """The one table that a statement writes or drops."""
    dropped = tree.args.get("tables") if isinstance(tree, exp.Drop) else None
    found = dropped[0] if dropped and len(dropped) == 1 else tree.this
    if isinstance(found, exp.Schema):
        found = found.this
    if not isinstance(found, exp.Table):
        raise Unsafe("the table that it writes cannot be told")
    return found


def _unsafe(top: exp.Expr) -> str:
    for node in top.walk():
        if node is not top and isinstance(node, _WRITES):
            return f"it writes inside a query: {type(node).__name__.upper()}"
        if isinstance(node, exp.Into):
            return "SELECT … INTO writes a table or a file"
        if isinstance(node, exp.Lock):
            return "it locks rows: FOR UPDATE or FOR SHARE"
        if isinstance(node, exp.Func) and (name := function_name(node)) in _CHANGING_FUNCTIONS:
            return f"the function {name} changes what others see"
    return ""


def _type_of(tree: exp.Expr) -> Type:
    match tree:
        case exp.Query():
            return Type.SELECT
        case exp.Insert():
            return Type.INSERT
        case exp.Update():
            return Type.UPDATE
        case exp.Delete():
            return Type.DELETE
        case exp.Create() if str(tree.kind).upper() == "VIEW":
            return Type.CREATE_VIEW
        case exp.Create() if str(tree.kind).upper() == "TABLE":
            return Type.CREATE_TABLE_AS if tree.expression else Type.CREATE_TABLE
        case _:
            return Type.OTHER


def _plain(text: str) -> str:
    return text.replace("\x1b[4m", "").replace("\x1b[0m", "")
