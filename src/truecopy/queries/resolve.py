"""Failures that are explained by circumstances: a resolver says why, or None where it knows nothing.

Resolvers are functions from a result and the settings, registered under `truecopy.queries.resolvers`.
"""

from __future__ import annotations

from collections.abc import Callable

from truecopy.engines.queries.failure import Failure, Kind
from truecopy.queries import plugins
from truecopy.queries.parsing import NotParsed, function_names, parse
from truecopy.queries.result import QueryResult
from truecopy.queries.settings import Settings
from truecopy.queries.verdict import Match

Resolver = Callable[[QueryResult, Settings], str | None]


def resolve(result: QueryResult, settings: Settings) -> tuple[str, str] | None:
    """The first resolver that knows why, and what it says."""
    for name in settings.resolvers:
        resolver: Resolver = plugins.load("resolvers", name)
        if reason := resolver(result, settings):
            return name, reason
    return None


def memory(result: QueryResult, settings: Settings) -> str | None:  # noqa: ARG001 - one signature for all
    """Memory exceeded on a test side that had used less than control did; both are known, or nothing is."""
    if not _failed_with(result, Kind.MEMORY) or result.control is None or result.test is None:
        return None
    control, test = result.control.memory_bytes, result.test.memory_bytes
    if control is None or test is None or control <= test:
        return None
    return f"the test side ran out of memory at {test:,} bytes, and control used {control:,}"


def time_limit(result: QueryResult, settings: Settings) -> str | None:  # noqa: ARG001 - likewise
    """The test side's own limit of time."""
    return (
        "the test side reached a limit of time" if _failed_with(result, Kind.TIME_LIMIT) else None
    )


def limitation(result: QueryResult, settings: Settings) -> str | None:  # noqa: ARG001 - likewise
    """What cannot be checked here, though both queries ran. Not among the defaults: it may hide a fault of ours."""
    failure = _failed_with(result, Kind.LIMITATION)
    return f"the checksums cannot be computed: {failure.message}" if failure else None


def ignored_functions(result: QueryResult, settings: Settings) -> str | None:
    """Functions that are known to answer differently."""
    ignored = {name.lower() for name in settings.ignored_functions}
    if not ignored or not _mismatched(result):
        return None
    used: set[str] = set()
    for side in (result.control, result.test):
        if side is not None:
            try:
                used |= function_names(parse(side.sql, "").tree)
            except NotParsed:
                used |= {name for name in ignored if f"{name}(" in side.sql.lower()}
    found = sorted(ignored & used)
    return f"it calls {', '.join(found)}" if found else None


def decimal_scale(result: QueryResult, settings: Settings) -> str | None:  # noqa: ARG001 - likewise
    """Engines that keep fewer digits of a quotient or a mean, and agree in those that both keep."""
    return _by_cause(
        result, "decimal-scale", "equal in the digits after the point that both engines keep"
    )


def structured_floats(result: QueryResult, settings: Settings) -> str | None:  # noqa: ARG001 - likewise
    """Floats inside nested values, which are compared without a margin."""
    return _by_cause(
        result, "structured-floats", "floats inside nested values are compared exactly"
    )


def _by_cause(result: QueryResult, cause: str, reason: str) -> str | None:
    wrong = [column for column in result.columns if not column.match]
    if result.match is not Match.COLUMN_MISMATCH or not wrong:
        return None
    if any(column.cause != cause for column in wrong):
        return None
    return f"{', '.join(column.name for column in wrong)}: {reason}"


def _mismatched(result: QueryResult) -> bool:
    return result.match in (Match.COLUMN_MISMATCH, Match.ROW_COUNT_MISMATCH, Match.ROW_MISMATCH)


def _failed_with(result: QueryResult, kind: Kind) -> Failure | None:
    """The failure that ended the query, if it is of that kind; one of control is no failure of the query."""
    last = result.failures[-1] if result.failures else None
    if result.match is not Match.NOT_COMPARED or last is None:
        return None
    return last if last.kind is kind else None
