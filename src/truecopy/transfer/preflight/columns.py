"""Columns of tables that are on both sides: whether all are there, and whether values fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from truecopy.engines.protocols import ChecksRights
from truecopy.mapping.plan import Constant, Converted, Expressed, TargetColumn
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.finding import Finding, Subject
from truecopy.model.table import Column, Table
from truecopy.model.types import Text, Timestamp
from truecopy.transfer.plan import TablePlan, plan_table
from truecopy.transfer.preflight.ends import (
    Ends,
    Pair,
    attempt,
    error,
    has_row,
    info,
    is_untyped,
    told_apart,
    warning,
)
from truecopy.transfer.preflight.fit import misfit

_UTC = ("UTC", "UCT", "GMT", "Zulu", "Universal", "Greenwich", "+00:00", "-00:00")


def check_columns(ends: Ends) -> Iterator[Finding]:
    """As the transfer itself matches them, and then what it finds out row by row only."""
    for pair in ends.pairs:
        yield from _untyped(pair)
    for pair, target in ends.existing:
        there = tuple(c for c in pair.mapping.columns if target.column(c.name) is not None)
        yield from _missing(pair, target)
        if not there or not {column.name for column in there}.issuperset(pair.mapping.key):
            continue
        fitting = replace(pair, mapping=replace(pair.mapping, columns=there))
        found = attempt(
            lambda fitting=fitting, target=target: _planned(ends, fitting, target),  # type: ignore[misc]
            ends.source,
            ends.target,
        )
        if isinstance(found, CannotFinish):
            yield error(Subject.RIGHTS, *told_apart(found), pair.name)
        elif isinstance(found, TruecopyError):
            message, _, remedy = str(found).partition("; ")
            yield error(Subject.TYPES, message, remedy, pair.name)
        else:
            for ours, theirs in zip(found.source.columns, found.target.columns, strict=True):
                yield from _column(ends, pair, target, ours, theirs)


def check_odd_values(ends: Ends) -> Iterator[Finding]:
    """Values that the target's engine has no place for."""
    if ends.source_advisor is None or ends.target_advisor is None:
        return
    if ends.source_advisor.holds <= ends.target_advisor.holds:
        return
    for pair in ends.pairs:
        if not pair.tells:
            continue
        for column, what in ends.source_advisor.odd_values(pair.source):
            if column in pair.mapping.renames and what not in ends.target_advisor.holds:
                yield error(
                    Subject.TYPES,
                    f"{column} holds {what}, and the target has no place for them",
                    "change these rows, or leave the column out",
                    pair.name,
                )


def _planned(ends: Ends, pair: Pair, target: Table) -> TablePlan:
    """As the run plans it, with the rights that it asks for."""
    here, there = ends.source.endpoint, ends.target.endpoint
    plan = plan_table(pair.mapping, here, pair.source, there, target)
    for side, relation in ((ends.source, plan.read), (ends.target, plan.target)):
        if isinstance(side, ChecksRights):
            side.require_select(relation)
    return plan


def _untyped(pair: Pair) -> Iterator[Finding]:
    for column in pair.mapping.columns:
        if is_untyped(column):
            yield info(
                Subject.TYPES,
                f"{column.name} is computed, and the task does not say its type: whether the target holds it is seen"
                " when the run begins",
                f"say it: add: {{{column.name}: {{sql: …, type: …}}}}",
                pair.name,
            )


def _missing(pair: Pair, target: Table) -> Iterator[Finding]:
    """Columns that one side alone has."""
    for column in pair.mapping.columns:
        if target.column(column.name) is None:
            yield error(
                Subject.TYPES,
                f"{target.name} has no column {column.name}, so the table cannot be carried whole",
                f"add the column {column.name} to {target.name}",
                pair.name,
            )
    for other in target.columns:
        if pair.arriving(other.name) is None:
            yield _extra(pair, target, other)


def _column(
    ends: Ends, pair: Pair, target: Table, ours: Column, theirs: Column
) -> Iterator[Finding]:
    if theirs.generated and not ours.generated:
        yield warning(
            Subject.TYPES,
            f"{theirs.name} is computed by the target: what the source has is compared with it, and not written",
            "",
            pair.name,
        )
    arriving = pair.arriving(theirs.name)
    if arriving is None or isinstance(arriving.origin, Expressed):
        return  # an expression may give less than its type has room for
    values = _misfit(pair, target, arriving, ours, theirs)
    is_null = ours.nullable and not theirs.nullable and not theirs.weak and not theirs.generated
    if values is None and not is_null:
        return
    remedy = attempt(lambda: _alter(ends, pair, target, ours, theirs))
    how = remedy if isinstance(remedy, str) else ""
    if is_null:
        if _holds_null(ends, pair, theirs.name):
            said = f"{ours.name} holds NULL, which it must not on the target"
            yield error(Subject.TYPES, said, how, pair.name)
        else:
            said = f"{ours.name} may be NULL on the source, and must not on the target"
            yield warning(Subject.TYPES, said, how, pair.name)
    if values is not None:
        said = f"{ours.name} ({ours.native}) does not fit {theirs.native} on the target"
        yield warning(Subject.TYPES, f"{said}: {values} stop the run", how, pair.name)


def _misfit(
    pair: Pair, target: Table, arriving: TargetColumn, ours: Column, theirs: Column
) -> str | None:
    """Which values do not fit; what the source's declaration or the rule itself bounds is judged."""
    match arriving.origin:
        case Converted():
            return None
        case Constant(text) if isinstance(ours.type, Text):
            ours = replace(ours, native=f"varchar({len(text or '')})")
    return misfit(ours, pair.source.engine, theirs, target.engine)


def _holds_null(ends: Ends, pair: Pair, name: str) -> bool:
    origin = pair.origin(name)
    if origin is None or not pair.tells:
        return False
    return has_row(ends.source, pair.source.name, f"{ends.source.dialect.quote(origin)} IS NULL")


def _alter(ends: Ends, pair: Pair, target: Table, ours: Column, theirs: Column) -> str:
    if ends.target_advisor is None:
        return ""
    return ends.target_advisor.alter_column(target.name, theirs, ours, pair.source)


def _extra(pair: Pair, target: Table, column: Column) -> Finding:
    name = column.name
    filled = (
        column.nullable
        or column.generated
        or column.name in target.numbered
        or column.name in target.defaulted
    )
    if filled:
        return info(
            Subject.TYPES,
            f"{target.name}.{name} is only on the target, and keeps its default",
            "",
            pair.name,
        )
    return error(
        Subject.TYPES,
        f"{target.name}.{name} is only on the target, must not be NULL and has no default: no row can be written",
        f"drop the column {name}, or give it a default",
        pair.name,
    )


def check_time_zones(ends: Ends) -> Iterator[Finding]:
    """Values travel in UTC; programs that connect see them in the server's zone."""
    if ends.source_advisor is None or ends.target_advisor is None:
        return
    here, there = ends.source_advisor.time_zone(), ends.target_advisor.time_zone()
    if here is None or there is None or _zone(here) == _zone(there):
        return
    held = [
        f"{pair.name}.{column.name}"
        for pair in ends.pairs
        for column in pair.arrives.columns
        if column.type == Timestamp(zone=True)
    ]
    said = f"the source's sessions are in {here}, the target's in {there}"
    if held:
        more = f" and {len(held) - 1} more" if len(held) > 1 else ""
        yield warning(
            Subject.TIME,
            f"{said}: instants ({held[0]}{more}) arrive as they are, and programs that do not set their zone will be"
            " shown another time",
            ends.target_advisor.set_time_zone(_zone(here))
            or f"set the zone of each session to {here}",
        )
    else:
        yield info(Subject.TIME, f"{said}; no column that is carried depends on it")


def _zone(name: str) -> str:
    return "UTC" if name.removeprefix("Etc/") in _UTC else name
