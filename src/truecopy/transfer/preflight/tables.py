"""Which tables go where: those that the task names, those that are there, those that will be made."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from truecopy.engines.protocols import Creates, HidesTables, Statement
from truecopy.engines.sql import escape
from truecopy.mapping.choice import is_pattern, matches
from truecopy.mapping.plan import MappingRules, TableMapping, plan_table, plan_tables
from truecopy.mapping.routes import find_way
from truecopy.mapping.rules import require_tables, rules_of
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.finding import Finding, Level, Subject
from truecopy.model.table import Table, TableName, require_own_rows
from truecopy.model.types import Unknown
from truecopy.transfer.ledger import CHUNKS, TASKS
from truecopy.transfer.narrowing import rows_on_target
from truecopy.transfer.plan import home_of
from truecopy.transfer.preflight.ends import (
    Ends,
    Pair,
    attempt,
    error,
    has_row,
    info,
    is_untyped,
    statement,
    told_apart,
    warning,
)
from truecopy.transfer.settings import Settings


def find_pairs(settings: Settings, source: Any, target: Any) -> tuple[list[Pair], list[Finding]]:
    """The tables that can be looked at further, and what keeps others from it."""
    names = source.tables()
    chosen = [name for name in names if settings.wants(name)]
    findings = [*_unknown(settings, source, names), *_idle_rules(settings.rules, chosen)]
    if not chosen and not findings:
        findings.append(
            error(Subject.TABLES, f"no table of {source.endpoint} is chosen by the task")
        )
    # The type of an expression that the task does not say takes Spark, which a check does not start.
    rules = replace(settings.rules, home=home_of(source), infer=lambda _columns, _sql: Unknown())
    pairs: list[Pair] = []
    for name in chosen:
        table = attempt(lambda name=name: source.describe(name), source)  # type: ignore[misc]
        if isinstance(table, TruecopyError):
            findings.append(_unreadable(table, name))
            continue
        mapping = attempt(lambda table=table: _mapping(rules, table))  # type: ignore[misc]
        if isinstance(mapping, TruecopyError):
            findings.append(_unplanned(mapping, name))
            continue
        pair = attempt(
            lambda table=table, mapping=mapping: _pair(target, table, mapping),  # type: ignore[misc]
            target,
        )
        if isinstance(pair, TruecopyError):
            findings.append(_unreadable(pair, name))
        else:
            pairs.append(pair)
    findings += _shared(pairs)
    if all(finding.level is not Level.ERROR for finding in findings):
        findings += _disagreeing(rules, pairs)
    return pairs, findings


def tables_begun(settings: Settings, target: Any) -> frozenset[str]:
    """The tables of which the target's ledger says that this task copies or has copied them."""
    if target.find(TASKS) is None or target.find(CHUNKS) is None:
        return frozenset()
    place = target.dialect.placeholder
    asked = f"SELECT DISTINCT source_table FROM {CHUNKS} WHERE task = {place}"
    return frozenset(str(table) for (table,) in target.fetch(Statement(asked, (settings.task,))))


def check_targets(ends: Ends) -> Iterator[Finding]:
    """Tables that are not empty, or that are the source itself."""
    for pair, target in ends.existing:
        if _is_same(ends, pair):
            yield error(
                Subject.TABLES,
                "source and target are the same table",
                "name another target, or give the table another name with routes",
                pair.name,
            )
        elif pair.name not in ends.begun and has_row(ends.target, target.name, _rows(ends, pair)):
            yield error(
                Subject.TABLES,
                f"{target.name} on the target is not empty",
                statement(ends.target, "DELETE FROM {table}", table=target.name)
                + ", or leave the table out",
                pair.name,
            )


def _rows(ends: Ends, pair: Pair) -> str:
    """A condition for the rows that would be in the way: of a leg, those that come by it."""
    leg = ends.settings.leg
    if leg is None or pair.target is None:
        return ""
    where = rows_on_target(leg, pair.mapping, pair.target.columns, ends.target)
    return escape(ends.target.dialect, where or "")


def check_own_rows(ends: Ends) -> Iterator[Finding]:
    """Tables on either side that are read and changed with others."""
    for pair in ends.pairs:
        for table in filter(None, (pair.source, pair.target)):
            mixed = attempt(lambda table=table: require_own_rows(table))  # type: ignore[misc]
            if isinstance(mixed, TruecopyError):
                yield error(Subject.TABLES, *told_apart(mixed), pair.name)


def check_later(ends: Ends) -> Iterator[Finding]:
    """Tables that came after the copy: their rows would never be copied."""
    for pair in ends.pairs:
        if ends.begun and pair.name not in ends.begun:
            yield error(
                Subject.TABLES,
                f"it was not there when {ends.settings.task} copied its tables",
                "exclude it, or carry it by a task of its own",
                pair.name,
            )


def check_made(ends: Ends) -> Iterator[Finding]:
    """Tables that are missing on the target: whether they can be made, and what will be otherwise."""
    for pair in ends.pairs:
        if pair.target is not None:
            continue
        if not isinstance(ends.target, Creates):
            yield error(
                Subject.TABLES,
                f"the target has no table {pair.onto}, and cannot make one",
                "make it first",
                pair.name,
            )
            continue
        untyped = {column.name for column in pair.mapping.columns if is_untyped(column)}
        columns = tuple(c for c in pair.arrives.columns if c.name not in untyped)
        named = replace(pair.arrives, columns=columns)
        made = attempt(lambda named=named: _made(ends.target, named), ends.target)  # type: ignore[misc]
        if isinstance(made, TruecopyError):
            message, _, remedy = str(made).partition(": ")
            yield error(Subject.TYPES, message, remedy, pair.name)
            continue
        yield info(
            Subject.TABLES, f"{pair.onto} is not on the target, and will be made", "", pair.name
        )
        for line in made:
            # What a table is made without is listed with what is not carried.
            if " is made without " not in line:
                yield warning(
                    Subject.TYPES, line, "make the table yourself to have it otherwise", pair.name
                )


def _made(target: Creates, named: Table) -> list[str]:
    target.create_table(named)
    target.create_indexes(named)
    return target.creation_warnings(named)


def _unknown(settings: Settings, source: Any, names: list[TableName]) -> Iterator[Finding]:
    """What the task names and the source does not have."""
    routed = [route.pattern for route in settings.rules.routes]
    for pattern in dict.fromkeys((*settings.tables, *routed)):
        if any(matches(pattern, name) for name in names):
            continue
        said = f"the task names {pattern}, and the source has no such table"
        if is_pattern(pattern):
            yield warning(Subject.TABLES, f"no table of the source is called {pattern}")
            continue
        hidden = source.denial([pattern]) if isinstance(source, HidesTables) else None
        if hidden is not None:
            yield error(Subject.RIGHTS, *told_apart(hidden), pattern)
            continue
        known = [text for name in names for text in (name.table, str(name))]
        near = difflib.get_close_matches(pattern, known, 1)
        yield error(
            Subject.TABLES, said, f"did you mean {near[0]}?" if near else "leave it out", pattern
        )


def _idle_rules(rules: MappingRules, chosen: list[TableName]) -> Iterator[Finding]:
    """Rules for tables that the task does not carry."""
    for entry in rules.rules:
        found = attempt(lambda entry=entry: require_tables(chosen, (entry,)))  # type: ignore[misc]
        if isinstance(found, TruecopyError):
            yield error(Subject.TABLES, *told_apart(found))


def _mapping(rules: MappingRules, table: Table) -> TableMapping:
    way = find_way(table.name, rules.routes, rules.home)
    return plan_table(table, way, rules_of(table, rules.rules), rules.infer)


def _pair(target: Any, table: Table, mapping: TableMapping) -> Pair:
    found = target.find(str(mapping.target))
    if found is not None:
        return Pair(table, mapping, found, target.describe(found))
    return Pair(table, mapping, mapping.target, None)


def _unplanned(reason: TruecopyError, name: TableName) -> Finding:
    """A rule that does not fit the table."""
    message, remedy = told_apart(reason)
    return error(Subject.TYPES, message.removeprefix(f"{name}: "), remedy, str(name))


def _unreadable(reason: TruecopyError, name: TableName) -> Finding:
    """A right that is missing, or no table."""
    message, remedy = told_apart(reason)
    subject = Subject.RIGHTS if isinstance(reason, CannotFinish) else Subject.TABLES
    return error(subject, message, remedy, str(name))


def _shared(pairs: Iterable[Pair]) -> Iterator[Finding]:
    """Tables that end at one table, where the task does not say that they shall."""
    takers: dict[TableName, list[Pair]] = {}
    for pair in pairs:
        takers.setdefault(pair.onto, []).append(pair)
    for onto, taking in takers.items():
        if all(pair.mapping.merged for pair in taking):
            if len(taking) > 1 and taking[0].mapping.shares_rows:
                yield _one_row(onto, taking)
            continue
        for pair in taking[1:]:
            yield error(
                Subject.TABLES,
                f"{taking[0].name} goes to {onto} already",
                "give one of them another name with routes, or write merge: true on both",
                pair.name,
            )


def _one_row(onto: TableName, taking: Sequence[Pair]) -> Finding:
    names = ", ".join(pair.name for pair in taking)
    return warning(
        Subject.TABLES,
        f"rows of {names} with the same key are one row of {onto}: one that is inserted into one of them, and only in a"
        " later transaction deleted from another, is gone there",
        "write source-column, where a key may be in two of them at a time",
        taking[0].name,
    )


def _disagreeing(rules: MappingRules, pairs: Iterable[Pair]) -> Iterator[Finding]:
    """Tables that fit by themselves, and not together: those that merge must arrive alike."""
    together = attempt(lambda: plan_tables((pair.source for pair in pairs), rules))
    if isinstance(together, TruecopyError):
        yield error(Subject.TYPES, *told_apart(together))


def _is_same(ends: Ends, pair: Pair) -> bool:
    same = ends.source.endpoint.identity == ends.target.endpoint.identity
    return same and pair.source.name == pair.onto
