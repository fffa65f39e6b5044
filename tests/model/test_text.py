"""Canonical text: total, exact, and one text per value."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import struct
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from truecopy.model.text import (
    canonical_json,
    canonical_text,
    float_bits,
    join_array,
    readable_text,
    shortest_float,
    split_array,
)
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

TYPES: list[Type] = [
    Integer(), Boolean(), Decimal(2), Decimal(None), Float(), Date(), Time(), Timestamp(zone=False),
    Timestamp(zone=True), Text(), Binary(), Json(), Json("mysql"), Uuid(), Bits(8), Bits(None),
    Array(Text()), Array(Integer()),
]  # fmt: skip

# What a column of a database that enforces nothing may hold.
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.text(),
    st.binary(),
    st.dates(),
    st.times(),
    st.datetimes(timezones=st.one_of(st.none(), st.timezones())),
    st.timedeltas(dt.timedelta(hours=-838), dt.timedelta(hours=838)),
    st.uuids(),
)
JSON_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**40), 10**40),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def check_total(value: object, kind: Type) -> None:
    text = canonical_text(value, kind)
    assert (text is None) == (value is None)
    if text is not None:
        assert text.encode() or isinstance(kind, Text | Binary | Bits | Json | Uuid | Array)
        assert readable_text(text, kind) is not None


@given(ANYTHING, st.sampled_from(TYPES))
def test_every_value_has_a_text_under_every_type(value: object, kind: Type) -> None:
    check_total(value, kind)


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize(
    "value",
    [
        "",
        "?",
        "?0",
        "infinity",
        "2024-06-01 10:00:00+99",
        "0001-01-01 00:00:00+14",
        "9999-12-31 23:59:59-14",
        '"\\ud800"',
        '{"\\udfff": 1}',
        "1e9999999999999999999999",
        "-1e-9999999999999999999999",
        "sNaN",
        "-nan",
        decimal.Decimal("sNaN"),
        decimal.Decimal("NaN"),
        decimal.Decimal("-Infinity"),
        decimal.Decimal("1e9999"),
        10**400,
        "9" * 5000,
        "[" * 100_000,
        b"\xff",
        b"\xed\xa0\x80",
        math.nan,
        math.inf,
        -0.0,
        dt.timedelta.max,
        dt.timedelta.min,
        dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=12))),
        dt.datetime(9999, 12, 31, 23, tzinfo=dt.timezone(dt.timedelta(hours=-12))),
        uuid.UUID(int=0),
        [],
        [None, ["x"]],
    ],
    ids=lambda value: repr(value)[:30],
)
def test_the_strangest_values_have_a_text_too(value: object, kind: Type) -> None:
    check_total(value, kind)


@given(st.integers())
@example(-(2**63))
@example(2**64 - 1)
def test_whole_numbers_are_written_in_decimal(number: int) -> None:
    assert canonical_text(number, Integer()) == str(number)
    assert canonical_text(str(number), Integer()) == str(number)
    assert canonical_text(number, Decimal(None)) == str(number)


@pytest.mark.parametrize(("value", "text"), [(True, "1"), (False, "0"), (1, "1"), (0, "0")])
def test_booleans_are_whole_numbers(value: object, text: str) -> None:
    assert canonical_text(value, Boolean()) == canonical_text(value, Integer()) == text


@pytest.mark.parametrize(
    "text", ["", " ", "1_000", "1٣", "0x10", "1.0", "1e3", "one", "\x001", "--1", "1\n"]
)
def test_text_that_is_no_whole_number_never_looks_like_one(text: str) -> None:
    assert canonical_text(text, Integer()) == "?" + text.encode().hex()


@pytest.mark.parametrize("kind", [Decimal(2), Decimal(None), Float()])
@pytest.mark.parametrize(
    "text", ["", "1_000", "1_0.5", "1,5", "٣", "\uff11", "0x1p3", "1e", "abc", "."]
)
def test_text_that_no_database_reads_as_a_number_never_looks_like_one(
    text: str, kind: Type
) -> None:
    assert canonical_text(text, kind) == "?" + text.encode().hex()


finite = st.decimals(allow_nan=False, allow_infinity=False)


@given(finite, st.integers(0, 40))
@example(decimal.Decimal("-0.00"), 2)
@example(decimal.Decimal("1E+30"), 0)
@example(decimal.Decimal("1E-30"), 30)
def test_a_decimal_keeps_every_digit(number: decimal.Decimal, scale: int) -> None:
    text = canonical_text(number, Decimal(scale))
    assert text is not None
    assert decimal.Decimal(text) == number
    assert "E" not in text.upper()
    assert len(text.partition(".")[2]) >= scale
    assert not (number == 0 and text.startswith("-"))


@given(finite, finite, st.one_of(st.none(), st.integers(0, 20)))
@example(decimal.Decimal("1.10"), decimal.Decimal("1.1"), None)
@example(decimal.Decimal("1E+2"), decimal.Decimal(100), 2)
def test_decimals_have_equal_text_if_and_only_if_equal(
    a: decimal.Decimal, b: decimal.Decimal, scale: int | None
) -> None:
    assert (canonical_text(a, Decimal(scale)) == canonical_text(b, Decimal(scale))) == (a == b)


@given(finite, st.integers(0, 10), st.integers(0, 10))
def test_trailing_zeros_carry_no_meaning(number: decimal.Decimal, zeros: int, scale: int) -> None:
    padded = f"{number:f}" + ("" if "." in f"{number:f}" else ".") + "0" * (zeros + 1)
    assert canonical_text(padded, Decimal(scale)) == canonical_text(number, Decimal(scale))


@given(st.floats())
@example(-0.0)
@example(5e-324)
@example(2.2250738585072014e-308)
@example(1.7976931348623157e308)
def test_the_bits_of_a_float_read_back(number: float) -> None:
    bits = float_bits(number)
    (back,) = struct.unpack(">d", bytes.fromhex(bits))
    assert back == number or (math.isnan(back) and math.isnan(number))
    shown = float(shortest_float(bits))
    assert shown == number or (math.isnan(shown) and math.isnan(number))


@given(st.floats(), st.floats())
@example(0.0, -0.0)
@example(math.nan, -math.nan)
@example(1.0, math.nextafter(1.0, 2.0))
def test_floats_have_equal_text_if_and_only_if_equal(a: float, b: float) -> None:
    equal = a == b or (math.isnan(a) and math.isnan(b))
    assert (canonical_text(a, Float()) == canonical_text(b, Float())) == equal


@given(st.integers(0, 2**52 - 1), st.booleans())
def test_every_nan_is_alike(payload: int, negative: bool) -> None:
    bits = (0x7FF << 52 | max(payload, 1)) | (negative << 63)
    (number,) = struct.unpack(">d", struct.pack(">Q", bits))
    assert canonical_text(number, Float()) == "7ff8000000000000"


@given(st.floats(width=32, allow_nan=False))
def test_a_float_of_32_bits_is_the_double_of_the_same_value(number: float) -> None:
    (narrow,) = struct.unpack(">f", struct.pack(">f", number))
    assert canonical_text(narrow, Float()) == canonical_text(float(number), Float())


@given(st.dates())
@example(dt.date(1, 1, 1))
@example(dt.date(9999, 12, 31))
def test_a_day_is_written_in_ten_characters(day: dt.date) -> None:
    assert canonical_text(day, Date()) == day.isoformat()
    assert canonical_text(str(day), Date()) == day.isoformat()
    midnight = dt.datetime.combine(day, dt.time())
    assert canonical_text(midnight, Date()) == day.isoformat()
    assert canonical_text(str(midnight), Date()) == day.isoformat()


@pytest.mark.parametrize("text", ["0000-00-00", "2024-00-00", "2024-02-00", "2024-02-31"])
def test_zero_dates_stay_as_they_are(text: str) -> None:
    assert canonical_text(text, Date()) == text
    assert canonical_text(f"{text} 00:00:00", Timestamp(zone=False)) == f"{text} 00:00:00.000000"


@pytest.mark.parametrize(
    "text", ["2024-01-01 00:00:01", "2024-01-01 00:00:00.000001", "01/02/2024", "infinity"]
)
def test_what_is_more_or_less_than_a_day_is_not_one(text: str) -> None:
    assert canonical_text(text, Date()) == "?" + text.encode().hex()


@given(st.timedeltas(dt.timedelta(hours=-838, minutes=-59, seconds=-59), dt.timedelta(hours=838)))
@example(dt.timedelta(microseconds=-1))
@example(dt.timedelta(hours=24))
def test_a_span_of_time_keeps_its_sign_and_its_microseconds(span: dt.timedelta) -> None:
    text = canonical_text(span, Time())
    assert text is not None
    assert canonical_text(text, Time()) == text
    hours, minutes, seconds = text.removeprefix("-").split(":")
    back = dt.timedelta(
        hours=int(hours), minutes=int(minutes), microseconds=int(seconds.replace(".", ""))
    )
    assert (-back if text.startswith("-") else back) == span


@given(st.times())
def test_a_time_of_day_is_the_span_since_midnight(time: dt.time) -> None:
    span = dt.datetime.combine(dt.date.min, time) - dt.datetime.combine(dt.date.min, dt.time())
    assert (
        canonical_text(time, Time())
        == canonical_text(span, Time())
        == canonical_text(str(time), Time())
    )


@given(st.datetimes(timezones=st.timezones()), st.timezones())
@example(
    dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=dt.timezone(dt.timedelta(hours=1))), dt.UTC
)
def test_an_instant_has_one_text_in_every_zone(moment: dt.datetime, zone: dt.tzinfo) -> None:
    try:
        elsewhere, here = moment.astimezone(zone), moment.astimezone(dt.UTC)
    except OverflowError:
        return
    text = canonical_text(here, Timestamp(zone=True))
    assert canonical_text(moment, Timestamp(zone=True)) == text
    assert canonical_text(elsewhere, Timestamp(zone=True)) == text
    if not elsewhere.utcoffset() % dt.timedelta(minutes=1):  # type: ignore[operator]
        assert canonical_text(elsewhere.isoformat(), Timestamp(zone=True)) == text


@given(st.datetimes(), st.datetimes())
def test_wall_clocks_have_equal_text_if_and_only_if_equal(a: dt.datetime, b: dt.datetime) -> None:
    first, second = (canonical_text(x, Timestamp(zone=False)) for x in (a, b))
    assert (first == second) == (a == b)
    assert (
        first
        == canonical_text(str(a), Timestamp(zone=False))
        == canonical_text(a.isoformat(), Timestamp(zone=False))
    )


def test_more_than_microseconds_are_never_cut() -> None:
    for kind, text in (
        (Timestamp(zone=False), "2024-01-01 00:00:00.0000001"),
        (Time(), "00:00:00.0000001"),
    ):
        assert canonical_text(text, kind) == "?" + text.encode().hex()
        assert canonical_text(text[:-1] + "000", kind) == text[:-1]


@given(st.uuids(), st.booleans())
def test_a_uuid_has_one_text_however_it_is_kept(value: uuid.UUID, upper: bool) -> None:
    written = str(value).upper() if upper else str(value)
    assert canonical_text(value, Uuid()) == canonical_text(value.bytes, Uuid()) == str(value)
    assert canonical_text(written, Uuid()) == str(value)


@given(st.binary())
def test_bytes_are_hex(data: bytes) -> None:
    for value in (data, bytearray(data), memoryview(data)):
        assert canonical_text(value, Binary()) == data.hex()


@given(st.lists(st.one_of(st.none(), st.text())))
@example([None, "", "NULL", "-", "0:", "1:a", "é", "🙂"])
def test_arrays_come_apart_as_they_were_joined(items: list[str | None]) -> None:
    assert split_array(join_array(items)) == items


@given(st.lists(st.one_of(st.none(), st.text())), st.lists(st.one_of(st.none(), st.text())))
@example([None], [""])
@example(["a", "b"], ["a,b"])
@example([], [""])
@example(["1:a"], ["a", "a"])
def test_different_arrays_have_different_texts(a: list[str | None], b: list[str | None]) -> None:
    assert (join_array(a) == join_array(b)) == (a == b)


@given(JSON_VALUES, st.randoms(use_true_random=False), st.booleans())
def test_order_of_keys_and_spacing_carry_no_meaning(
    value: object, random: object, escaped: bool
) -> None:
    plain = json.dumps(value, ensure_ascii=escaped)
    spaced = json.dumps(
        _shuffled(value, random), indent=3, ensure_ascii=not escaped, separators=(" , ", " :\t")
    )
    assert canonical_json(plain) == canonical_json(f"\n {spaced} \r\n")


@given(JSON_VALUES, JSON_VALUES)
@example("1", 1)
@example(True, 1)
@example(False, 0)
@example(None, "null")
@example([], {})
@example({"a": None}, {})
@example([1, 2], [2, 1])
@example([[1], 2], [1, [2]])
def test_documents_have_equal_text_if_and_only_if_equal(a: object, b: object) -> None:
    texts = [canonical_json(json.dumps(value)) for value in (a, b)]
    assert (texts[0] == texts[1]) == _same(a, b)


@pytest.mark.parametrize("same", [
    ("1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000000"),
    ("0", "-0", "0.0", "-0.0e5", "0e99"),
    ("100000000000000000000000000000000000000000000000000", "1e50", "1.0E50"),
    ("12345678901234567890.123456789", "1234567890123456789012.3456789e-2"),
    ('"\\u00e9"', '"é"'),
    ('"\\/"', '"/"'),
    ('"\\ud83d\\ude42"', '"🙂"'),
])  # fmt: skip
def test_one_value_written_in_several_ways(same: tuple[str, ...]) -> None:
    assert len({canonical_json(text) for text in same}) == 1


@pytest.mark.parametrize(("a", "b"), [
    ("1", '"1"'),
    ("9007199254740993", "9007199254740992"),
    ("0.1", "0.1000000000000000055511151231257827"),
    ("1e400", "1e401"),
    ("1e400", '"1e400"'),
    ("1e-400", "0"),
    ("123456789012345678901234567890123", "123456789012345678901234567890124"),
    ('{"a":1,"b":2}', '{"a":2,"b":1}'),
    ('{"a":"1,b:2"}', '{"a":"1","b":"2"}'),
    ('"e\\u0301"', '"\\u00e9"'),
    ("null", '"null"'),
    ("[1]", "1"),
])  # fmt: skip
def test_documents_that_differ(a: str, b: str) -> None:
    assert canonical_json(a) != canonical_json(b)


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "Infinity", "{'a':1}", "[1,]", "01", "\ufeff1", "nul"]
)
def test_what_is_not_json_stays_as_it_is(text: str) -> None:
    assert canonical_json(text) == text


def _shuffled(value: object, random: object) -> object:
    if isinstance(value, dict):
        items = list(value.items())
        random.shuffle(items)  # type: ignore[attr-defined]
        return {key: _shuffled(item, random) for key, item in items}
    return [_shuffled(item, random) for item in value] if isinstance(value, list) else value


def _same(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return decimal.Decimal(repr(a)) == decimal.Decimal(repr(b))
    return type(a) is type(b) and a == b
