"""Tables that foreign keys tie together, where the source does not log what these keys do to rows.

MariaDB, and MySQL before 9.6, change rows by `ON DELETE` and `ON UPDATE` and log only the change that set it
off. With `cascades: target` the target's own foreign keys do the same. What could go wrong, and why it does not:

- Chunks are of different moments. A child that was read before its parent was deleted, and the parent after it,
  would stay for ever: no log tells of the child. So tied tables are copied out of one snapshot whose position
  is known, and changes up to there are passed over: from then on the target's tables are always those that the
  source had at some position, and the same change has the same consequences.
- A batch that is applied again would act again. It is not: its progress is part of the same transaction. Where
  it would come first (at most once), rows could be missing that a key acts on, so that is refused.
- A batch is applied as its net effect, which knows no order: a parent that was deleted and came again has lost
  its children, one that was updated has not. So changes go in their order, cut at those by which foreign keys
  act (`acting`); between these nothing acts, and the net effect is right.
- An update that is written as delete and insert would take the children along. Foreign keys act only while
  the changes are written by which they acted on the source, and those of a parent's key are updates.
- Tables of one batch are written in parallel. Tied ones are one part, in one transaction.
- Somebody wrote on the source while its foreign keys were switched off: the log says so, and then none acts.
- The target's foreign keys are not those of the source: they are compared at every start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from truecopy.engines.protocols import Cascades, HidesCascades
from truecopy.mapping.plan import TableMapping
from truecopy.model.errors import UsageError
from truecopy.model.table import ForeignKey, Table, TableName
from truecopy.transfer.plan import TablePlan, Tie, is_mapped
from truecopy.transfer.settings import AT_MOST_ONCE, TARGET_CASCADES, Settings


@dataclass(frozen=True)
class Refusal:
    """Why a table cannot be tied on the target, and what to do."""

    table: TableName
    reason: str
    remedy: str


def are_wanted(settings: Settings, source: object) -> bool:
    """Whether the target has to do what foreign keys of the source do."""
    hides = isinstance(source, HidesCascades) and not source.logs_cascades()
    return hides and settings.cascades == TARGET_CASCADES


def find_ties(tables: Mapping[TableName, Table]) -> dict[TableName, Tie]:
    """Every table that foreign keys connect, directly or through others, with one that acts on rows."""
    found = {}
    for group in _connected(tables):
        keys = [(name, key) for name in group for key in _inside(tables, name)]
        if not any(key.actions for _, key in keys):
            continue
        for name in group:
            mine = [key for _, key in keys if key.parent == name]
            moved = [key for key in mine if key.acts_on_update]
            found[name] = Tie(
                takes=any(key.acts_on_delete for key in mine),
                referred=tuple(sorted({c for key in moved for c in _referred(key, tables[name])})),
                follows=any(child == name and key.actions for child, key in keys),
            )
    return found


def refusals(
    settings: Settings,
    tables: Mapping[TableName, Table],
    mappings: Mapping[TableName, TableMapping],
    target: object,
) -> Iterator[Refusal]:
    """What stands in the way of `cascades: target`."""
    ties = find_ties(tables)
    for name, table in tables.items():
        for key in table.foreign_keys:
            if key.actions and key.parent not in tables:
                yield Refusal(
                    name,
                    f"its rows go or change with those of {key.parent} ({key.actions}), which the task leaves behind",
                    f"add {key.parent} to the task, or leave {name} out",
                )
    for name in ties:
        mapping = mappings[name]
        columns = {
            *(c for key in _inside(tables, name) for c in key.columns),
            *(
                c
                for child in tables
                for key in _inside(tables, child)
                if key.parent == name
                for c in _referred(key, tables[name])
            ),
        }
        if is_mapped(mapping) or columns - mapping.renames.keys():
            yield Refusal(
                name,
                "foreign keys change its rows, or others with them, which the target cannot do to rows that are"
                " filtered, computed or merged on their way",
                "carry it as it is, or leave it out",
            )
        elif not tables[name].keys:
            yield Refusal(
                name,
                "foreign keys tie it to others, and it has no key",
                "give it one, or leave it out",
            )
    if not ties:
        return
    some = next(iter(ties))
    if not isinstance(target, Cascades):
        yield Refusal(some, "the target cannot cascade as the source does", "leave the table out")
    if settings.delivery == AT_MOST_ONCE:
        yield Refusal(
            some,
            "with delivery: at-most-once rows may be missing on which foreign keys would act",
            "write delivery: at-least-once",
        )
    if settings.leg is not None:
        yield Refusal(
            some, "rows of a keyspace go different ways", "leave cascades: target out of the task"
        )


def require_possible(
    settings: Settings,
    tables: Mapping[TableName, Table],
    mappings: Mapping[TableName, TableMapping],
    target: object,
) -> None:
    """Raises the first refusal."""
    for one in refusals(settings, tables, mappings, target):
        raise UsageError(f"{one.table}: {one.reason}: {one.remedy}")


def require_same_keys(
    wanted: Iterable[tuple[TableName, tuple[ForeignKey, ...]]], target: Any
) -> None:
    """The foreign keys of the target must do what those of the source do, no less and no more.

    Args:
        wanted: Of each tied table of the target the foreign keys that it should have.
        target: A session.
    """
    for name, keys in wanted:
        there = {_said(key) for key in target.describe(name).foreign_keys if key.actions}
        here = {_said(key) for key in keys if key.actions}
        for said in sorted(here - there):
            raise UsageError(
                f"{name} on the target lacks what the source's table has: FOREIGN KEY {said}: make it there, or drop"
                " the table and let it be made"
            )
        for said in sorted(there - here):
            raise UsageError(
                f"{name} on the target has a foreign key that the source's table has not: {said}: drop it there"
            )


def tied_plans(plans: Mapping[str, TablePlan]) -> dict[str, TablePlan]:
    """The tables that are tied."""
    return {name: plan for name, plan in plans.items() if plan.tie is not None}


def _connected(tables: Mapping[TableName, Table]) -> list[list[TableName]]:
    """Tables that foreign keys connect, group by group."""
    neighbours: dict[TableName, set[TableName]] = {name: set() for name in tables}
    for name in tables:
        for key in _inside(tables, name):
            neighbours[name].add(key.parent)
            neighbours[key.parent].add(name)
    groups, seen = [], set[TableName]()
    for name in tables:
        if name in seen:
            continue
        group, waiting = list[TableName](), [name]
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                group.append(one)
                waiting += neighbours[one]
        groups.append(group)
    return groups


def _inside(tables: Mapping[TableName, Table], name: TableName) -> list[ForeignKey]:
    return [key for key in tables[name].foreign_keys if key.parent in tables]


def _referred(key: ForeignKey, parent: Table) -> tuple[str, ...]:
    return key.parent_columns or parent.primary


def _said(key: ForeignKey) -> str:
    columns, others = ", ".join(key.columns), ", ".join(key.parent_columns)
    return f"({columns}) REFERENCES {key.parent} ({others}) {key.actions}".lower()
