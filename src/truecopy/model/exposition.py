"""Figures in the text form that Prometheus scrapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

Sample = tuple[str, Mapping[str, str], float | None]
"""The metric's name, its labels, and its value; None where nobody knows it."""


class Metric(NamedTuple):
    """What a figure is called, what kind of figure it is, and what it means."""

    name: str
    kind: str
    about: str


def exposition(prefix: str, metrics: Sequence[Metric], samples: Iterable[Sample]) -> str:
    """The samples, each below the metric that it is of; a metric without samples is left out."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, labels, value in samples:
        if value is not None:
            found[name].append(f"{prefix}{name}{_shown(labels)} {value}\n")
    return "".join(
        line
        for name, kind, about in metrics
        if found[name]
        for line in (
            f"# HELP {prefix}{name} {about}\n",
            f"# TYPE {prefix}{name} {kind}\n",
            *found[name],
        )
    )


def _shown(labels: Mapping[str, str]) -> str:
    texts = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(texts) + "}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
