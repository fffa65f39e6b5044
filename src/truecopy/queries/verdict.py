"""Judgements on checksums: pure, without an engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from truecopy.model.shape import QueryColumn, shape_name
from truecopy.queries.checksums import LeafSums, Look
from truecopy.queries.leaves import Leaf
from truecopy.queries.settings import Settings


class Match(StrEnum):
    """How two results compare."""

    MATCH = "MATCH"
    SCHEMA_MISMATCH = "SCHEMA_MISMATCH"
    ROW_COUNT_MISMATCH = "ROW_COUNT_MISMATCH"
    COLUMN_MISMATCH = "COLUMN_MISMATCH"
    ROW_MISMATCH = "ROW_MISMATCH"
    NOT_COMPARED = "NOT_COMPARED"


@dataclass(frozen=True)
class ColumnVerdict:
    """One column, or a part of one.

    Attributes:
        reason: Why it does not match, or what to know although it does.
        cause: A word for resolvers: `decimal-scale`, `structured-floats`, `json`.
        control, test: Types, counts and sums, as far as they were asked for.
    """

    name: str
    match: bool
    reason: str = ""
    cause: str = ""
    control: dict[str, Any] = field(default_factory=dict)
    test: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        shown: dict[str, Any] = {"name": self.name, "match": self.match}
        if self.reason:
            shown["reason"] = self.reason
        return {**shown, "control": self.control, "test": self.test}


def close(control: float, test: float, settings: Settings, bound: float = 0.0) -> bool:
    """Whether two sums are equal within the margins; `bound` is what rounding alone may add up to."""
    if control == test:
        return True
    difference = abs(control - test)
    mean = (abs(control) + abs(test)) / 2
    if not math.isfinite(difference) or not math.isfinite(mean):
        return False
    if mean < settings.absolute_margin or difference <= bound:
        return settings.relative_margin > 0
    return difference / mean < settings.relative_margin


def judge_schema(
    control: Sequence[QueryColumn],
    test: Sequence[QueryColumn],
    *,
    same_engine: bool,
    agreed: Sequence[object],
) -> list[ColumnVerdict]:
    """Columns that are not the same on both sides, in words; empty where all are.

    `agreed` holds what columns of the same place are compared as, None where nothing fits; it is
    only looked at where the names are the same.
    """
    found = []
    fold = str if same_engine else str.lower
    names = ([fold(c.name) for c in control], [fold(c.name) for c in test])
    for mine, others, side in ((control, names[1], "control"), (test, names[0], "test")):
        found += [
            ColumnVerdict(c.name, False, f"only in {side}: {c.name} {shape_name(c.shape)}")
            for c in mine
            if fold(c.name) not in others
        ]
    if found:
        return found
    if names[0] != names[1]:
        order = f"{', '.join(c.name for c in control)} → {', '.join(c.name for c in test)}"
        return [ColumnVerdict("", False, f"order differs: {order}")]
    for one, other, shape in zip(control, test, agreed, strict=True):
        natives = (shape_name(one.shape), shape_name(other.shape))
        if shape is None or (same_engine and natives[0] != natives[1]):
            found.append(
                ColumnVerdict(
                    one.name,
                    False,
                    f"{one.name}: {natives[0]} → {natives[1]}",
                    control={"type": natives[0]},
                    test={"type": natives[1]},
                )
            )
    return found


def judge_floats(control: Look, test: Look, at: int, settings: Settings) -> str:
    """What is wrong with a float; empty where nothing is."""
    one, other = control.floats[at], test.floats[at]
    if one.values != other.values:
        return f"values that are not NULL: {one.values} → {other.values}"
    for name, a, b in (
        ("NaN", one.nan, other.nan),
        ("infinity", one.infinite, other.infinite),
        ("-infinity", one.minus_infinite, other.minus_infinite),
    ):
        if a != b:
            return f"{name}: {a} → {b} times"
    if not close(one.magnitude, other.magnitude, settings):
        return f"sum of magnitudes: {one.magnitude!r} → {other.magnitude!r}"
    if not close(
        one.total, other.total, settings, rounding(control.rows, one.magnitude, other.magnitude)
    ):
        return f"sum: {one.total!r} → {other.total!r}"
    return ""


def rounding(rows: int, *magnitudes: float) -> float:
    """How far two sums of so many values may be apart by the order of the additions alone."""
    return max(rows, 1) * 2**-52 * max(magnitudes)


_CAVEATS = {
    "structured-floats": "floats inside a nested value are compared exactly",
    "json": "documents inside a nested value are compared as they are printed",
}


def judge_leaf(leaf: Leaf, control: LeafSums, test: LeafSums) -> tuple[str, str]:
    """What is wrong with a leaf that is compared exactly, and a word for the cause; both empty if nothing."""
    if control.values != test.values:
        return f"values that are not NULL: {control.values} → {test.values}", ""
    if control.text == test.text:
        return "", ""
    if leaf.sorted is not None and control.sorted == test.sorted:
        return "", ""
    if leaf.rounded is not None and control.rounded == test.rounded:
        return "equal in the digits after the point that both sides have", "decimal-scale"
    return _CAVEATS.get(leaf.caveat, "checksums differ"), leaf.caveat
