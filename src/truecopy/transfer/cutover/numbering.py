"""Numbers that the new side gives go on where those of the old one stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from truecopy.engines import connect
from truecopy.engines.protocols import HasSequences, Introspects, Session, SetsSequences
from truecopy.model.table import TableName
from truecopy.transfer.cutover.stage import Stage


def set_numbers(stage: Stage) -> None:
    """Of columns that number their rows, and of sequences that both sides have; what is left is told."""
    with connect(stage.source) as source, connect(stage.target) as target:
        _set_columns(stage, source, target)
        _set_sequences(stage, source, target)


def _set_columns(stage: Stage, source: Session, target: Session) -> None:
    if not isinstance(target, SetsSequences):
        return
    for plan in stage.plans.values():
        table = cast(Introspects, source).describe(plan.mapping.source)
        named = replace(table, name=plan.target.tables[0])
        target.set_sequences(named, annotation=stage.settings.annotation)


def _set_sequences(stage: Stage, source: Session, target: Session) -> None:
    if not isinstance(source, HasSequences):
        return
    there = target.sequences() if isinstance(target, HasSequences) else {}
    for name, number in source.sequences().items():
        found = _same(name, there)
        if found is None:
            at = "" if number is None else f", and goes on at {number} there"
            stage.notes.append(
                f"the sequence {name} of {stage.source} is not on {stage.target}{at}: make it, if anybody needs it"
            )
        elif number is None:
            stage.notes.append(
                f"{stage.source} hides the numbers of the sequence {name}: set that of {stage.target} by hand"
            )
        else:
            cast(HasSequences, target).advance_sequence(found, number, stage.settings.annotation)


def _same(name: TableName, others: Iterable[TableName]) -> TableName | None:
    """The one of the same name: of the same schema, where both sides have schemas of that name."""
    alike = [other for other in others if other.table == name.table]
    return name if name in alike else next(iter(alike), None)
