"""Indexes and references of the target, made when nothing goes back in time any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from truecopy.engines.creation import later_indexes
from truecopy.engines.protocols import Introspects
from truecopy.mapping.plan import TableMapping
from truecopy.model.errors import CannotFinish, Refused, UsageError
from truecopy.model.table import ForeignKey, Table, TableName
from truecopy.transfer.apply import run_all
from truecopy.transfer.plan import TablePlan, arriving, referring, spelled
from truecopy.transfer.ties import require_same_keys, tied_plans


@dataclass(frozen=True)
class _Way:
    """A table of the source, the one of the target, and how the one becomes the other, by the target's names."""

    source: Table
    mapping: TableMapping
    onto: Table

    @property
    def arrives(self) -> Table:
        return arriving(self.mapping, self.source)


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
    ways = _ways(source, target, tied)
    wanted = [(way.onto.name, tuple(_references(way, ways))) for way in ways.values()]
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
    """The target's tables with what they lack; those that merge into one bring the same things."""
    ways = _ways(source, target, plans)
    tables: dict[TableName, Table] = {}
    for way in ways.values():
        lacks = _lacking(way, ways)
        first = tables.get(way.onto.name)
        tables[way.onto.name] = _merged(first, lacks) if first is not None else lacks
    return list(tables.values())


def _ways(
    source: Introspects, target: Any, plans: Mapping[str, TablePlan]
) -> dict[TableName, _Way]:
    ways = {}
    for plan in plans.values():
        onto = target.describe(plan.target.tables[0])
        name = plan.mapping.source
        ways[name] = _Way(source.describe(name), spelled(plan.mapping, onto), onto)
    return ways


def _lacking(way: _Way, ways: Mapping[TableName, _Way]) -> Table:
    """The target's table with the indexes and references that it still lacks.

    A run that ended between two of them has made some. An index over a column that does not arrive as it is,
    a unique one over rows of several tables, and a reference to a table that the task leaves behind have
    nothing to stand on.
    """
    arrives = way.arrives
    has_index = {(index.columns, index.unique) for index in way.onto.indexes}
    has_index.add((way.onto.primary, True))
    has_reference = {(key.columns, key.parent) for key in way.onto.foreign_keys}
    indexes = later_indexes(arrives)
    references = _references(way, ways)
    return replace(
        arrives,
        name=way.onto.name,
        primary=arrives.keys[0] if arrives.keys else (),  # any other is one of the indexes
        indexes=tuple(i for i in indexes if (i.columns, i.unique) not in has_index),
        foreign_keys=tuple(
            key for key in references if (key.columns, key.parent) not in has_reference
        ),
    )


def _merged(first: Table, more: Table) -> Table:
    has_index = {(index.columns, index.prefixes) for index in first.indexes}
    has_reference = {(key.columns, key.parent) for key in first.foreign_keys}
    indexes = [i for i in more.indexes if (i.columns, i.prefixes) not in has_index]
    keys = [k for k in more.foreign_keys if (k.columns, k.parent) not in has_reference]
    return replace(
        first,
        indexes=(*first.indexes, *indexes),
        foreign_keys=(*first.foreign_keys, *keys),
    )


def _references(way: _Way, ways: Mapping[TableName, _Way]) -> list[ForeignKey]:
    """The references of a source table as the target's table should have them."""
    found = []
    for key in way.arrives.foreign_keys:
        parent = ways.get(key.parent)
        if parent is None:
            continue
        there = referring(key, parent.mapping, parent.source, parent.onto.name)
        if there is not None:
            found.append(there)
    return found
