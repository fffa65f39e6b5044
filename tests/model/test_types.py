"""Agreed types: the same whichever side is asked first, and faithful to both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truecopy.model.types import (
    Array,
    Binary,
    Bits,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Time,
    Timestamp,
    Type,
    Unknown,
    Unsupported,
    Uuid,
    agree,
)

scalars: st.SearchStrategy[Type] = st.one_of(
    st.sampled_from(
        [Integer(), Boolean(), Float(), Date(), Time(), Timestamp(zone=False), Timestamp(zone=True)]
    ),
    st.sampled_from([Text(), Binary(), Uuid(), Unknown(), Unsupported("point")]),
    st.builds(Decimal, st.one_of(st.none(), st.integers(0, 30))),
    st.builds(Bits, st.one_of(st.none(), st.integers(1, 64))),
    st.builds(Json, st.sampled_from([None, "mysql", "jsonb"])),
)
types = st.recursive(scalars, lambda inner: st.builds(Array, inner), max_leaves=2)


@given(types, types, st.booleans(), st.booleans())
def test_both_directions_agree_on_the_same_type(
    a: Type, b: Type, weak_a: bool, weak_b: bool
) -> None:
    there = agree(a, b, weak_source=weak_a, weak_target=weak_b)
    assert there == agree(b, a, weak_source=weak_b, weak_target=weak_a)
    assert not isinstance(there, Unknown | Unsupported)


@given(types, st.booleans(), st.booleans())
def test_a_type_agrees_with_itself_and_follows_nothing(kind: Type, a: bool, b: bool) -> None:
    if isinstance(kind, Unsupported):
        assert agree(kind, kind) is None
    elif not isinstance(kind, Unknown | Array):
        assert agree(kind, kind, weak_source=a, weak_target=b) == kind
        # A column without a type prints JSON in no form of its own.
        followed = Json() if isinstance(kind, Json) else kind
        assert agree(Unknown(), kind) == agree(kind, Unknown()) == followed


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Float(), Decimal(2)),  # "DECIMAL cast to DOUBLE hides differences"
        (Float(), Integer()),
        (Timestamp(zone=True), Timestamp(zone=False)),
        (Timestamp(zone=False), Date()),
        (Date(), Text()),
        (Text(), Binary()),
        (Integer(), Text()),
        (Time(), Timestamp(zone=False)),
        (Array(Integer()), Text()),
        (Unsupported("point"), Text()),
        (Unsupported("point"), Unknown()),
    ],
)
def test_no_type_is_faithful_to_both(a: Type, b: Type) -> None:
    assert agree(a, b) is None


@pytest.mark.parametrize(
    ("a", "b", "agreed"),
    [
        (Decimal(2), Decimal(5), Decimal(5)),
        (Decimal(2), Decimal(None), Decimal(None)),
        (Integer(), Decimal(2), Decimal(2)),
        (Boolean(), Integer(), Integer()),
        (Bits(8), Integer(), Integer()),
        (Bits(8), Bits(16), Bits(None)),
        (Uuid(), Binary(), Uuid()),
        (Uuid(), Text(), Uuid()),
        (Json("mysql"), Json("jsonb"), Json()),
        (Json("mysql"), Text(), Json()),
        (Array(Decimal(2)), Array(Decimal(3)), Array(Decimal(3))),
    ],
)
def test_the_wider_type_is_agreed_on(a: Type, b: Type, agreed: Type) -> None:
    assert agree(a, b) == agree(b, a) == agreed
