"""Columns that a source table got, and those that it lost, while its changes are carried.

A column that may be NULL and has no default is NULL in every row that was there before: the target gets it,
and nothing else is to be done. Whatever else happened to a table needs somebody who knows what it means; the
task stops in front of the first change that was made under the new definition, and says what to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from truecopy.engines.protocols import Creates
from truecopy.engines.sql import drop_column_sql
from truecopy.mapping.plan import TableMapping
from truecopy.model.table import Column, Table
from truecopy.transfer.redefinition import DefinitionChanged

ADDITIVE = "additive"


def new_columns(mapping: TableMapping, target: Table) -> list[Column]:
    """The columns that rows now have and the target lacks, by the target's names."""
    return [
        replace(column.like, name=column.name)
        if column.like is not None
        else Column(column.name, column.type, "")
        for column in mapping.columns
        if target.column(column.name) is None
    ]


def lost_columns(mapping: TableMapping, arrived: Sequence[Column], source: Table) -> list[str]:
    """Columns that arrived before and do not any more; one that the source still has is younger than the change."""
    names = {column.name.lower() for column in mapping.columns}
    back = {new: old for old, new in mapping.renames.items()}
    return [
        column.name
        for column in arrived
        if column.name.lower() not in names
        and not column.generated
        and source.column(back.get(column.name, column.name)) is None
    ]


def widen(target: Any, mapping: TableMapping, source: Table, onto: Table, ddl: str) -> list[str]:
    """Gives the target the columns that it lacks; gives what was run."""
    missing = new_columns(mapping, onto)
    if not missing:
        return []
    described = replace(source, name=onto.name)
    statements = target.add_columns(described, missing) if isinstance(target, Creates) else []
    back = {new: old for old, new in mapping.renames.items()}
    for column in missing:
        old = back.get(column.name, column.name)
        if ddl == ADDITIVE and isinstance(target, Creates) and _is_plain(source, old):
            continue
        raise DefinitionChanged(
            f"{mapping.source} has a column {old} that {onto.name} on the target lacks: run"
            f" {'; '.join(statements) or f'ALTER TABLE {onto.name} ADD COLUMN {column.name} …'} on the target,"
            " fill it for the rows that are there, and run the task again"
        )
    return statements


def _is_plain(source: Table, name: str) -> bool:
    """Whether a column is NULL in every row that was there before it."""
    column = source.column(name)
    has_default = name in source.defaulted
    return column is not None and column.nullable and not column.generated and not has_default


def refuse_lost(target: Any, mapping: TableMapping, onto: Table, lost: Sequence[str]) -> None:
    """Stops in front of changes of a table that lost columns."""
    if lost:
        statement = drop_column_sql(target.dialect, onto.name, lost[0])
        raise DefinitionChanged(
            f"{mapping.source} has no column {lost[0]} any more: run {statement} on the"
            " target if its values are not needed there either, and run the task again"
        )
