"""Statements that bring the rows of errors right: both sides are read again, and the source's row counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from truecopy.engines import pool
from truecopy.engines.loading import comment
from truecopy.engines.protocols import Statement, Writes
from truecopy.metastore.validation_errors import ErrorRow
from truecopy.model.endpoint import parse_endpoint
from truecopy.transfer.continuous.error_keys import by_table, key_of, plan_of
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof.look import differences
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.verify.differences import Difference, differing_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_TRANSACTION = 1000


@dataclass(frozen=True)
class Repair:
    """Transactions that repair a target: deletes first, then what changes or is missing."""

    transactions: tuple[tuple[Statement, ...], ...]

    @property
    def statements(self) -> int:
        return sum(map(len, self.transactions))


def plan_repair(
    settings: Settings, errors: Sequence[ErrorRow], spark: SparkSession | None
) -> Repair:
    """What to run on the target for these errors; rows that have come right by now need nothing."""
    with (
        pool.lease(parse_endpoint(settings.source)) as source,
        pool.lease(parse_endpoint(settings.target)) as target,
    ):
        plans = Transfer(settings).planned(source, target)
        writes = cast(Writes, target)
        deletes, changes = list[Statement](), list[Statement]()
        for table, some in by_table(errors).items():
            plan = plan_of(table, plans)
            keys = [key_of(plan, error) for error in some]
            for one in differences(plan, keys, spark):
                found = _statement(plan, one, writes)
                (deletes if one.kind == "extra" else changes).append(found)
    marked = [_marked(one, settings.annotation) for one in (*deletes, *changes)]
    return Repair(tuple(_cut(marked)))


def write_repair(settings: Settings, repair: Repair) -> str:
    """The repair as a script for the target's own client."""
    with pool.lease(parse_endpoint(settings.target)) as target:
        scripts = [cast(Writes, target).script(one) for one in repair.transactions]
    return "\n".join(scripts)


def apply_repair(settings: Settings, repair: Repair) -> None:
    """Runs the repair; each transaction holds wholly or not at all."""
    with pool.lease(parse_endpoint(settings.target)) as target:
        for one in repair.transactions:
            cast(Writes, target).apply(one)


def _statement(plan: TablePlan, one: Difference, target: Writes) -> Statement:
    relation = plan.target
    if one.kind == "extra":
        return target.delete(relation, one.key)
    row = one.source or ()
    if one.kind == "missing":
        return target.insert(relation, row)
    changed = differing_columns(row, one.target or (), relation.types, 0.0)
    return target.update(relation, row, changed)


def _marked(statement: Statement, annotation: str) -> Statement:
    """Marked as the task's own, so that whoever watches the target's log knows it."""
    return Statement(comment(annotation).replace("%", "%%") + statement.sql, statement.values)


def _cut(statements: Sequence[Statement]) -> Iterator[tuple[Statement, ...]]:
    for at in range(0, len(statements), ROWS_PER_TRANSACTION):
        yield tuple(statements[at : at + ROWS_PER_TRANSACTION])
