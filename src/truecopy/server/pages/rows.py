"""A row on both sides: what differs is marked, and what cannot be seen is made visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truecopy.verify.marks import Value, show_pair, show_value

Texts = Mapping[str, str | None]


@dataclass(frozen=True)
class Cell:
    """One column; None where a side has no such row, or its value is not known."""

    column: str
    source: Value | None
    target: Value | None


@dataclass(frozen=True)
class Row:
    """A row that is not the same on both sides."""

    kind: str
    key: tuple[tuple[str, Value], ...]
    cells: tuple[Cell, ...]


def row_of(found: Mapping[str, Any], sides: tuple[str, str] = ("source", "target")) -> Row:
    """The view of a difference as the API has it: `kind`, `key`, `columns`, and both sides' values."""
    source, target = (_texts(found.get(side)) for side in sides)
    key = tuple((name, show_value(text)) for name, text in _texts(found.get("key")).items())
    kind = str(found.get("kind", ""))
    if kind != "differs":
        here = tuple(Cell(name, show_value(text), None) for name, text in source.items())
        there = tuple(Cell(name, None, show_value(text)) for name, text in target.items())
        return Row(kind, key, here + there)
    names = found.get("columns") or [*source, *(name for name in target if name not in source)]
    return Row(kind, key, tuple(_pair(str(name), source, target) for name in names))


def _pair(name: str, source: Texts, target: Texts) -> Cell:
    if name in source and name in target:
        return Cell(name, *show_pair(source[name], target[name]))
    here = show_value(source[name]) if name in source else None
    return Cell(name, here, show_value(target[name]) if name in target else None)


def _texts(values: Mapping[str, Any] | None) -> dict[str, str | None]:
    return {
        str(name): None if value is None else str(value) for name, value in (values or {}).items()
    }
