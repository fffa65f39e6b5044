"""Rewriting, so that nothing is written outside the scratch schema.

The text of a SELECT is kept as it is and wrapped; only statements that name the table they write
are printed again by sqlglot, in the dialect that they were read in. What is printed is read once
more, and refused unless the table that it writes is one of ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import sqlglot
from sqlglot import exp

from truecopy.engines.queries.session import QuerySession
from truecopy.queries.parsing import (
    Parsed,
    Type,
    Unsafe,
    function_name,
    parse,
    require_safe,
    target_of,
)
from truecopy.queries.settings import Settings

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LONGEST_NAME = 60
_CTE = "truecopy_query"


@dataclass(frozen=True)
class Rewritten:
    """What runs instead of a statement.

    Attributes:
        setup: Statements before it; they write scratch tables only.
        run: The statement that stands for the user's; None where the result is the query itself.
        result: A query for what is compared.
        tables: Scratch tables to drop, made or not.
        definition: Only the columns of `result` are compared: nothing was put in.
        query: What tells the columns of `result` before `run`; None where nothing does.
    """

    type: Type
    setup: tuple[str, ...]
    run: str | None
    result: str
    tables: tuple[str, ...] = ()
    definition: bool = False
    query: str | None = None


class Rewriter(Protocol):
    """The stage; another one is registered under `truecopy.queries.rewriters`."""

    def __call__(
        self, session: QuerySession, sql: str, table: str, settings: Settings
    ) -> Rewritten:
        """What runs instead of `sql`; `table` is the name of the scratch table it may make."""
        ...


def rewrite(session: QuerySession, sql: str, table: str, settings: Settings) -> Rewritten:
    """Rewrites one statement for one session."""
    parsed = parse(sql, session.dialect)
    if settings.substitutes:
        parsed = substitute(parsed, settings.substitutes)
    require_safe(parsed)
    if settings.read_only:
        if parsed.type is not Type.SELECT:
            raise Unsafe(f"{parsed.type} needs a scratch schema, and this run writes nothing")
        return Rewritten(parsed.type, (), None, _uniquely_named(session, parsed))
    name = session.scratch_name(table)
    match parsed.type:
        case Type.SELECT:
            found = _kept(session, parsed, name, table)
        case Type.CREATE_TABLE_AS | Type.CREATE_TABLE | Type.CREATE_VIEW:
            found = _created(session, parsed, name, table)
        case Type.INSERT:
            found = _on_copy(session, parsed, name, table, empty=True)
        case Type.UPDATE | Type.DELETE:
            found = _on_copy(session, parsed, name, table, empty=False)
        case _:
            raise Unsafe(
                "only queries, INSERT, UPDATE, DELETE and CREATE TABLE or VIEW are verified"
            )
    # A query that was wrapped as it is has been read already, as the one SELECT that it is.
    if found.run is not None and parsed.type not in (Type.SELECT, Type.CREATE_TABLE_AS):
        require_scratch(session, found.run, table)
    return found


def substitute(parsed: Parsed, rules: Mapping[str, str]) -> Parsed:
    """The statement with functions replaced by rule: `{"approx_distinct": "count(distinct {0})"}`."""
    lowered = {name.lower(): template for name, template in rules.items()}
    if not any(function_name(node) in lowered for node in parsed.tree.find_all(exp.Func)):
        return parsed

    def replaced(node: exp.Expr) -> exp.Expr:
        name = function_name(node)
        if name not in lowered:
            return node
        arguments = [arg.sql(parsed.dialect) for arg in _arguments(node)]
        return sqlglot.parse_one(lowered[name].format(*arguments), read=parsed.dialect)

    tree = parsed.tree.transform(replaced)
    return parse(tree.sql(parsed.dialect, copy=False), parsed.dialect)


def unique_names(names: Sequence[str]) -> list[str]:
    """Valid names, each once, whatever the case."""
    found: list[str] = []
    taken: set[str] = set()
    for at, name in enumerate(names, 1):
        base = name if _PLAIN.match(name or "") else f"_col{at}"
        chosen, number = base, 2
        while chosen.lower() in taken:
            chosen, number = f"{base}_{number}", number + 1
        taken.add(chosen.lower())
        found.append(chosen)
    return found


def require_scratch(session: QuerySession, sql: str, prefix: str) -> None:
    """Refuses a statement that writes anything but a scratch table whose name starts with the prefix.

    Settings of the session are let pass.
    """
    parsed = parse(sql, session.dialect)
    tree = parsed.tree
    if isinstance(tree, exp.Set | exp.Use) or parsed.type is Type.SELECT:
        require_safe(parsed)
        return
    if parsed.type is Type.OTHER and not isinstance(tree, exp.Drop):
        raise Unsafe(f"{sql.split(maxsplit=1)[0].upper()} may change more than the scratch schema")
    require_safe(parsed)
    table = target_of(tree)
    place = tuple(part.name for part in table.parts[:-1])
    if place != session.scratch or not table.name.startswith(prefix):
        raise Unsafe(
            f"it would write {'.'.join(part.name for part in table.parts)}, which is no table of this run"
            f" in {'.'.join(session.scratch)}"
        )


def _kept(session: QuerySession, parsed: Parsed, name: str, table: str) -> Rewritten:
    query = _storable(session, _uniquely_named(session, parsed))
    create = session.create_as(name, query)
    return Rewritten(parsed.type, (), create, f"SELECT * FROM {name}", (table,), query=query)


def _uniquely_named(session: QuerySession, parsed: Parsed) -> str:
    """The query as it is written, wrapped where its columns have no names, or not unique ones."""
    tree = parsed.tree
    if not isinstance(tree, exp.Query):
        return parsed.sql
    stars = any(column.is_star for column in tree.selects)
    if not stars:
        given = [
            column.alias_or_name if isinstance(column, exp.Alias | exp.Column) else ""
            for column in tree.selects
        ]
    elif tree.find(exp.Join) or len(tree.selects) > 1:
        given = session.names(tree.limit(0).sql(session.dialect, copy=False))
    else:
        return parsed.sql
    wanted = unique_names(given)
    if wanted == given:
        return parsed.sql
    names = ", ".join(session.quote(name) for name in wanted)
    return f"WITH {_CTE} ({names}) AS ({parsed.sql}) SELECT * FROM {_CTE}"


def _storable(session: QuerySession, query: str) -> str:
    if type(session).storable is QuerySession.storable:
        return query
    columns = session.columns(query)
    casts = [session.storable(column) for column in columns]
    if not any(casts):
        return query
    texts = [
        f"{cast.format(session.quote(c.name))} AS {session.quote(c.name)}"
        if cast
        else session.quote(c.name)
        for c, cast in zip(columns, casts, strict=True)
    ]
    return f"SELECT {', '.join(texts)} FROM ({query}) AS t"


def _created(session: QuerySession, parsed: Parsed, name: str, table: str) -> Rewritten:
    if parsed.type is Type.CREATE_TABLE_AS and not isinstance(parsed.tree.this, exp.Schema):
        inner = parse(parsed.tree.expression.sql(session.dialect), session.dialect)
        kept = _kept(session, inner, name, table)
        return replace(kept, type=parsed.type)
    if parsed.type is Type.CREATE_VIEW and not session.makes_views:
        query = parsed.tree.expression.sql(session.dialect)
        return Rewritten(parsed.type, (), None, query, definition=True)
    tree = parsed.tree.copy()
    target_of(tree).replace(_scratch_table(session, table))
    tree.set("replace", False)
    tree.set("exists", False)
    properties = tree.args.get("properties")
    if properties:  # a place of its own, or TEMPORARY, would leave the scratch schema
        kept_properties = [
            each
            for each in properties.expressions
            if not isinstance(
                each, exp.LocationProperty | exp.TemporaryProperty | exp.ExternalProperty
            )
        ]
        tree.set(
            "properties", exp.Properties(expressions=kept_properties) if kept_properties else None
        )
    return Rewritten(
        parsed.type,
        (),
        tree.sql(session.dialect, copy=False),
        f"SELECT * FROM {name}",
        (table,),
        definition=parsed.type is not Type.CREATE_TABLE_AS,
    )


def _on_copy(
    session: QuerySession, parsed: Parsed, name: str, table: str, *, empty: bool
) -> Rewritten:
    tree = parsed.tree.copy()
    target = target_of(tree)
    if isinstance(tree, exp.Update | exp.Delete) and (
        tree.args.get("tables") or target.args.get("joins")
    ):
        raise Unsafe("it changes several tables at once")
    original = target.copy()
    alias = original.alias
    original.set("alias", None)
    old_names = {original.name.lower(), alias.lower()} - {""}
    copy = session.create_as(
        name,
        f"SELECT * FROM {original.sql(session.dialect, copy=False)}"
        + (" WHERE 1 = 0" if empty else ""),
    )
    _rename_columns(tree, old_names, table)
    target.replace(_scratch_table(session, table))
    if isinstance(tree, exp.Insert) and tree.args.get("overwrite"):
        tree.set("overwrite", False)
    tree.set("returning", None)
    return Rewritten(
        parsed.type,
        (copy,),
        tree.sql(session.dialect, copy=False),
        f"SELECT * FROM {name}",
        (table,),
    )


def _rename_columns(tree: exp.Expr, old_names: set[str], table: str) -> None:
    """Columns that name the changed table name its copy; those of subqueries keep to what they read."""
    if isinstance(tree, exp.Insert):
        return
    for column in tree.find_all(exp.Column):
        inside = column.find_ancestor(exp.Subquery, exp.Select)
        reads_it = inside is not None and any(
            source.alias_or_name.lower() in old_names for source in inside.find_all(exp.Table)
        )
        if column.table.lower() in old_names and not reads_it:
            column.set("table", exp.to_identifier(table))
            column.set("db", None)
            column.set("catalog", None)


def _scratch_table(session: QuerySession, table: str) -> exp.Table:
    parts = [exp.to_identifier(part, quoted=True) for part in (*session.scratch, table)]
    names = dict(zip(("this", "db", "catalog"), reversed(parts), strict=False))
    return exp.Table(**names)


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    found: list[exp.Expr] = []
    for value in node.args.values():
        found += [
            v for v in (value if isinstance(value, list) else [value]) if isinstance(v, exp.Expr)
        ]
    return found
