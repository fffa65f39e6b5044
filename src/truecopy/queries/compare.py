"""The comparison of two results: schema, row count, checksums, fingerprints, then the rows themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from truecopy.model.shape import QueryColumn, Scalar, Shape, agree_shapes, shape_name
from truecopy.model.types import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Text,
    Timestamp,
    Uuid,
)
from truecopy.queries.checksums import LeafSums, Look
from truecopy.queries.leaves import Leaf, common_scale
from truecopy.queries.results import LiveResult, Outlined, Plan, Result
from truecopy.queries.rows import differing_rows, moved_floats
from truecopy.queries.settings import Settings
from truecopy.queries.verdict import ColumnVerdict, Match, judge_floats, judge_leaf, judge_schema

T = TypeVar("T")
_PLAIN = (Integer, Boolean, Decimal, Float, Date, Timestamp, Text, Binary, Uuid)


@dataclass(frozen=True)
class Comparison:
    """The verdict with its evidence.

    Attributes:
        rows: Rows of control and of test.
        exact: Equal to the last bit, floats included.
        differences: A sample of the differing rows.
    """

    match: Match
    columns: tuple[ColumnVerdict, ...] = ()
    rows: tuple[int | None, int | None] = (None, None)
    exact: bool = False
    differences: tuple[dict[str, Any], ...] = ()


class Comparator(Protocol):
    """The stage; another one is registered under `truecopy.queries.comparators`."""

    def __call__(
        self, control: Result, test: Result, settings: Settings, key: tuple[str, ...] = ()
    ) -> Comparison: ...


def compare(
    control: Result, test: Result, settings: Settings, key: tuple[str, ...] = ()
) -> Comparison:
    """Compares by checksums that the engines compute."""
    plan = plan_for(control, test, settings)
    if plan is None:
        return compare_schema(control, test)
    looks = _looks(control, test, plan)
    if plan.own_hash and looks[0].whole != looks[1].whole and looks[0].rows == looks[1].rows:
        plan = replace(plan, own_hash=False)
        looks = _looks(control, test, plan)
    rows = (looks[0].rows, looks[1].rows)
    match, columns = _judge(control, test, plan, looks, settings)
    bitwise = match is Match.MATCH and looks[0].whole == looks[1].whole
    differences: tuple[dict[str, Any], ...] = ()
    if (
        match is not Match.MATCH
        and isinstance(control, LiveResult)
        and isinstance(test, LiveResult)
    ):
        differences = tuple(differing_rows(control, test, plan, rows, settings, key))
    return Comparison(match, columns, rows, bitwise, differences)


def compare_schema(control: Result, test: Result) -> Comparison:
    """Compares columns alone, for definitions and where checksums are not wanted."""
    wrong = _wrong_columns(control, test)
    return Comparison(Match.SCHEMA_MISMATCH if wrong else Match.MATCH, tuple(wrong))


def plan_for(control: Outlined, test: Outlined, settings: Settings) -> Plan | None:
    """What both sides measure; None where their columns do not fit together."""
    if _wrong_columns(control, test):
        return None
    shapes = tuple(shape for shape in agreed_shapes(control, test) if shape is not None)
    kept = control.own_shapes_only or test.own_shapes_only
    return Plan(
        shapes,
        _scales(control, test, shapes),
        settings.ordered_arrays,
        settings.relative_margin == 0,
        control.dialect == test.dialect
        and not kept
        and all(map(_hashes_itself, (*control.columns, *test.columns))),
    )


def agreed_shapes(control: Outlined, test: Outlined) -> list[Shape | None]:
    """What columns of the same place are compared as; results kept in a bank stay as they were kept."""
    found: list[Shape | None] = []
    for one, other in zip(control.columns, test.columns, strict=False):
        shape = agree_shapes(one.shape, other.shape)
        if shape is not None and (control.own_shapes_only or test.own_shapes_only):
            kept = one.shape if control.own_shapes_only else other.shape
            shape = agree_shapes(kept, kept)
        found.append(shape)
    return found


def _wrong_columns(control: Outlined, test: Outlined) -> list[ColumnVerdict]:
    return judge_schema(
        control.columns,
        test.columns,
        same_engine=control.dialect == test.dialect,
        agreed=agreed_shapes(control, test),
    )


def _hashes_itself(column: QueryColumn) -> bool:
    """Whether an engine's own hash tells apart what the canonical text does; of spans of time it may not."""
    return isinstance(column.shape, Scalar) and isinstance(column.shape.type, _PLAIN)


def _looks(control: Result, test: Result, plan: Plan) -> tuple[Look, Look]:
    return _both(control, test, lambda side: side.look(plan))


def _scales(control: Outlined, test: Outlined, agreed: tuple[Shape, ...]) -> tuple[int | None, ...]:
    if control.own_shapes_only or test.own_shapes_only:
        return (None,) * len(agreed)
    return tuple(
        common_scale(one.shape, other.shape, shape)
        for one, other, shape in zip(control.columns, test.columns, agreed, strict=True)
    )


def _judge(
    control: Result, test: Result, plan: Plan, looks: tuple[Look, Look], settings: Settings
) -> tuple[Match, tuple[ColumnVerdict, ...]]:
    one, other = looks
    leaves = (test if control.own_shapes_only else control).leaves(plan)
    if one.rows != other.rows:
        return Match.ROW_COUNT_MISMATCH, ()
    if one.whole == other.whole and one.exact == other.exact:
        return Match.MATCH, tuple(
            _verdict(leaf, at, "", "", looks) for at, leaf in enumerate(leaves)
        )
    wrong = {at: (judge_floats(one, other, at, settings), "") for at in one.floats}
    sums: dict[int, LeafSums] = {}
    other_sums: dict[int, LeafSums] = {}
    rows_agree = one.exact == other.exact
    if not rows_agree:
        (sums, rows), (other_sums, other_rows) = _both(control, test, lambda side: side.sums(plan))
        if rows != other_rows and any(leaf.is_document for leaf in leaves):
            (documents, rows), (other_documents, other_rows) = _both(
                control, test, lambda side: side.documents(plan)
            )
            sums = sums | {at: LeafSums(sums[at].values, documents[at]) for at in documents}
            other_sums = other_sums | {
                at: LeafSums(other_sums[at].values, other_documents[at]) for at in other_documents
            }
        for at in sums:
            wrong[at] = judge_leaf(leaves[at], sums[at], other_sums[at])
        rows_agree = rows == other_rows
    columns = [
        _verdict(leaf, at, *wrong.get(at, ("", "")), looks, (sums, other_sums))
        for at, leaf in enumerate(leaves)
    ]
    if not all(column.match for column in columns):
        return Match.COLUMN_MISMATCH, tuple(columns)
    if not rows_agree:
        return Match.ROW_MISMATCH, tuple(columns)
    moved = _moved(control, test, plan, one.rows, settings)
    if moved:
        columns = [
            ColumnVerdict(c.name, False, "values stand in other rows", "", c.control, c.test)
            if at in moved
            else c
            for at, c in enumerate(columns)
        ]
        return Match.ROW_MISMATCH, tuple(columns)
    return Match.MATCH, tuple(columns)


def _moved(control: Result, test: Result, plan: Plan, rows: int, settings: Settings) -> set[int]:
    if isinstance(control, LiveResult) and isinstance(test, LiveResult):
        return moved_floats(control, test, plan, rows, settings)
    return set()


def _verdict(
    leaf: Leaf,
    at: int,
    reason: str,
    cause: str,
    looks: tuple[Look, Look],
    sums: tuple[Mapping[int, LeafSums], Mapping[int, LeafSums]] = ({}, {}),
) -> ColumnVerdict:
    sides: list[dict[str, Any]] = []
    for look, exact in zip(looks, sums, strict=True):
        shown: dict[str, Any] = {"values": exact[at].values} if at in exact else {}
        sides.append(look.floats[at].to_dict() if at in look.floats else shown)
    return ColumnVerdict(leaf.label, not reason, reason, cause, sides[0], sides[1])


def _both(control: Result, test: Result, measure: Callable[[Result], T]) -> tuple[T, T]:
    """Measures both sides, at once where each has a connection of its own."""
    owners = [getattr(side, "owner", None) for side in (control, test)]
    if owners[0] is owners[1]:
        return measure(control), measure(test)
    with ThreadPoolExecutor(1) as executor:
        other = executor.submit(measure, test)
        mine = measure(control)
        return mine, other.result()


def types_of(result: Result) -> dict[str, str]:
    """The columns of a result with their types, for reports."""
    return {column.name: shape_name(column.shape) for column in result.columns}
