"""Where the rows of a source table go: the table on the target, and the new names of columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from truecopy.mapping.choice import is_pattern, matches, nearest
from truecopy.model.errors import UsageError
from truecopy.model.table import TableName

_PIECES = re.compile(r"\[!?\]?[^]]*\]|.", re.DOTALL)
"""The parts of a pattern: a class such as `[0-9]`, or a character."""


@dataclass(frozen=True)
class Route:
    """What a task says about the way of some tables.

    Attributes:
        pattern: A table, or a pattern of tables: `orders`, `shop.orders`, `orders_*`, `old.*`.
        table: The table on the target. Each `*` stands for what the `*` of the pattern at the same
            place stood for: `old.*` to `archive.*` moves a whole schema. None keeps the name.
        columns: New names of columns, by the source's names.
        merge: More than one table may go to the same one.
        source_column: A column to add that holds the source table's name; first in the key, since
            equal keys of two tables are different rows.
    """

    pattern: str
    table: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    merge: bool = False
    source_column: str | None = None

    def __post_init__(self) -> None:
        given = (self.table or "").count("*")
        if given > self.pattern.count("*"):
            raise UsageError(
                f"routes.{self.pattern}.table: {self.table} has more * than the pattern has"
            )
        if self.source_column is not None and not self.merge:
            raise UsageError(
                f"routes.{self.pattern}.source-column: only with merge: true, where it tells tables apart"
            )


@dataclass(frozen=True)
class Way:
    """The route of one table, resolved."""

    source: TableName
    target: TableName
    columns: Mapping[str, str] = field(default_factory=dict)
    merge: bool = False
    source_column: str | None = None


def find_way(name: TableName, routes: Sequence[Route], home: str | None = None) -> Way:
    """The way of a table: that of its own route, else of the first pattern, else to its own name.

    Args:
        name: The source table.
        routes: In the order of the task file.
        home: The source's default schema. What is at home there is at home on the target too, whose
            default schema has another name; other schemas keep theirs.
    """
    unrouted = TableName(None if name.schema == home else name.schema, name.table)
    found = [route for route in routes if matches(route.pattern, name)]
    if not found:
        return Way(name, unrouted)
    # A name says more than a pattern, and a name with its schema more than one without.
    route = min(found, key=lambda one: (is_pattern(one.pattern), "." not in one.pattern))
    target = unrouted if route.table is None else _replace(route, name)
    return Way(name, target, route.columns, route.merge, route.source_column)


def find_ways(
    names: Iterable[TableName], routes: Sequence[Route], home: str | None = None
) -> tuple[Way, ...]:
    """The ways of all tables; two that end at one table are refused unless both say `merge`."""
    tables = list(names)
    for route in routes:
        if not is_pattern(route.pattern) and not any(matches(route.pattern, t) for t in tables):
            known = [str(table) for table in tables] + [table.table for table in tables]
            raise UsageError(
                f"routes.{route.pattern}: the source has no such table{nearest(route.pattern, known)}"
            )
    ways = tuple(find_way(name, routes, home) for name in tables)
    taken: dict[TableName, Way] = {}
    for way in ways:
        other = taken.setdefault(way.target, way)
        if other is not way and not (other.merge and way.merge):
            raise UsageError(
                f"{other.source} and {way.source} would both go to {way.target}: write merge: true on"
                " their routes, or give one of them another table"
            )
        if other.source_column != way.source_column:
            raise UsageError(
                f"{other.source} and {way.source} merge into {way.target} with and without the same"
                " source-column: write the same one on their routes"
            )
    return ways


def parse_name(text: str) -> TableName:
    """Reads `schema.table` or `table`."""
    schema, _, table = text.rpartition(".")
    return TableName(schema or None, table)


def _replace(route: Route, name: TableName) -> TableName:
    """The target's name, with what each `*` of the pattern stood for."""
    assert route.table is not None
    whole = str(name) if "." in route.pattern else name.table
    found = re.fullmatch("".join(map(_expression, _PIECES.findall(route.pattern))), whole)
    parts = iter(found.groups() if found else ())
    return parse_name(re.sub(r"\*", lambda _: next(parts), route.table))


def _expression(piece: str) -> str:
    """What one part of a pattern matches; what `*` matches is kept."""
    return "(.*)" if piece == "*" else translate(piece).removesuffix(r"\Z")
