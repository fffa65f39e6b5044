"""Checksums of a result, computed by the engine: a cheap look first, each column only on a mismatch.

The look: rows, the sum of the rows' fingerprints, and the sums of floats.
Where fingerprints agree, every column agrees, and so does which values stand together in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truecopy.engines.queries.texts import Texts
from truecopy.model.fingerprint import fingerprint
from truecopy.model.shape import QueryColumn, Scalar
from truecopy.model.text import canonical_text
from truecopy.model.types import Integer, Json, Type
from truecopy.queries.leaves import Leaf, inner_select

Fetch = Callable[[str], list[tuple[Any, ...]]]
Stream = Callable[[str], Iterator[Sequence[tuple[Any, ...]]]]


@dataclass(frozen=True)
class FloatSums:
    """What is compared of floats: how many are not NULL, sums of the finite values, and how many are not finite."""

    values: int
    total: float
    magnitude: float
    nan: int
    infinite: int
    minus_infinite: int

    def to_dict(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "values": self.values,
            "sum": self.total,
            "sum_abs": self.magnitude,
            "nan": self.nan,
            "positive_infinity": self.infinite,
            "negative_infinity": self.minus_infinite,
        }


@dataclass(frozen=True)
class Look:
    """The first look at a result.

    Attributes:
        exact: Sum of the fingerprints of the leaves that are compared exactly.
        whole: Likewise with the exact bits of floats; the same where there are none.
        floats: Sums of each leaf that is a float.
    """

    rows: int
    exact: int
    whole: int
    floats: Mapping[int, FloatSums]


@dataclass(frozen=True)
class LeafSums:
    """Of one leaf: values that are not NULL, and sums of the hashes of their texts.

    Texts are taken as they are, with sorted lists, and with fewer digits.
    """

    values: int
    text: int
    sorted: int | None = None
    rounded: int | None = None


def look(
    fetch: Fetch,
    texts: Texts,
    leaves: Sequence[Leaf],
    columns: Sequence[QueryColumn],
    query: str,
    *,
    own_hash: bool = False,
) -> Look:
    """The first look, by one statement; with `own_hash` by the engine's hash of its own values."""
    numbers = [leaf.number for leaf in leaves if leaf.number]
    scalars = [(f"c{i}", c.shape) for i, c in enumerate(columns) if isinstance(c.shape, Scalar)]
    own = texts.own_hash(scalars) if own_hash else None
    values = {"x": own or exact_hash(texts, leaves)}
    if numbers:
        values["w"] = own or _whole_hash(texts, leaves)
    values |= {f"f{i}": number for i, number in enumerate(numbers)}
    wanted = ["COUNT(*)", texts.total("x"), texts.total("w") if numbers else "0"]
    wanted += [each for i in range(len(numbers)) for each in float_sums(texts, f"f{i}")]
    found = _aggregated(fetch, texts, values, wanted, columns, query)
    rows, exact, whole = (int(value) for value in found[:3])
    rest = iter(found[3:])
    floats = {
        at: _read_floats([next(rest) for _ in range(6)])
        for at, leaf in enumerate(leaves)
        if leaf.number
    }
    return Look(rows, exact, whole if numbers else exact, floats)


def leaf_sums(
    fetch: Fetch, texts: Texts, leaves: Sequence[Leaf], columns: Sequence[QueryColumn], query: str
) -> tuple[dict[int, LeafSums], int]:
    """The sums of each leaf that is compared exactly, and of rows with sorted lists, by one statement.

    Values are counted here and not at the first look: where fingerprints agree, so does what is NULL.
    """
    exact = [(at, leaf) for at, leaf in enumerate(leaves) if not leaf.number]
    values = {"x": exact_hash(texts, leaves, unordered=True)}
    for at, leaf in exact:
        for name, text in (("t", leaf.text), ("s", leaf.sorted), ("r", leaf.rounded)):
            if text is not None:
                values[f"{name}{at}"] = texts.hash60(text)
    hashes = list(values)
    values |= {
        f"b{at}": f"CASE WHEN {leaf.base} IS NULL THEN NULL ELSE 1 END" for at, leaf in exact
    }
    wanted = [texts.total(name) for name in hashes] + [f"COUNT(b{at})" for at, _ in exact]
    found = _aggregated(fetch, texts, values, wanted, columns, query)
    sums = dict(zip(values, (int(value) for value in found), strict=True))
    return {
        at: LeafSums(sums[f"b{at}"], sums[f"t{at}"], sums.get(f"s{at}"), sums.get(f"r{at}"))
        for at, _ in exact
    }, sums["x"]


def _aggregated(
    fetch: Fetch,
    texts: Texts,
    values: Mapping[str, str],
    wanted: Sequence[str],
    columns: Sequence[QueryColumn],
    query: str,
) -> tuple[Any, ...]:
    """Aggregates over values that are made first: Spark takes some of those for random, and adds none up."""
    named = ", ".join(f"{value} AS {name}" for name, value in values.items())
    (row,) = fetch(
        f"SELECT {', '.join(wanted)} FROM"
        f" (SELECT {named} FROM {inner_select(texts, columns, query)}) AS v"
    )
    return row


def document_sums(
    stream: Stream, texts: Texts, leaves: Sequence[Leaf], columns: Sequence[QueryColumn], query: str
) -> tuple[dict[int, int], int]:
    """The sums of each document's canonical text, which no engine can give, and of rows with them.

    The engine sends the documents with the fingerprint of the rest of their row.
    """
    places = [at for at, leaf in enumerate(leaves) if leaf.is_document]
    rest = exact_hash(texts, leaves, unordered=True, documents=False)
    documents = ", ".join(f"{leaves[at].text} AS d{at}" for at in places)
    kinds: list[Type] = [Json()] * len(places)
    sums, rows = dict.fromkeys(places, 0), 0
    for block in stream(
        f"SELECT {rest} AS x, {documents} FROM {inner_select(texts, columns, query)}"
    ):
        for number, *printed in block:
            canonical = [canonical_text(text, Json()) for text in printed]
            for at, text in zip(places, canonical, strict=True):
                sums[at] += fingerprint([text], [Json()])
            rows += fingerprint([str(number), *canonical], [Integer(), *kinds])
    return sums, rows


def exact_hash(
    texts: Texts, leaves: Sequence[Leaf], *, unordered: bool = False, documents: bool = True
) -> str:
    """The fingerprint of a row's leaves that are compared exactly, with or without documents."""
    chosen = [leaf for leaf in leaves if not leaf.number and (documents or not leaf.is_document)]
    return texts.row_hash(
        [(leaf.sorted or leaf.text) if unordered else leaf.text for leaf in chosen],
        [leaf.free for leaf in chosen],
    )


def float_sums(texts: Texts, x: str) -> list[str]:
    """Six aggregates: how many are not NULL, the sum and the magnitude of finite values, and counts of the others."""
    nan, infinite, minus = texts.special(x)
    finite = f"CASE WHEN {nan} OR {infinite} OR {minus} THEN NULL ELSE {x} END"
    return [
        f"COUNT({x})",
        f"SUM({finite})",
        f"SUM(ABS({finite}))",
        *(f"COUNT(CASE WHEN {condition} THEN 1 END)" for condition in (nan, infinite, minus)),
    ]


def read_sum(value: object) -> float:
    """A sum of floats as engines give it; that of no values is 0."""
    return 0.0 if value is None else float(str(value))


def _read_floats(values: Sequence[object]) -> FloatSums:
    there, total, magnitude, *counts = values
    nan, infinite, minus = (int(str(count)) for count in counts)
    return FloatSums(int(str(there)), read_sum(total), read_sum(magnitude), nan, infinite, minus)


def _whole_hash(texts: Texts, leaves: Sequence[Leaf]) -> str:
    return texts.row_hash(
        [leaf.text for leaf in leaves], [leaf.free or bool(leaf.number) for leaf in leaves]
    )
