"""What a benchmark says: one line per figure, or the same as JSON."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass

_RELATIONS = {">=": operator.ge, "<=": operator.le, "=": operator.eq}


@dataclass(frozen=True)
class Goal:
    relation: str
    bound: float

    def __str__(self) -> str:
        return f"{self.relation}{self.bound:.10g}"

    def is_met(self, value: float) -> bool:
        met: bool = _RELATIONS[self.relation](value, self.bound)
        return met


def at_least(bound: float) -> Goal:
    return Goal(">=", bound)


def at_most(bound: float) -> Goal:
    return Goal("<=", bound)


def exactly(bound: float) -> Goal:
    return Goal("=", bound)


@dataclass(frozen=True)
class Figure:
    """A measured value. One without a goal is information: it shows `-` and is never short."""

    name: str
    value: float
    goal: Goal | None = None

    @property
    def shown_value(self) -> str:
        return f"{self.value:.0f}" if self.value >= 1000 else f"{self.value:.2f}"

    @property
    def shown_goal(self) -> str:
        return str(self.goal) if self.goal else "-"

    @property
    def result(self) -> str:
        return "ok" if self.goal is None or self.goal.is_met(self.value) else "short"


def print_figures(figures: Sequence[Figure], as_json: bool) -> None:
    if as_json:
        document = [
            {"name": f.name, "value": round(f.value, 4), "goal": f.shown_goal, "result": f.result}
            for f in figures
        ]
        print(json.dumps({"figures": document}, indent=2))
        return
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        print(
            f"{figure.name:<{width}} {figure.shown_value:>9} {figure.shown_goal:>8} {figure.result}"
        )
