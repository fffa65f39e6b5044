"""The rows of a leg.

What a leg must not touch, its SQL does not see: on the source the rows that go elsewhere, on the target the
rows that come from elsewhere. So whatever copies or verifies a leg does it as for any table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from truecopy.engines.key_ranges import key_range_sql, no_keyspace_id_sql
from truecopy.engines.protocols import Session
from truecopy.mapping.choice import nearest
from truecopy.mapping.key_ranges import only_range
from truecopy.mapping.plan import TableMapping
from truecopy.model.change import Definition
from truecopy.model.errors import UsageError
from truecopy.model.keyspace import KeyRange, Sharding
from truecopy.model.table import Column, TableName
from truecopy.model.types import Type
from truecopy.transfer.leg import Leg
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.preflight.ends import has_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMELESS = (
    "has rows whose {} is NULL or negative, so that they belong to no shard: give them another value, or leave the"
    " table out"
)


def narrowed(plan: TablePlan, leg: Leg, source: Session, target: Session) -> TablePlan:
    """The plan of a table with only the rows of a leg on both sides."""
    if not leg.is_filtered and not leg.is_shared:
        return plan
    mapping, read, comparison = plan.mapping, plan.read, plan.comparison
    if leg.is_filtered:
        rule = leg.rule(str(mapping.source))
        column = sharding_column(mapping, rule)
        if lacks_ids(source, mapping.source, column, rule):
            raise UsageError(f"{mapping.source} {NAMELESS.format(column.name)}")
        where = _condition(source, column, column.type, rule, leg.target)
        if read == comparison.source:
            comparison = replace(comparison, source=replace(read, where=where))
        read = replace(read, where=where)
    if mine := rows_on_target(leg, mapping, comparison.target.columns, target):
        comparison = replace(comparison, target=replace(comparison.target, where=mine))
    return replace(plan, read=read, comparison=comparison)


def rows_on_target(
    leg: Leg, mapping: TableMapping, columns: Sequence[Column], target: Session
) -> str | None:
    """A condition for the rows of a target's table that come from this leg; None where all do."""
    if not leg.is_shared:
        return None
    rule = leg.rule(str(mapping.source))
    column = sharding_column(mapping, rule)
    name = mapping.renames.get(column.name, "")
    arrived = next((one for one in columns if one.name.lower() == name.lower()), None)
    if arrived is None:
        raise UsageError(
            f"{mapping.source}: {column.name}, by which it is sharded, must arrive as it is, since rows of several"
            " shards meet on the target"
        )
    return _condition(target, arrived, column.type, rule, leg.source)


def sharding_column(mapping: TableMapping, rule: Sharding) -> Column:
    """The column of the source by which a table is sharded."""
    for column in mapping.source_columns:
        if column.name.lower() == rule.column.lower():
            return column
    raise UsageError(
        f"{mapping.source} is sharded by {rule.column}, which is no column of it"
        f"{nearest(rule.column, (column.name for column in mapping.source_columns))}"
    )


def lacks_ids(source: Any, name: TableName, column: Column, rule: Sharding) -> bool:
    """Whether a table has rows that belong to no range: they would be left behind in silence."""
    lacks = no_keyspace_id_sql(source.dialect, column, rule.function)
    return bool(lacks) and has_row(source, name, lacks)


def narrowed_changes(
    changes: DataFrame, leg: Leg, definitions: Mapping[str, Definition]
) -> DataFrame:
    """Changes of rows that concern the target of a leg, as it sees them.

    Args:
        changes: Rows of the stream, none of which empties a table.
        leg: Whose changes are wanted.
        definitions: Those that the changes were made under, by `schema_id`.
    """
    from pyspark.sql import functions as F

    if leg.onto:
        # Replication in both directions: what came from the target is there already.
        came_back = F.col("origin").startswith(f"{leg.onto} ")
        changes = changes.where(~F.coalesce(came_back, F.lit(False)))
    if not leg.is_filtered or not definitions:
        return changes
    frames = [
        only_range(
            changes.where(F.col("schema_id") == schema_id),
            definition,
            leg.rule(definition.table),
            leg.target,
        )
        for schema_id, definition in definitions.items()
    ]
    return reduce(lambda one, other: one.unionAll(other), frames)


def _condition(
    session: Session, column: Column, kind: Type, rule: Sharding, wanted: KeyRange
) -> str:
    dialect: Any = getattr(session, "dialect", None)
    try:
        return key_range_sql(dialect, column, kind, rule.function, wanted)
    except (NotImplementedError, AttributeError):
        raise UsageError(
            f"{session.endpoint.scheme}:// cannot choose rows by key range: it cannot be an end of a keyspace that"
            " has several shards"
        ) from None
