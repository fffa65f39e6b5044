"""Columns of tables that are on both sides: whether all are there, and whether values fit."""

from __future__ import annotations

from collections.abc import Iterator

from truecopy.model.errors import TruecopyError
from truecopy.model.finding import Finding, Subject
from truecopy.model.table import Column, Table
from truecopy.model.types import Timestamp
from truecopy.transfer.preflight.ends import (
    Ends,
    Pair,
    attempt,
    error,
    has_row,
    info,
    told_apart,
    warning,
)
from truecopy.transfer.preflight.fit import misfit
from truecopy.verify.matching import Comparison, NotCompared, Pairing, match

_UTC = ("UTC", "UCT", "GMT", "Zulu", "Universal", "Greenwich", "+00:00", "-00:00")


def check_columns(ends: Ends) -> Iterator[Finding]:
    """As the transfer itself matches them, and then what it finds out row by row only."""
    for pair, target in ends.existing:
        pairing = Pairing((pair.source.name,), target.name)
        found = attempt(
            lambda pairing=pairing: match(
                ends.source, ends.target, pairing, ends.settings.matching
            ),  # type: ignore[misc]
            ends.source,
            ends.target,
        )
        if isinstance(found, TruecopyError):
            yield error(Subject.RIGHTS, *told_apart(found), pair.name)
        elif isinstance(found, NotCompared):
            message, _, remedy = found.reason.partition("; ")
            yield error(Subject.TYPES, message, remedy, pair.name)
        else:
            yield from _matched(ends, pair, target, found)


def check_odd_values(ends: Ends) -> Iterator[Finding]:
    """Values that the target's engine has no place for."""
    if ends.source_advisor is None or ends.target_advisor is None:
        return
    if ends.source_advisor.holds <= ends.target_advisor.holds:
        return
    for pair in ends.pairs:
        if not pair.is_small:
            continue
        for column, what in ends.source_advisor.odd_values(pair.source):
            if what not in ends.target_advisor.holds:
                yield error(
                    Subject.TYPES,
                    f"{column} holds {what}, and the target has no place for them",
                    "change these rows, or leave the column out",
                    pair.name,
                )


def _matched(ends: Ends, pair: Pair, target: Table, found: Comparison) -> Iterator[Finding]:
    for finding in found.findings:
        if finding.kind == "missing_on_target":
            yield error(
                Subject.TYPES,
                f"{finding.message}, so the table cannot be carried whole",
                f"add the column {finding.column} to {target.name}",
                pair.name,
            )
        elif finding.kind == "missing_on_source":
            yield _extra(pair, target, finding.column)
    for ours, theirs in zip(found.source.columns, found.target.columns, strict=True):
        yield from _column(ends, pair, target, ours, theirs)


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
    values = misfit(ours, pair.source.engine, theirs, target.engine)
    is_null = ours.nullable and not theirs.nullable and not theirs.weak and not theirs.generated
    if values is None and not is_null:
        return
    remedy = attempt(lambda: _alter(ends, pair, target, ours, theirs))
    how = remedy if isinstance(remedy, str) else ""
    if is_null:
        condition = f"{ends.source.dialect.quote(ours.name)} IS NULL"
        if pair.is_small and has_row(ends.source, pair.source.name, condition):
            said = f"{ours.name} holds NULL, which it must not on the target"
            yield error(Subject.TYPES, said, how, pair.name)
        else:
            said = f"{ours.name} may be NULL on the source, and must not on the target"
            yield warning(Subject.TYPES, said, how, pair.name)
    if values is not None:
        said = f"{ours.name} ({ours.native}) does not fit {theirs.native} on the target"
        yield warning(Subject.TYPES, f"{said}: {values} stop the run", how, pair.name)


def _alter(ends: Ends, pair: Pair, target: Table, ours: Column, theirs: Column) -> str:
    if ends.target_advisor is None:
        return ""
    return ends.target_advisor.alter_column(target.name, theirs, ours, pair.source)


def _extra(pair: Pair, target: Table, name: str) -> Finding:
    column = target.column(name)
    filled = (
        column is None
        or column.nullable
        or column.generated
        or column.name in target.numbered
        or f"the default of {column.name}" in target.uncarried
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
        for column in pair.source.columns
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
