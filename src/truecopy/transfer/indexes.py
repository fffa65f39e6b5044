"""Indexes and references of the target, made when nothing goes back in time any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from truecopy.engines.protocols import Introspects
from truecopy.model.table import ForeignKey, Table, TableName
from truecopy.transfer.apply import run_all
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.ties import require_same_keys, tied_plans


def make_indexes(
    source: Introspects, target: Any, plans: Mapping[str, TablePlan], annotation: str
) -> None:
    """All indexes, and then the references between tables."""
    by_name = _by_name(plans)
    lacking = [
        _lacking(source.describe(name), target.describe(plan.target.tables[0]), by_name)
        for name, plan in by_name.items()
    ]
    for make in (target.create_indexes, target.create_foreign_keys):
        for table in lacking:
            run_all(target, make(table), annotation)


def tie_tables(
    source: Introspects, target: Any, plans: Mapping[str, TablePlan], annotation: str
) -> None:
    """Makes the target's foreign keys do what those of the source do; before changes of such tables are applied.

    Their copies are of one moment, so that their indexes can be made, too.
    """
    tied = tied_plans(plans)
    make_indexes(source, target, tied, annotation)
    by_name = _by_name(tied)
    wanted = [
        (plan.target.tables[0], tuple(references_of(source.describe(name), by_name)))
        for name, plan in by_name.items()
    ]
    require_same_keys(wanted, target)


def _by_name(plans: Mapping[str, TablePlan]) -> dict[TableName, TablePlan]:
    return {plan.mapping.source: plan for plan in plans.values()}


def _lacking(source: Table, target: Table, plans: Mapping[TableName, TablePlan]) -> Table:
    """The target's table with the indexes and references that it still lacks.

    A run that ended between two of them has made some. An index over a column that does not arrive as it is,
    a unique one over rows of several tables, and a reference to a table that the task leaves behind have
    nothing to stand on.
    """
    plan = plans[source.name]
    has_index = {(index.columns, index.unique) for index in target.indexes}
    has_reference = {(key.columns, key.parent) for key in target.foreign_keys}
    indexes = [
        replace(index, columns=columns)
        for index in source.indexes
        if (columns := _arrived(plan, index.columns))
        and (columns, index.unique) not in has_index
        and not (index.unique and plan.mapping.merged)
    ]
    references = [
        key
        for key in references_of(source, plans)
        if (key.columns, key.parent) not in has_reference
    ]
    return replace(source, name=target.name, indexes=tuple(indexes), foreign_keys=tuple(references))


def references_of(source: Table, plans: Mapping[TableName, TablePlan]) -> list[ForeignKey]:
    """The references of a source table as the target's table should have them."""
    found = []
    for key in source.foreign_keys:
        parent, columns = plans.get(key.parent), _arrived(plans[source.name], key.columns)
        if parent is None or not columns:
            continue
        onto, parent_columns = parent.target.tables[0], _arrived(parent, key.parent_columns)
        if len(parent_columns) == len(key.parent_columns) and not parent.mapping.merged:
            found.append(replace(key, columns=columns, parent=onto, parent_columns=parent_columns))
    return found


def _arrived(plan: TablePlan, columns: Sequence[str]) -> tuple[str, ...]:
    """Columns by the names that they have on the target; none where one does not arrive as it is."""
    names = plan.mapping.renames
    return tuple(names[name] for name in columns) if all(c in names for c in columns) else ()
