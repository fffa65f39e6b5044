"""Is control deterministic? Asked only after rows or columns differ: a schema never changes by chance.

A LIMIT without a total order is analysed by itself; then control runs again, and once more only if
the first two runs agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from sqlglot import exp

from truecopy.engines.queries.failure import QueryFailed
from truecopy.queries.compare import Comparator
from truecopy.queries.parsing import NotParsed, parse
from truecopy.queries.results import Result
from truecopy.queries.settings import Settings
from truecopy.queries.verdict import Match


class Verdict(StrEnum):
    """What the analysis says."""

    DETERMINISTIC = "DETERMINISTIC"
    COLUMNS = "NON_DETERMINISTIC_COLUMNS"
    ROW_COUNT = "NON_DETERMINISTIC_ROW_COUNT"
    LIMIT = "NON_DETERMINISTIC_LIMIT_CLAUSE"
    CATALOG = "NON_DETERMINISTIC_CATALOG"
    FAILED = "ANALYSIS_FAILED"


@dataclass(frozen=True)
class Determinism:
    """The verdict, and why."""

    verdict: Verdict
    reason: str = ""

    @property
    def is_chance(self) -> bool:
        """Whether control itself answers differently from run to run."""
        return self.verdict not in (Verdict.DETERMINISTIC, Verdict.FAILED)


@dataclass(frozen=True)
class Control:
    """What an analysis may ask of control.

    Attributes:
        first: The result that differed from that of the test side.
        again: Runs control once more.
        fetch: Runs a small query of ours on control.
    """

    sql: str
    dialect: str
    first: Result
    again: Callable[[], Result]
    fetch: Callable[[str], list[tuple[Any, ...]]]


class Analysis(Protocol):
    """The stage; another one is registered under `truecopy.queries.determinism`."""

    def __call__(
        self, control: Control, comparator: Comparator, settings: Settings
    ) -> Determinism: ...


def analyse(control: Control, comparator: Comparator, settings: Settings) -> Determinism:
    """Catalogs, the LIMIT clause, then reruns."""
    try:
        tree = parse(control.sql, control.dialect).tree
        if name := _changing_catalog(tree, settings):
            return Determinism(Verdict.CATALOG, f"it reads {name}")
        if reason := limit_reason(control, tree):
            return Determinism(Verdict.LIMIT, reason)
        return _rerun(control, comparator, settings)
    except (QueryFailed, NotParsed) as error:
        return Determinism(Verdict.FAILED, str(error))


def limit_reason(control: Control, tree: exp.Expr) -> str | None:
    """Why a LIMIT picks rows by chance: no order, or a tie between the last row kept and the next."""
    query = tree if isinstance(tree, exp.Query) else tree.args.get("expression")
    if not isinstance(query, exp.Query):
        return None
    limit = query.args.get("limit")
    if limit is None:
        return None
    count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
    if not isinstance(count, exp.Literal) or not count.is_int:
        return None
    kept = int(count.name)
    order = query.args.get("order")
    if order is None:
        more = query.copy()
        more.set("limit", exp.Limit(expression=exp.Literal.number(kept + 1)))
        ((found,),) = control.fetch(f"SELECT COUNT(*) FROM ({more.sql(control.dialect)}) AS t")
        return (
            f"LIMIT {kept} without ORDER BY, and there are more rows" if int(found) > kept else None
        )
    rows = _last_and_next(control, query, order, kept)
    if rows is None or len(rows) < 2:
        return None
    (last, last_key), (after, after_key) = rows
    if last_key == after_key and last != after:
        return f"rows {kept} and {kept + 1} are equal in what they are ordered by"
    return None


def _last_and_next(
    control: Control, query: exp.Query, order: exp.Order, kept: int
) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]] | None:
    """The last row that LIMIT keeps and the first that it does not, with what they are ordered by."""
    if not isinstance(query, exp.Select) or query.args.get("distinct") or kept < 1:
        return None
    if any(column.is_star for column in query.selects):
        return None
    asked = query.copy()
    outputs = {column.alias_or_name.lower(): column.unalias() for column in asked.selects}
    keys: list[exp.Expr] = []
    for ordered in order.expressions:
        key = ordered.this
        if isinstance(key, exp.Literal) and key.is_int:
            key = asked.selects[int(key.name) - 1].unalias()
        elif isinstance(key, exp.Column) and not key.table and key.name.lower() in outputs:
            key = outputs[key.name.lower()]
        keys.append(key)
    width = len(asked.selects)
    for at, key in enumerate(keys):
        asked = asked.select(exp.alias_(key.copy(), f"truecopy_key{at}"), copy=False)
    offset = query.args.get("offset")
    skipped = int(offset.expression.name) if offset is not None else 0
    asked.set("limit", exp.Limit(expression=exp.Literal.number(2)))
    asked.set("offset", exp.Offset(expression=exp.Literal.number(skipped + kept - 1)))
    rows = control.fetch(asked.sql(control.dialect))
    return [(tuple(row[:width]), tuple(row[width:])) for row in rows]


def _rerun(control: Control, comparator: Comparator, settings: Settings) -> Determinism:
    if not settings.reruns:
        return Determinism(Verdict.FAILED, "control was not run again")
    strict = replace(settings, sample=0)
    for run in range(1, settings.reruns + 1):
        compared = comparator(control.first, control.again(), strict)
        if compared.match is Match.ROW_COUNT_MISMATCH:
            return Determinism(
                Verdict.ROW_COUNT,
                f"rerun {run} gave {compared.rows[1]} rows, not {compared.rows[0]}",
            )
        if compared.match is not Match.MATCH:
            names = [column.name for column in compared.columns if not column.match]
            return Determinism(
                Verdict.COLUMNS, f"rerun {run} differed in {', '.join(names) or 'its rows'}"
            )
    return Determinism(Verdict.DETERMINISTIC, f"{settings.reruns} reruns agreed")


def _changing_catalog(tree: exp.Expr, settings: Settings) -> str | None:
    wanted = {name.lower() for name in settings.nondeterministic_catalogs}
    if not wanted:
        return None
    for table in tree.find_all(exp.Table):
        for name in (table.catalog, table.db):
            if name and name.lower() in wanted:
                return name
    return None
