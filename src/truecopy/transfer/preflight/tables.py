"""Which tables go where: those that the task names, those that are there, those that will be made."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from truecopy.engines.protocols import Creates, HidesTables, Statement
from truecopy.mapping.choice import is_pattern, matches
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.finding import Finding, Subject
from truecopy.model.table import Table, TableName
from truecopy.transfer.ledger import CHUNKS, TASKS
from truecopy.transfer.preflight.ends import (
    Ends,
    Pair,
    attempt,
    error,
    has_row,
    info,
    statement,
    told_apart,
    warning,
)
from truecopy.transfer.settings import Settings


def find_pairs(settings: Settings, source: Any, target: Any) -> tuple[list[Pair], list[Finding]]:
    """The tables that can be looked at further, and what keeps others from it."""
    names = source.tables()
    chosen = [name for name in names if settings.wants(name)]
    findings = list(_unknown(settings, source, names))
    if not chosen and not findings:
        findings.append(
            error(Subject.TABLES, f"no table of {source.endpoint} is chosen by the task")
        )
    pairs: list[Pair] = []
    for name in chosen:
        table = attempt(lambda name=name: source.describe(name), source)  # type: ignore[misc]
        if isinstance(table, TruecopyError):
            findings.append(_unreadable(table, name))
            continue
        pair = attempt(lambda table=table: _pair(settings, target, table), target)  # type: ignore[misc]
        if isinstance(pair, TruecopyError):
            findings.append(_unreadable(pair, name))
        else:
            pairs.append(pair)
    return pairs, findings


def tables_begun(settings: Settings, target: Any) -> frozenset[str]:
    """The tables of which the target's ledger says that this task copies or has copied them."""
    if target.find(TASKS) is None or target.find(CHUNKS) is None:
        return frozenset()
    place = target.dialect.placeholder
    asked = f"SELECT DISTINCT source_table FROM {CHUNKS} WHERE task = {place}"
    return frozenset(str(table) for (table,) in target.fetch(Statement(asked, (settings.task,))))


def check_targets(ends: Ends) -> Iterator[Finding]:
    """Tables that are not empty, that two sources share, or that are the source itself."""
    yield from _shared(ends)
    for pair, target in ends.existing:
        if _is_same(ends, pair):
            yield error(
                Subject.TABLES,
                "source and target are the same table",
                "name another target, or give the table another name with routes",
                pair.name,
            )
        elif pair.name not in ends.begun and has_row(ends.target, target.name):
            yield error(
                Subject.TABLES,
                f"{target.name} on the target is not empty",
                statement(ends.target, "DELETE FROM {table}", table=target.name)
                + ", or leave the table out",
                pair.name,
            )


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
        named = replace(pair.source, name=pair.onto)
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
    routed = [pattern for pattern, _ in settings.routes if pattern not in settings.tables]
    for pattern in (*settings.tables, *routed):
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


def _pair(settings: Settings, target: Any, table: Table) -> Pair:
    routes = dict(settings.routes)
    wanted = routes.get(str(table.name)) or routes.get(table.name.table) or table.name.table
    found = target.find(wanted)
    if found is not None:
        return Pair(table, found, target.describe(found))
    schema, _, bare = wanted.rpartition(".")
    return Pair(table, TableName(schema or None, bare), None)


def _unreadable(reason: TruecopyError, name: TableName) -> Finding:
    """A right that is missing, or no table."""
    message, remedy = told_apart(reason)
    subject = Subject.RIGHTS if isinstance(reason, CannotFinish) else Subject.TABLES
    return error(subject, message, remedy, str(name))


def _shared(ends: Ends) -> Iterable[Finding]:
    takers: dict[TableName, list[Pair]] = {}
    for pair in ends.pairs:
        takers.setdefault(pair.onto, []).append(pair)
    for onto, pairs in takers.items():
        for pair in pairs[1:]:
            yield error(
                Subject.TABLES,
                f"{pairs[0].name} goes to {onto} already",
                "give one of them another name with routes",
                pair.name,
            )


def _is_same(ends: Ends, pair: Pair) -> bool:
    same = ends.source.endpoint.identity == ends.target.endpoint.identity
    return same and pair.source.name == pair.onto
