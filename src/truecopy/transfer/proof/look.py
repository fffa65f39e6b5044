"""Looking at single rows on both sides: fingerprints first, whole rows only where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from truecopy.engines import pool
from truecopy.engines.protocols import DatabaseSession, FingerprintsKeys
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.model.relation import Key, Relation
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof.keys import pack
from truecopy.transfer.proof.mapped import rows_arriving
from truecopy.transfer.proof.verifier import DIFFERS, Mismatch
from truecopy.verify.compare import by_meaning, only_keys
from truecopy.verify.differences import Difference, differing_columns, judge, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS_PER_TASK = 5000
KEYS_WITHOUT_SPARK = 20_000
"""Up to here asking from this process is done before Spark's tasks would have started."""

Prints = dict[str, int | None]
"""The fingerprint of each key; None where there is no row."""


@dataclass(frozen=True)
class Seen:
    """What both sides held of some keys, by packed key."""

    source: Prints
    target: Prints

    @property
    def differing(self) -> list[str]:
        return [key for key, value in self.source.items() if self.target[key] != value]


def look(
    plan: TablePlan, packed: Sequence[str], keys: Sequence[Key], spark: SparkSession | None
) -> Seen:
    """The fingerprints of some rows, the source's read before the target's."""
    if plan.is_mapped:
        rows = rows_arriving(spark, plan, by_meaning(plan.source), keys)
        source = _by_key(plan.source.key_width, packed, rows)
        return Seen(source, target_prints(plan, packed, keys))
    size = KEYS_PER_TASK
    parts = [(packed[at : at + size], keys[at : at + size]) for at in range(0, len(keys), size)]
    if spark is None or len(keys) <= KEYS_WITHOUT_SPARK:
        seen = [_look_at(plan, *part) for part in parts]
    else:
        # What executors need goes into the function: elements of a collection pass through a file.
        numbers = spark.sparkContext.parallelize(range(len(parts)), len(parts))
        outcomes = numbers.map(partial(_outcome, plan, parts)).collect()
        seen = []
        for outcome in outcomes:
            if isinstance(outcome, TruecopyError):
                raise outcome
            seen.append(outcome)
    return Seen(
        {key: value for one in seen for key, value in one.source.items()},
        {key: value for one in seen for key, value in one.target.items()},
    )


def target_prints(plan: TablePlan, packed: Sequence[str], keys: Sequence[Key]) -> Prints:
    """The target's fingerprints alone."""
    return _prints(by_meaning(plan.target), packed, keys)


def mismatches(plan: TablePlan, keys: Sequence[Key], spark: SparkSession | None) -> list[Mismatch]:
    """How these rows differ now, column by column; equal ones give nothing."""
    names, types = plan.comparison.column_names, plan.source.types
    return [
        Mismatch(
            plan.source_name,
            one.kind,
            one.key,
            tuple(names[i] for i in differing_columns(one.source, one.target, types, 0.0))
            if one.kind == DIFFERS and one.source and one.target
            else (),
            names[: plan.source.key_width],
        )
        for one in differences(plan, keys, spark)
    ]


def differences(
    plan: TablePlan, keys: Sequence[Key], spark: SparkSession | None
) -> list[Difference]:
    """The same as whole rows."""
    left, right = by_meaning(plan.source), by_meaning(plan.target)
    with ThreadPoolExecutor(1, "target") as beside:
        later = beside.submit(_rows, right, keys)
        if plan.is_mapped:
            here = rows_arriving(spark, plan, left, keys).drop_columns(["fingerprint"])
        else:
            here = _rows(left, keys)
        return judge(rows_of(here), rows_of(later.result()), left.types, left.key_width, 0.0)


def _outcome(
    plan: TablePlan, parts: Sequence[tuple[Sequence[str], Sequence[Key]]], number: int
) -> Seen | TruecopyError:
    try:
        return _look_at(plan, *parts[number])
    except TruecopyError as error:
        return error


def _look_at(plan: TablePlan, packed: Sequence[str], keys: Sequence[Key]) -> Seen:
    source = _prints(by_meaning(plan.source), packed, keys)
    return Seen(source, target_prints(plan, packed, keys))


def _prints(relation: Relation, packed: Sequence[str], keys: Sequence[Key]) -> Prints:
    with pool.lease(relation.endpoint) as session:
        if not isinstance(session, FingerprintsKeys):
            raise UsageError(
                f"rows of {relation.endpoint} cannot be looked at one by one: choose the verifier checksum"
            )
        found = session.fingerprints_by_key(relation, keys)
    return _by_key(relation.key_width, packed, found)


def _by_key(width: int, packed: Sequence[str], rows: pa.Table) -> Prints:
    """The fingerprints of rows whose first columns are the key, by packed key."""
    names = pack([rows.column(i) for i in range(width)]).to_pylist() if rows.num_rows else []
    prints: Prints = dict.fromkeys(packed)
    # Sums: should a key be none, both sides must have as many rows of it.
    for name, value in zip(names, rows.column("fingerprint").to_pylist(), strict=True):
        if name in prints:
            prints[name] = (prints[name] or 0) + value
    return prints


def _rows(relation: Relation, keys: Sequence[Key]) -> pa.Table:
    with pool.lease(relation.endpoint) as session:
        rows = cast(DatabaseSession, session).rows_by_key(relation, keys)
        return only_keys(rows, keys, relation.key_width)
