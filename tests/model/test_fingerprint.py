"""The fingerprint: two rows have the same row text only if they are equal, column by column."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from truecopy.model.fingerprint import Digest, digest_of, fingerprint, row_text
from truecopy.model.text import canonical_text
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
    Uuid,
)

# Text that is made of what the row text is made of, and values of every type beside it.
confusing = st.text(st.sampled_from(",;0123456789?-:aé🙂 "), max_size=8)
VALUES: dict[Type, st.SearchStrategy[object]] = {
    Text(): st.one_of(confusing, st.text(max_size=8), st.just("NULL")),
    Json(): st.one_of(confusing, st.sampled_from(['{"a":1}', "[]", "null", '"null"', ""])),
    Uuid(): st.one_of(confusing, st.uuids()),
    Array(Text()): st.lists(st.one_of(st.none(), confusing), max_size=3),
    Integer(): st.one_of(st.integers(-20, 20), confusing),
    Boolean(): st.one_of(st.booleans(), confusing),
    Decimal(2): st.one_of(st.decimals(-9, 9, places=2), confusing),
    Decimal(None): st.decimals(-9, 9, places=3),
    Float(): st.one_of(st.floats(), confusing),
    Date(): st.one_of(st.dates(), confusing),
    Time(): st.one_of(st.times(), confusing),
    Timestamp(zone=False): st.one_of(st.datetimes(), confusing),
    Binary(): st.one_of(st.binary(max_size=3), confusing),
    Bits(None): st.text(st.sampled_from("01"), max_size=4),
    Bits(4): st.integers(0, 15),
}

Row = tuple[str | None, ...]


@st.composite
def two_rows(draw: st.DrawFn) -> tuple[Row, Row, tuple[Type, ...]]:
    types = tuple(draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4)))
    rows = [
        tuple(canonical_text(draw(st.one_of(st.none(), VALUES[kind])), kind) for kind in types)
        for _ in range(2)
    ]
    return rows[0], rows[1], types


@given(two_rows())
def test_different_rows_have_different_row_texts(rows: tuple[Row, Row, tuple[Type, ...]]) -> None:
    a, b, types = rows
    assert (row_text(a, types) == row_text(b, types)) == (a == b)
    assert (fingerprint(a, types) == fingerprint(b, types)) == (a == b)


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
def test_null_is_not_empty(kind: Type) -> None:
    empty: object = {Array(Text()): [], Binary(): b""}.get(kind, "")
    text = canonical_text(empty, kind)
    for before, after in ((), ()), (("1",), ("x",)):
        types = (*(Integer() for _ in before), kind, *(Text() for _ in after))
        assert row_text((*before, text, *after), types) != row_text((*before, None, *after), types)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("a,b", "c"), ("a", "b,c")),
        (("a", "b"), ("ab", "")),
        (("", "ab"), ("ab", "")),
        ((None, "ab"), ("ab", None)),
        ((None, ""), ("", None)),
        (("", ""), (None, None)),
        (("NULL", ""), (None, "")),
        ((",", ""), ("", ",")),
        (("a;1", "b"), ("a", ";1b")),
        (("a,;1,1", ""), ("a", "")),
        (("é", "x"), ("e\u0301", "x")),
        (("a ", "b"), ("a", " b")),
        (("0", "1"), (None, "1")),
    ],
)
def test_texts_that_look_alike_when_joined(a: Row, b: Row) -> None:
    types = (Text(), Text())
    assert row_text(a, types) != row_text(b, types)
    assert fingerprint(a, types) != fingerprint(b, types)


def test_zero_is_not_null() -> None:
    for kind in (Integer(), Boolean(), Decimal(2), Float(), Text()):
        zero = canonical_text(0, kind)
        assert fingerprint((zero,), (kind,)) != fingerprint((None,), (kind,))


def test_values_that_changed_columns() -> None:
    types = (Integer(), Integer(), Text())
    assert fingerprint(("1", "2", "x"), types) != fingerprint(("2", "1", "x"), types)
    assert fingerprint(("1", None, "x"), types) != fingerprint((None, "1", "x"), types)


@given(st.lists(st.one_of(st.none(), st.text()), min_size=1, max_size=4))
@example([None])
@example(["é", None, ""])
def test_the_fingerprint_is_the_first_60_bits_of_sha256(texts: list[str | None]) -> None:
    types = [Text()] * len(texts)
    sizes = ",".join("" if text is None else str(len(text.encode())) for text in texts)
    whole = f"{','.join(text or '' for text in texts)};{sizes}"
    bits = int.from_bytes(hashlib.sha256(whole.encode()).digest(), "big") >> 196
    assert fingerprint(texts, types) == bits < 2**60


prints = st.lists(st.integers(0, 2**60 - 1))


@given(prints, prints)
def test_digests_of_parts_add_up(a: list[int], b: list[int]) -> None:
    assert digest_of(a) + digest_of(b) == digest_of(a + b) == digest_of(reversed(a + b))
    assert digest_of(a) + Digest() == digest_of(a)


@given(prints, st.integers(1, 2**60 - 1))
def test_a_pair_of_equal_rows_does_not_cancel_out(rows: list[int], twice: int) -> None:
    assert digest_of([*rows, twice, twice]) != digest_of(rows)
    assert digest_of([*rows, 0]) != digest_of(rows)


@given(st.text(), st.text(), st.text(), st.text())
def test_two_rows_that_swapped_a_value_change_the_digest(a: str, b: str, x: str, y: str) -> None:
    types = (Text(), Text())
    before = digest_of([fingerprint((a, x), types), fingerprint((b, y), types)])
    after = digest_of([fingerprint((a, y), types), fingerprint((b, x), types)])
    assert (before == after) == (sorted([(a, x), (b, y)]) == sorted([(a, y), (b, x)]))
