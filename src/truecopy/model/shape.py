"""The shape of a query's column: a scalar, or lists, maps and structures of shapes."""

from __future__ import annotations

from dataclasses import dataclass

from truecopy.model.types import (
    Array,
    Decimal,
    Float,
    Integer,
    Text,
    Type,
    Unsupported,
    agree,
    type_name,
)


@dataclass(frozen=True)
class Scalar:
    """One value: the engine's own declaration, and what it is.

    Attributes:
        fraction: Digits after the second (or after the point) that the engine prints.
        weak: Text that may stand for anything, as where an engine has no other type for days.
    """

    native: str
    type: Type
    fraction: int | None = None
    weak: bool = False


@dataclass(frozen=True)
class ListOf:
    """A list; its order matters only where a user says so."""

    element: Shape


@dataclass(frozen=True)
class MapOf:
    """Keys and their values, in no order."""

    key: Shape
    value: Shape


@dataclass(frozen=True)
class StructOf:
    """Named fields in an order."""

    fields: tuple[tuple[str, Shape], ...]


Shape = Scalar | ListOf | MapOf | StructOf


@dataclass(frozen=True)
class QueryColumn:
    """One column of a query's result."""

    name: str
    shape: Shape


def shape_name(shape: Shape) -> str:
    """The shape in words, as the engine declares it."""
    match shape:
        case Scalar(native):
            return native
        case ListOf(element):
            return f"array({shape_name(element)})"
        case MapOf(key, value):
            return f"map({shape_name(key)}, {shape_name(value)})"
        case StructOf(fields):
            return f"row({', '.join(f'{name} {shape_name(field)}' for name, field in fields)})"


def agree_shapes(control: Shape, test: Shape) -> Shape | None:
    """The shape under which two columns are compared; None where none is faithful to both.

    Unlike tables, queries compute: a mean that is exact on one side and a float on the other is
    compared as a float, with a margin.
    """
    match control, test:
        case Scalar(), Scalar():
            kind = _agree_scalars(control, test)
            return None if kind is None else Scalar(type_name(kind), kind)
        case ListOf(a), ListOf(b):
            element = agree_shapes(a, b)
            return ListOf(element) if element else None
        case MapOf(key_a, value_a), MapOf(key_b, value_b):
            key, value = agree_shapes(key_a, key_b), agree_shapes(value_a, value_b)
            return MapOf(key, value) if key and value else None
        case StructOf(a_fields), StructOf(b_fields) if len(a_fields) == len(b_fields):
            fields = []
            for (name, one), (_, other) in zip(a_fields, b_fields, strict=True):
                field = agree_shapes(one, other)
                if field is None:
                    return None
                fields.append((name, field))
            return StructOf(tuple(fields))
        case _:
            return None


def _agree_scalars(control: Scalar, test: Scalar) -> Type | None:
    numbers = (Float, Decimal, Integer)
    kinds = (control.type, test.type)
    if any(isinstance(kind, Float) for kind in kinds) and all(
        isinstance(k, numbers) for k in kinds
    ):
        return Float()
    if all(isinstance(kind, Unsupported) for kind in kinds) and control.native == test.native:
        return Text()
    agreed = agree(*kinds, weak_source=control.weak, weak_target=test.weak)
    return None if isinstance(agreed, Array) else agreed
