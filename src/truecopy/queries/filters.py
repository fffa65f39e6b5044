"""Which queries are verified: by name, by type, by syntax, and by filters of other packages.

A filter is a function from a query and the dialects of both sides to a reason, or None to let it pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from truecopy.queries import plugins
from truecopy.queries.parsing import NotParsed, Parsed, Type, parse
from truecopy.queries.query import Query
from truecopy.queries.result import Skipped
from truecopy.queries.settings import Settings

Filter = Callable[[Query, tuple[str, str]], str | None]


def named(queries: Iterable[Query], settings: Settings) -> list[Query]:
    """Queries by the lists of names; `*` and `?` are wild, `SUITE.NAME` is a name too."""
    return [
        query
        for query in queries
        if (not settings.allow or _is_named(query, settings.allow))
        and not _is_named(query, settings.block)
    ]


def skip_reason(
    query: Query, dialects: tuple[str, str], settings: Settings
) -> tuple[Skipped, str] | None:
    """Why a query is not run, None where it is."""
    found: list[Parsed] = []
    for side, name, dialect in (
        (query.control, "control", dialects[0]),
        (query.test, "test", dialects[1]),
    ):
        try:
            found.append(parse(side.readable, dialect))
        except NotParsed as error:
            return Skipped.SYNTAX_ERROR, f"{name}: {error}"
    types = [parsed.type for parsed in found]
    if types[0] is not types[1]:
        return Skipped.MISMATCHED_QUERY_TYPES, f"control is {types[0]}, test is {types[1]}"
    if types[0] is Type.OTHER:
        return (
            Skipped.UNSUPPORTED_QUERY_TYPE,
            f"{query.control.sql.split()[0].upper()} is not verified",
        )
    if settings.types and types[0] not in {word.upper() for word in settings.types}:
        return Skipped.FILTERED, f"{types[0]} is not among {', '.join(settings.types)}"
    for name in settings.filters:
        custom: Filter = plugins.load("filters", name)
        if reason := custom(query, dialects):
            return Skipped.CUSTOM_FILTER, f"{name}: {reason}"
    return None


def _is_named(query: Query, patterns: tuple[str, ...]) -> bool:
    names = (query.name, f"{query.suite}.{query.name}")
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
