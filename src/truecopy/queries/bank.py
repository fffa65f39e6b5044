"""The query bank: what control answered, kept as checksums, so that a test can be held against it later.

One JSON object a line. A result is kept under its own types; the test side is measured under the
same ones.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from truecopy.model import types as kinds
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.shape import ListOf, MapOf, QueryColumn, Scalar, Shape, StructOf, agree_shapes
from truecopy.model.types import Type
from truecopy.queries.checksums import FloatSums, LeafSums, Look
from truecopy.queries.leaves import Leaf
from truecopy.queries.query import Query
from truecopy.queries.results import LiveResult, Plan

_VERSION = 1


@dataclass(frozen=True)
class BankedResult:
    """A result of which the checksums are left."""

    dialect: str
    columns: tuple[QueryColumn, ...]
    first_look: Look
    leaf_sums: dict[int, LeafSums]
    row_sum: int
    document_sums: dict[int, int]
    document_row_sum: int
    seconds: float | None
    cpu_seconds: float | None
    definition: bool
    own_shapes_only: bool = True

    def leaves(self, plan: Plan) -> tuple[Leaf, ...]:
        """The other side has them: they are SQL."""
        raise NotImplementedError

    def look(self, plan: Plan) -> Look:  # noqa: ARG002 - it was taken under its own plan
        return self.first_look

    def sums(self, plan: Plan) -> tuple[dict[int, LeafSums], int]:  # noqa: ARG002 - likewise
        return self.leaf_sums, self.row_sum

    def documents(self, plan: Plan) -> tuple[dict[int, int], int]:  # noqa: ARG002 - likewise
        return self.document_sums, self.document_row_sum


class Bank:
    """Results of control by query; a query that was changed since is not found."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._results: dict[str, BankedResult] = {}
        file = Path(path)
        if not file.is_file():
            raise UsageError(
                f"there is no query bank {path}: make one with `truecopy queries bank`"
            )
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = json.loads(line)
                self._results[entry["id"]] = _read(entry)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CannotFinish(f"{path}, line {number}, is no kept result: {error}") from None

    def find(self, query: Query) -> BankedResult | None:
        """What control answered to exactly this query."""
        return self._results.get(_identity(query))

    def __len__(self) -> int:
        return len(self._results)


def kept(
    query: Query,
    result: LiveResult,
    seconds: float | None,
    cpu_seconds: float | None,
    *,
    definition: bool,
) -> dict[str, Any]:
    """The line of a result."""
    shapes = tuple(agree_shapes(column.shape, column.shape) for column in result.columns)
    plan = Plan(
        tuple(s or c.shape for s, c in zip(shapes, result.columns, strict=True)),
        (None,) * len(shapes),
    )
    look = Look(0, 0, 0, {}) if definition else result.look(plan)
    sums, rows = ({}, 0) if definition else result.sums(plan)
    documents: tuple[dict[int, int], int] = ({}, 0)
    if not definition and any(leaf.is_document for leaf in result.leaves(plan)):
        documents = result.documents(plan)
    return {
        "version": _VERSION,
        "id": _identity(query),
        "suite": query.suite,
        "name": query.name,
        "dialect": result.dialect,
        "columns": [{"name": c.name, "shape": _shape_json(c.shape)} for c in result.columns],
        "look": {**asdict(look), "floats": {str(i): asdict(f) for i, f in look.floats.items()}},
        "sums": {str(i): asdict(s) for i, s in sums.items()},
        "row_sum": rows,
        "documents": {str(i): total for i, total in documents[0].items()},
        "document_row_sum": documents[1],
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "definition": definition,
    }


def _identity(query: Query) -> str:
    text = json.dumps([query.suite, query.name, query.control.sql])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read(entry: dict[str, Any]) -> BankedResult:
    look = entry["look"]
    floats = {int(i): FloatSums(**value) for i, value in look["floats"].items()}
    return BankedResult(
        entry["dialect"],
        tuple(QueryColumn(c["name"], _read_shape(c["shape"])) for c in entry["columns"]),
        Look(look["rows"], look["exact"], look["whole"], floats),
        {int(i): LeafSums(**value) for i, value in entry["sums"].items()},
        entry["row_sum"],
        {int(i): total for i, total in entry["documents"].items()},
        entry["document_row_sum"],
        entry["seconds"],
        entry["cpu_seconds"],
        entry["definition"],
    )


def _shape_json(shape: Shape) -> Any:
    match shape:
        case Scalar(native, kind, fraction, weak):
            own = {field.name: getattr(kind, field.name) for field in fields(kind)}
            word = type(kind).__name__
            return {"native": native, "type": word, "fraction": fraction, "weak": weak, **own}
        case ListOf(element):
            return {"list": _shape_json(element)}
        case MapOf(key, value):
            return {"map": [_shape_json(key), _shape_json(value)]}
        case StructOf(parts):
            return {"struct": [[name, _shape_json(part)] for name, part in parts]}


def _read_shape(entry: Any) -> Shape:
    if "list" in entry:
        return ListOf(_read_shape(entry["list"]))
    if "map" in entry:
        return MapOf(*(_read_shape(part) for part in entry["map"]))
    if "struct" in entry:
        return StructOf(tuple((name, _read_shape(part)) for name, part in entry["struct"]))
    of_scalars = ("native", "type", "fraction", "weak")
    own = {name: value for name, value in entry.items() if name not in of_scalars}
    kind: Type = getattr(kinds, entry["type"])(**own)
    return Scalar(entry["native"], kind, entry["fraction"], entry["weak"])
