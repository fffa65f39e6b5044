"""Statements that bring the rows of errors right: both sides are read again, and the source's row counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from truecopy.engines import pool
from truecopy.engines.loading import comment
from truecopy.engines.protocols import Statement, Writes
from truecopy.metastore.validation_errors import ErrorRow
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.relation import Key
from truecopy.model.text import canonical_text
from truecopy.model.types import Float, Type
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
        for table in dict.fromkeys(error.table for error in errors):
            plan = _plan_of(table, plans)
            keys = [_key(plan, error) for error in errors if error.table == table]
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


def _plan_of(table: str, plans: Mapping[str, TablePlan]) -> TablePlan:
    if table not in plans:
        raise UsageError(
            f"{table} is not carried by the task any more, so that its rows cannot be brought right: repair the others"
            " by their numbers, and take these off the record (truecopy validate clear)"
        )
    return plans[table]


def _key(plan: TablePlan, error: ErrorRow) -> Key:
    names = plan.comparison.column_names[: plan.source.key_width]
    if not error.key.keys() >= set(names):
        raise UsageError(
            f"the key of {error.table} has changed since error {error.id} was found: truecopy verify compares the"
            " table, and truecopy validate clear takes the error off the record"
        )
    kinds = plan.source.key_types
    return tuple(_stated(error.key[name], kind) for name, kind in zip(names, kinds, strict=True))


def _stated(text: str | None, kind: Type) -> str | None:
    """A value of a key as the databases are asked for it: reports show floats as people write them."""
    return canonical_text(text, kind) if isinstance(kind, Float) else text


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
