"""Rows of texts into a table of any target: found or made, filled in bulk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines.lines import transaction
from truecopy.engines.protocols import Creates, Introspects, Loads, Session, Statement
from truecopy.engines.sql import table_sql
from truecopy.mapping.plan import as_table
from truecopy.model.change import Definition
from truecopy.model.errors import UsageError
from truecopy.model.relation import Relation
from truecopy.model.table import Table, TableName
from truecopy.verify.matching import match_tables
from truecopy.verify.options import Options


@dataclass(frozen=True)
class RowTarget:
    """A table that takes rows of a definition; plain values for executors.

    Attributes:
        relation: The target's columns, key first, typed as the rows are: their texts are cast on the way in.
        places: Where each of these columns is in a row.
    """

    relation: Relation
    places: tuple[int, ...]

    def columns(self, rows: pa.Array) -> pa.Table:
        """Arrays of texts as the columns of a load."""
        return pa.table(
            {f"c{i}": pc.list_element(rows, place) for i, place in enumerate(self.places)}
        )


def described(definition: Definition, engine: str, name: TableName) -> Table:
    """A definition as a table that another engine can make."""
    table = as_table(definition, name)
    return replace(table, engine=engine, primary=definition.key, unique=table.keys)


def find_or_make(target: Session, table: Table) -> Table:
    """The table of a target that takes rows of another one."""
    if not isinstance(target, Loads) or not isinstance(target, Introspects):
        raise UsageError(f"{target.endpoint.scheme}:// takes no rows")
    found = target.find(str(table.name))
    if found is None:
        if not isinstance(target, Creates):
            raise UsageError(f"{target.endpoint} has no table {table.name}, and cannot make one")
        for statement in target.create_table(table):
            with transaction(target):
                target.execute(Statement(statement))
        found = target.find(str(table.name))
        assert found is not None, f"{table.name} was made and is not shown"
    return target.describe(found)


def row_target(target: Session, table: Table, onto: Table) -> RowTarget:
    """Matches columns by name; each column of the rows must have its place."""
    comparison = match_tables(target.endpoint, (table,), target.endpoint, onto, Options())
    for finding in comparison.findings:
        if finding.kind == "missing_on_target":
            raise UsageError(f"{table.name} cannot be carried whole: {finding.message}")
    pairs = zip(comparison.source.columns, comparison.target.columns, strict=True)
    carried = [(a, b) for a, b in pairs if not b.generated]
    names = [column.name for column in table.columns]
    places = tuple(names.index(a.name) for a, _ in carried)
    relation = replace(
        comparison.target,
        columns=tuple(b for _, b in carried),
        types=tuple(a.type for a, _ in carried),
    )
    return RowTarget(relation, places)


def is_empty(target: Session, relation: Relation) -> bool:
    """Whether a table has no row."""
    session: Any = target
    name = table_sql(session.dialect, relation.tables[0])
    return not session.fetch(Statement(f"SELECT 1 FROM {name} LIMIT 1"))


def split_name(text: str) -> TableName:
    """A table's name as the log has it."""
    schema, _, table = text.rpartition(".")
    return TableName(schema or None, table)
