"""Indexes and references of the target, made when nothing goes back in time any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from truecopy.engines.creation import later_indexes
from truecopy.engines.protocols import Introspects
from truecopy.model.errors import CannotFinish, Refused, UsageError
from truecopy.model.table import ForeignKey, Table, TableName
from truecopy.transfer.apply import run_all
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.ties import require_same_keys, tied_plans


def make_indexes(
    source: Introspects,
    target: Any,
    plans: Mapping[str, TablePlan],
    annotation: str,
    said: Callable[[str], None],
) -> int:
    """All indexes, and then the references between tables; gives how many of them the target refused.

    These are told, and left out: a copy that is whole is of use without them. Not so a unique one: the programs that
    follow the data rely on it.
    """
    refused = 0
    lacking = _lacking_tables(source, target, plans)
    indexes = _refused_indexes(target, lacking, annotation)
    references = _refused_references(target, lacking, annotation)
    for line in chain(indexes, references):
        refused += 1
        said(f"not carried, since the target refuses it: {line}")
    return refused


def tie_tables(
    source: Introspects, target: Any, plans: Mapping[str, TablePlan], annotation: str
) -> None:
    """Makes the target's foreign keys do what those of the source do; before changes of such tables are applied.

    Their copies are of one moment, so that their indexes can be made, too.
    """
    tied = tied_plans(plans)
    lacking = _lacking_tables(source, target, tied)
    for _ in _refused_indexes(target, lacking, annotation):
        pass  # told when the others are made
    for line in _refused_references(target, lacking, annotation):
        raise CannotFinish(f"the target refuses a foreign key that has to act there: {line}")
    by_name = _by_name(tied)
    wanted = [
        (plan.target.tables[0], tuple(references_of(source.describe(name), by_name)))
        for name, plan in by_name.items()
    ]
    require_same_keys(wanted, target)


def _refused_indexes(target: Any, tables: Sequence[Table], annotation: str) -> Iterator[str]:
    for table in tables:
        for index in table.indexes:
            for statement in target.create_indexes(replace(table, indexes=(index,))):
                line = _refusal(target, statement, annotation)
                if line and index.unique:
                    raise CannotFinish(
                        f"the target refuses a unique index: {line}; mend the rows, or make one there over the same"
                        " columns, and run the same command again"
                    )
                if line:
                    yield line


def _refused_references(target: Any, tables: Sequence[Table], annotation: str) -> Iterator[str]:
    for table in tables:
        for statement in target.create_foreign_keys(table):
            if line := _refusal(target, statement, annotation):
                yield line


def _refusal(target: Any, statement: str, annotation: str) -> str | None:
    """Runs a statement; where it is the statement that the server does not take, that and the reason."""
    try:
        run_all(target, [statement], annotation)
    except (Refused, UsageError) as error:
        return f"{statement.replace('%%', '%')} ({error})"
    return None


def _lacking_tables(
    source: Introspects, target: Any, plans: Mapping[str, TablePlan]
) -> list[Table]:
    by_name = _by_name(plans)
    return [
        _lacking(source.describe(name), target.describe(plan.target.tables[0]), by_name)
        for name, plan in by_name.items()
    ]


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
    has_index.add((target.primary, True))
    has_reference = {(key.columns, key.parent) for key in target.foreign_keys}
    indexes = [
        replace(index, columns=columns)
        for index in later_indexes(source)
        if (columns := _arrived(plan, index.columns))
        and (columns, index.unique) not in has_index
        and not (index.unique and plan.mapping.merged)
    ]
    references = [
        key
        for key in references_of(source, plans)
        if (key.columns, key.parent) not in has_reference
    ]
    return replace(
        source,
        name=target.name,
        primary=source.keys[0] if source.keys else (),  # any other is one of the indexes
        indexes=tuple(indexes),
        foreign_keys=tuple(references),
    )


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
