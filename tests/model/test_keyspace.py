"""Key ranges against plain ranges of numbers, keyspace ids, and the keyspace file's mistakes."""

from __future__ import annotations

import copy
import hashlib
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truecopy.model.errors import UsageError
from truecopy.model.keyspace import (
    FUNCTIONS,
    WHOLE,
    KeyRange,
    Sharding,
    keyspace_id,
    parse_key_range,
    parse_keyspace,
    partition_of,
)

WIDTH = 3
END = 256**WIDTH

ids = st.lists(st.sampled_from([0, 1, 0x40, 0x80, 0xFF]), max_size=WIDTH).map(bytes)


def number(value: bytes) -> int:
    return int.from_bytes(value.ljust(WIDTH, b"\0"), "big")


def numbers(key_range: KeyRange) -> range:
    return range(number(key_range.low), number(key_range.high) if key_range.high else END)


@st.composite
def key_ranges(draw: st.DrawFn) -> KeyRange:
    low, high = sorted((draw(ids), draw(ids)), key=number)
    return KeyRange(low, high if number(high) > number(low) else b"")


@given(key_ranges(), ids)
def test_a_key_range_is_a_range_of_numbers(one: KeyRange, value: bytes) -> None:
    assert one.contains(value) == (number(value) in numbers(one))


@given(key_ranges(), key_ranges())
def test_two_key_ranges_are_two_ranges_of_numbers(one: KeyRange, other: KeyRange) -> None:
    mine, theirs = numbers(one), numbers(other)
    assert (one == other) == (mine == theirs)
    assert one.covers(other) == (mine.start <= theirs.start and mine.stop >= theirs.stop)
    assert one.overlaps(other) == (max(mine.start, theirs.start) < min(mine.stop, theirs.stop))
    assert one.overlaps(other) == other.overlaps(one)


@given(key_ranges())
def test_the_text_is_read_back(one: KeyRange) -> None:
    assert parse_key_range(str(one)) == one
    assert WHOLE.covers(one)


@given(st.lists(key_ranges(), max_size=4), key_ranges())
def test_a_partition_counts_every_number_once(ranges: list[KeyRange], whole: KeyRange) -> None:
    # Every bound is a corner, and between corners nothing changes: counting at corners is enough.
    corners = {numbers(one).start for one in (*ranges, whole)}
    corners |= {numbers(one).stop for one in (*ranges, whole)} - {END}
    once = all(
        sum(corner in numbers(one) for one in ranges) == (corner in numbers(whole))
        for corner in corners | {0}
    )
    assert partition_of(ranges, whole) == once


@given(st.sets(ids.filter(lambda value: number(value) > 0), max_size=5), st.randoms())
def test_cutting_makes_a_partition(cuts: set[bytes], random: Any) -> None:
    bounds = [b"", *sorted({cut.rstrip(b"\0") for cut in cuts}), b""]
    ranges = [KeyRange(low, high) for low, high in pairwise(bounds)]
    random.shuffle(ranges)
    assert partition_of(ranges)
    assert not partition_of(ranges[1:])


@pytest.mark.parametrize("text", ["-", "-40", "40-80", "80-", "4055-8010", "ff-"])
def test_texts(text: str) -> None:
    assert str(parse_key_range(text)) == text


def test_zeros_at_the_end_change_nothing() -> None:
    assert parse_key_range("4000-80") == parse_key_range("40-8000") == parse_key_range("40-80")
    assert parse_key_range("00-AA") == parse_key_range("-aa")


@pytest.mark.parametrize("text", ["", "0", "4-8", "40", "40-80-c0", "80-40", "40-40", "-00", "x-"])
def test_what_is_no_key_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="key range"):
        parse_key_range(text)


@given(st.text(st.characters(codec="utf-8")))
def test_keyspace_ids_of_text(text: str) -> None:
    assert keyspace_id("hash", text) == hashlib.sha256(text.encode("utf-8")).digest()[:8]
    assert keyspace_id("text", text) == text.encode("utf-8")


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_numeric_keyspace_ids_keep_the_order_of_numbers(a: int, b: int) -> None:
    one, other = (keyspace_id("numeric", str(value)) for value in (a, b))
    assert (one < other) == (a < b)
    assert int.from_bytes(one, "big") == a
    assert len(one) == 8


@given(st.binary())
def test_keyspace_ids_of_binary_columns(value: bytes) -> None:
    assert keyspace_id("binary", value.hex()) == value


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("numeric", "-1"),
        ("numeric", str(2**64)),
        ("numeric", "1.0"),
        ("numeric", "01"),
        ("numeric", "٣"),
        ("numeric", ""),
        ("binary", "xyz"),
        ("binary", "abc"),
    ],
)
def test_values_without_a_keyspace_id(function: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"no {function} keyspace id"):
        keyspace_id(function, text)


DOCUMENT: dict[str, Any] = {
    "keyspace": "shop",
    "shards": {
        "-80": {"servers": ["mariadb://u:${PW}@a/shop", "mariadb://u:s3cret@b/shop"]},
        "80-": {"servers": ["mariadb://c/shop"], "serving": True},
        "80-c0": {"servers": ["mariadb://d/shop"], "serving": False},
    },
    "sharding": {"orders": {"column": "customer_id", "function": "hash"}},
}


def test_a_keyspace() -> None:
    keyspace = parse_keyspace(DOCUMENT)
    assert keyspace == parse_keyspace({"task": "copy", "source": DOCUMENT})
    assert keyspace.name == "shop"
    assert [shard.name for shard in keyspace.shards] == ["-80", "80-", "80-c0"]
    assert [shard.name for shard in keyspace.serving] == ["-80", "80-"]
    assert keyspace.shards[0].servers[0] == "mariadb://u:${PW}@a/shop"
    assert keyspace.sharding == {"orders": Sharding("customer_id", "hash")}
    assert "s3cret" not in repr(keyspace)


def test_a_keyspace_needs_no_sharding() -> None:
    assert not parse_keyspace({k: v for k, v in DOCUMENT.items() if k != "sharding"}).sharding


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["shard"], {}, "unknown key shard; did you mean shards"),
        (["zzz"], {}, "unknown key zzz; known are keyspace, shards, sharding"),
        (["keyspace"], None, "names no keyspace"),
        (["keyspace"], 5, "names no keyspace"),
        (["shards"], None, "shards must be a mapping"),
        (["shards"], {}, "nothing covers -"),
        (["shards", "80-", "serving"], False, "nothing covers 80-"),
        (["shards", "80-", "serving"], "yes", "serving is true or false"),
        (["shards", "80-c0", "serving"], True, "80- and 80-c0 overlap"),
        (["shards", "80-", "servers"], [], "the shard 80- has no servers"),
        (["shards", "80-", "servers"], "mariadb://c/shop", "the shard 80- has no servers"),
        (["shards", "80-", "servers"], ["u:s3cret@c"], "no database URL: u:\\*\\*\\*@c"),
        (["shards", "80-", "servers"], [{"u": "s3cret"}], "no database URL: dict"),
        (["shards", "80-", "servrs"], [], "unknown key servrs; did you mean servers"),
        (["shards", "80-"], None, "the shard 80- must be a mapping"),
        (["shards", "x"], {"servers": ["mariadb://c/shop"]}, "not a key range: 'x'"),
        (["shards", "-8000"], {"servers": ["mariadb://c/shop"]}, "two shards .* key range -80"),
        (["shards", -80], {"servers": ["mariadb://c/shop"]}, "must be quoted"),
        (["sharding"], ["orders"], "sharding must be a mapping"),
        (["sharding", "orders"], {"column": "id"}, "write column: NAME, function: hash"),
        (["sharding", "orders", "function"], "hsh", "unknown function hsh; did you mean hash"),
        (["sharding", "orders", "by"], "id", "orders has an unknown key by"),
    ],
)
def test_mistakes_are_told_in_one_line(path: list[Any], value: object, message: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    *parents, last = path
    place = document
    for name in parents:
        place = place[name]
    place[last] = value
    with pytest.raises(UsageError, match=message) as caught:
        parse_keyspace(document)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_gap_is_named() -> None:
    document = copy.deepcopy(DOCUMENT)
    del document["shards"]["80-"]
    document["shards"]["c0-"] = {"servers": ["mariadb://c/shop"]}
    with pytest.raises(UsageError, match="nothing covers 80-c0"):
        parse_keyspace(document)


def test_every_function_is_usable() -> None:
    for function in FUNCTIONS:
        assert keyspace_id(function, "12")
