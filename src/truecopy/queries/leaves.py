"""What of a result is checksummed: each column, and of nested ones each part that has a checksum of its own.

A leaf is a value that every row has: its text where it is compared exactly, its number where a
margin applies. Structures are their fields; a list of floats is its size and its sum; maps with
floats are their keys, and the sum of their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truecopy.engines.queries.texts import Texts
from truecopy.model.shape import ListOf, MapOf, QueryColumn, Scalar, Shape, StructOf
from truecopy.model.types import (
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Timestamp,
    Type,
    is_free_text,
)


@dataclass(frozen=True)
class Leaf:
    """One part of a column, as SQL over the columns `c0`, `c1`, … of the result.

    Attributes:
        label: The column's name, with the path into it.
        base: What is NULL where the leaf is.
        text: Its canonical text.
        free: Whether that text may hold a separator.
        number: Its value as a double, where it is compared with a margin.
        sorted: Its text with lists in the order of their elements' texts, where that may differ.
        rounded: Its text with the digits after the point that both sides have, where they differ.
        caveat: What it holds that a checksum compares more strictly than its meaning: a word for the cause.
        kind: The agreed type of a scalar, by which its text is read.
    """

    label: str
    base: str
    text: str
    free: bool = True
    number: str | None = None
    sorted: str | None = None
    rounded: str | None = None
    caveat: str = ""
    kind: Type = Text()  # noqa: RUF009 - frozen

    @property
    def is_document(self) -> bool:
        """Whether engines print equal values of it in different ways."""
        return isinstance(self.kind, Json)


def leaves_of(
    texts: Texts,
    columns: Sequence[QueryColumn],
    agreed: Sequence[Shape],
    scales: Sequence[int | None],
) -> tuple[Leaf, ...]:
    """The leaves of one side; both sides have the same ones, in the same order.

    `scales` are the digits after the point that both sides have, where they differ.
    """
    found: list[Leaf] = []
    for at, (column, shape) in enumerate(zip(columns, agreed, strict=True)):
        found += _leaves(texts, column.name, f"c{at}", column.shape, shape, scales[at])
    return tuple(found)


def inner_select(texts: Texts, columns: Sequence[QueryColumn], query: str) -> str:
    """The result with its columns called `c0`, `c1`, …."""
    names = ", ".join(f"{texts.quote(column.name)} AS c{i}" for i, column in enumerate(columns))
    return f"(SELECT {names} FROM ({texts.escaped(query)}) AS q) AS t"


def common_scale(control: Shape, test: Shape, agreed: Shape) -> int | None:
    """The digits after the point that both sides have, where one side has more."""
    if not isinstance(agreed, Scalar) or not isinstance(agreed.type, Decimal):
        return None
    scales = [
        shape.type.scale
        for shape in (control, test)
        if isinstance(shape, Scalar) and isinstance(shape.type, Decimal)
    ]
    if len(scales) < 2 or scales[0] == scales[1]:
        return None
    return min(scale for scale in scales if scale is not None)


def _leaves(
    texts: Texts, label: str, x: str, own: Shape, agreed: Shape, scale: int | None
) -> list[Leaf]:
    match own, agreed:
        case Scalar(), Scalar(type=kind):
            return [_scalar(texts, label, x, own, kind, scale)]
        case StructOf(fields), StructOf(agreed_fields):
            there = f"CASE WHEN {x} IS NULL THEN NULL ELSE '1' END"
            found = [Leaf(f"{label} is there", x, there, free=False)]
            for (name, field), (_, wanted) in zip(fields, agreed_fields, strict=True):
                inner = texts.field(x, name)
                found += _leaves(texts, f"{label}.{name}", inner, field, wanted, None)
            return found
        case ListOf(Scalar() as element), ListOf(Scalar(type=Float())):
            return _float_list(texts, label, x, element)
        case MapOf(key, Scalar() as value), MapOf(agreed_key, Scalar(type=Float())):
            keys = _leaves(
                texts, f"{label}.keys", texts.keys(x), ListOf(key), ListOf(agreed_key), None
            )
            # The order of a map's keys means nothing, whatever is asked for lists.
            plain = [Leaf(k.label, x, k.sorted or k.text, caveat=k.caveat) for k in keys]
            return [*plain, *_float_list(texts, f"{label}.values", texts.values(x), value)]
        case _:
            text = texts.text(x, own, agreed)
            unordered = texts.text(x, own, agreed, ordered=False)
            return [
                Leaf(
                    label,
                    x,
                    text,
                    sorted=None if text == unordered else unordered,
                    caveat=_caveat(agreed),
                )
            ]


def _scalar(texts: Texts, label: str, x: str, own: Scalar, kind: Type, scale: int | None) -> Leaf:
    text = texts.scalar(x, own, kind)
    plain = isinstance(kind, Integer | Boolean | Decimal | Date | Timestamp | Float)
    return Leaf(
        label,
        x,
        text,
        free=not plain and is_free_text(kind),
        number=texts.number(x, own) if isinstance(kind, Float) else None,
        rounded=None if scale is None else texts.rounded(x, own, scale),
        kind=kind,
    )


def _float_list(texts: Texts, label: str, x: str, element: Scalar) -> list[Leaf]:
    exact = texts.text(x, ListOf(element), ListOf(Scalar("double", Float())))
    return [
        Leaf(f"{label}.size", x, texts.size(x), free=False),
        Leaf(f"{label}.sum", x, exact, number=texts.list_sum(x)),
    ]


def _caveat(shape: Shape) -> str:
    match shape:
        case Scalar(type=Float()):
            return "structured-floats"
        case Scalar(type=Json()):
            return "json"
        case ListOf(element):
            return _caveat(element)
        case MapOf(key, value):
            return _caveat(key) or _caveat(value)
        case StructOf(fields):
            return next(filter(None, (_caveat(field) for _, field in fields)), "")
        case _:
            return ""
