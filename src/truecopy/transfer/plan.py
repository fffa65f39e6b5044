"""What a task moves: each source table, the target table that takes its rows, and how they match."""

from __future__ import annotations

from dataclasses import dataclass, replace

from truecopy.model.change import Definition
from truecopy.model.errors import UsageError
from truecopy.model.relation import Relation
from truecopy.model.table import Column, Table
from truecopy.verify.matching import Comparison


@dataclass(frozen=True)
class TablePlan:
    """One source table on its way into one target table; plain values for executors.

    Attributes:
        comparison: Both sides column by column, with the types on which they agreed.
        sliced: Whether its rows may be written in parallel: not where a second unique key ties them together.
    """

    comparison: Comparison
    sliced: bool

    @property
    def source_name(self) -> str:
        return str(self.comparison.source_tables[0].name)

    @property
    def source(self) -> Relation:
        return self.comparison.source

    @property
    def target(self) -> Relation:
        return self.comparison.target


@dataclass(frozen=True)
class ChangeTarget:
    """Where changes of one definition of a table go.

    Attributes:
        relation: The target's columns, key first, typed as the *changes* are: their texts are cast on
            the way in.
        places: Where each of these columns is in a change's row.
        key_places: Where the relation's key columns are in a change's key.
    """

    table: str
    relation: Relation
    places: tuple[int, ...]
    key_places: tuple[int, ...]


def change_target(plan: TablePlan, definition: Definition) -> ChangeTarget:
    """Matches a definition that rows were logged under with the table that takes them, by column name."""
    pairs = list(zip(plan.source.columns, plan.target.columns, strict=True))
    names = {column.name.lower(): place for place, column in enumerate(definition.columns)}
    carried = [(a, b) for a, b in pairs if a.name.lower() in names and not b.generated]
    key = pairs[: plan.source.key_width]
    for column, _ in key:
        if column.name.lower() not in (name.lower() for name in definition.key):
            raise UsageError(
                f"changes of {definition.table} are keyed by {', '.join(definition.key) or 'nothing'}, and the copy by"
                f" {column.name}: give both the same key"
            )
    lost = [c.name for c in definition.columns if not _is_carried(c, carried)]
    if lost and not _only_left_out(lost, plan):
        raise UsageError(
            f"{definition.table} has a column {lost[0]} that the target does not have: add it there first"
        )
    places = tuple(names[a.name.lower()] for a, _ in carried)
    relation = replace(
        plan.target,
        columns=tuple(b for _, b in carried),
        types=tuple(definition.columns[place].type for place in places),
        where=None,
    )
    keys = [name.lower() for name in definition.key]
    key_places = tuple(keys.index(column.name.lower()) for column, _ in key)
    return ChangeTarget(definition.table, relation, places, key_places)


def _is_carried(column: Column, carried: list[tuple[Column, Column]]) -> bool:
    return any(a.name.lower() == column.name.lower() for a, _ in carried)


def _only_left_out(lost: list[str], plan: TablePlan) -> bool:
    """Whether the columns are those that the task leaves out, or that the target computes itself."""
    computed = {
        a.name.lower()
        for a, b in zip(plan.source.columns, plan.target.columns, strict=True)
        if b.generated
    }
    left_out = {name.lower() for name in plan.comparison.ignored} | computed
    return all(name.lower() in left_out for name in lost)


def may_be_sliced(target: Table, key: tuple[str, ...]) -> bool:
    """A swap of two unique values is right only where both rows are written in one transaction."""
    wanted = {name.lower() for name in key}
    return bool(key) and all({c.lower() for c in unique} == wanted for unique in target.unique)
