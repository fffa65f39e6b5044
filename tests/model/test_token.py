"""Event Tokens: the four answers, and a printable form that refuses typos."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truecopy.model.errors import UsageError
from truecopy.model.position import Comparison, SequencePosition, compare, parse_position
from truecopy.model.token import (
    EventToken,
    KeyspacePosition,
    Origin,
    compare_keyspace_positions,
    compare_tokens,
    origin_text,
    parse_any,
    parse_keyspace_position,
    parse_origin,
    parse_token,
    token_of_change,
)

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND

positions = st.one_of(
    st.integers(0, 4).map(SequencePosition),
    st.sampled_from(["", "0-1-1", "0-2-1", "0-1-2", "16/B374D848"]).map(parse_position),
)
shards = st.sampled_from(["-40", "40-80", "80-", "é"])
times = st.one_of(
    st.just(0),
    st.integers(0, 6).map(lambda halves: NOON + halves * SECOND // 2),
    st.integers(NOON - 3 * SECOND, NOON + 3 * SECOND),
    st.integers(0, 2**52),
)
tokens = st.builds(
    EventToken, times, shards, positions, st.none() | st.builds(Origin, shards, positions)
)
bounds = st.sampled_from([0, 0.5, 1, 1.5, 3]).map(lambda seconds: timedelta(seconds=seconds))


def token(shard: str, position: str, seconds: float = 0, origin: str = "") -> EventToken:
    at = NOON + round(seconds * SECOND)
    return EventToken(at, shard, parse_position(position), parse_origin(origin) if origin else None)


@given(tokens, tokens, bounds)
def test_comparing_the_other_way_gives_the_reverse(
    a: EventToken, b: EventToken, bound: timedelta
) -> None:
    assert compare_tokens(a, b, bound) is compare_tokens(b, a, bound).reverse


@given(tokens, times)
def test_a_token_is_the_same_as_itself_at_any_time(a: EventToken, at: int) -> None:
    other = EventToken(at, a.shard, a.position)
    assert compare_tokens(a, other) is Comparison.SAME


@given(times, times, bounds)
def test_times_decide_only_what_clocks_can_tell(a: int, b: int, bound: timedelta) -> None:
    """Whatever the true times were, and however far the clocks were apart, the answer is right."""

    def possible(at: int) -> tuple[int, int]:
        return (at, at) if at % SECOND else (at, at + SECOND - 1)

    answer = compare_tokens(
        EventToken(a, "x", parse_position("5")), EventToken(b, "y", parse_position("3")), bound
    )
    allowed = bound // timedelta(microseconds=1)
    (first_a, last_a), (first_b, last_b) = possible(a), possible(b)
    if answer is Comparison.OLDER:
        assert a
        assert first_b - last_a > allowed
    elif answer is Comparison.NEWER:
        assert b
        assert first_a - last_b > allowed
    else:
        assert answer is Comparison.UNKNOWN
        assert not a or not b or abs(a - b) <= allowed + 2 * SECOND


@pytest.mark.parametrize(
    ("seconds", "answer"),
    [
        ((0.5, 1.6), "OLDER"),
        ((0.5, 1.5), "UNKNOWN"),
        ((0.5, 1.500001), "OLDER"),
        ((0.0, 1.9), "UNKNOWN"),  # the first may have been at 0.999999
        ((0.0, 2.0), "OLDER"),
        ((0.9, 2.0), "OLDER"),
        ((1.5, 2.0), "UNKNOWN"),
        ((0.0, 2.9), "OLDER"),
        ((0.0, 0.0), "UNKNOWN"),
    ],
)
def test_commit_times_of_two_shards(seconds: tuple[float, float], answer: str) -> None:
    a, b = (token(shard, "5", at) for shard, at in zip(("-80", "80-"), seconds, strict=True))
    assert str(compare_tokens(a, b)) == answer


def test_an_unknown_time_is_compared_to_nothing() -> None:
    a = EventToken(0, "-80", parse_position("5"))
    assert compare_tokens(a, token("80-", "5")) is Comparison.UNKNOWN
    assert compare_tokens(a, token("-80", "6")) is Comparison.OLDER


def test_in_one_shard_the_position_decides_against_the_clock() -> None:
    assert compare_tokens(token("-80", "0-1-5", 90), token("-80", "0-1-6", 0)) is Comparison.OLDER
    diverged = compare_tokens(token("-80", "0-1-5", 90), token("-80", "0-2-5", 0))
    assert diverged is Comparison.UNKNOWN


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        # The origin of one names the shard of the other.
        (token("-40", "7", 0, "-80 0-1-5"), token("-80", "0-1-5", 0), "SAME"),
        (token("-40", "7", 0, "-80 0-1-5"), token("-80", "0-1-6", -90), "OLDER"),
        (token("-80", "0-1-6", 0), token("-40", "7", 90, "-80 0-1-5"), "NEWER"),
        # Both name the same one.
        (token("-40", "7", 0, "-80 0-1-5"), token("40-80", "1", 0, "-80 0-1-5"), "SAME"),
        (token("-40", "7", 0, "-80 0-1-5"), token("40-80", "1", -90, "-80 0-1-6"), "OLDER"),
        # These positions decide, even where they cannot tell.
        (token("-40", "7", 0, "-80 0-1-5"), token("-80", "0-2-5", 90), "UNKNOWN"),
        # Origins elsewhere say nothing.
        (token("-40", "7", 0, "-80 0-1-5"), token("80-", "1", 90), "OLDER"),
        (token("-40", "7", 0, "-80 0-1-5"), token("80-", "1", 90, "x 0-1-1"), "OLDER"),
        # Two shards that feed each other agree, or not.
        (token("a", "7", 0, "b 5"), token("b", "6", 0, "a 8"), "OLDER"),
        (token("a", "7", 0, "b 5"), token("b", "6", 0, "a 6"), "UNKNOWN"),
    ],
)
def test_origins(a: EventToken, b: EventToken, answer: str) -> None:
    assert str(compare_tokens(a, b)) == answer


def test_across_shards_the_answers_are_not_transitive() -> None:
    a, b, c = token("x", "2", 0), token("y", "1", 5), token("x", "1", 10)
    for one, other in (a, b), (b, c), (c, a):
        assert compare_tokens(one, other) is Comparison.OLDER


@given(tokens)
def test_the_text_is_read_back(a: EventToken) -> None:
    text = str(a)
    assert text.startswith("tc1.")
    assert text.isascii()
    assert text.isprintable()
    assert parse_token(f" {text}\n") == parse_any(text) == a


def _cut(text: str, at: int) -> str:
    return text[:at] + text[at + 1 :]


def _swap(text: str, at: int) -> str:
    return text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]


def _mistype(letter: str, text: str, at: int) -> str:
    return text[:at] + letter + text[at + 1 :]


@given(
    tokens,
    st.integers(0, 200),
    st.one_of(
        st.sampled_from([_cut, _swap, lambda text, at: text[:at]]),
        st.sampled_from("AQgwz-_09=. é").map(lambda letter: partial(_mistype, letter)),
    ),
)
def test_a_typo_is_refused(a: EventToken, at: int, spoil: Callable[[str, int], str]) -> None:
    text = str(a)
    spoiled = spoil(text, at % len(text))
    if spoiled.strip() != text:
        with pytest.raises(UsageError, match=r"^not a token"):
            parse_token(spoiled)


@pytest.mark.parametrize("text", ["", "tc1.", "tck1.", "tc1.AAAA", "tc2.AAAAAAAA", "0-1-5"])
def test_what_is_no_token_is_refused_in_one_line(text: str) -> None:
    for parse in parse_token, parse_keyspace_position, parse_any:
        with pytest.raises(UsageError) as caught:
            parse(text)
        assert "\n" not in str(caught.value)


def test_a_keyspace_position() -> None:
    low, high = token("-80", "5"), token("80-", "0-1-7", 1, "- 0-1-2")
    position = KeyspacePosition((high, low))
    assert position == KeyspacePosition((low, high)) == parse_any(str(position))
    assert str(position).startswith("tck1.")
    assert position.of("80-") == high
    assert position.of("-") is None
    with pytest.raises(UsageError, match="one shard's token"):
        parse_keyspace_position(str(low))
    with pytest.raises(UsageError, match="keyspace's position"):
        parse_token(str(position))
    with pytest.raises(UsageError, match="twice"):
        KeyspacePosition((low, low))


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ("55", "55", "SAME"),
        ("56", "55", "NEWER"),
        ("45", "55", "OLDER"),
        ("46", "55", "UNKNOWN"),
        ("5", "55", "UNKNOWN"),
        ("", "", "SAME"),
    ],
)
def test_comparing_keyspace_positions(a: str, b: str, answer: str) -> None:
    one, other = (
        KeyspacePosition(tuple(token(str(shard), at) for shard, at in enumerate(digits)))
        for digits in (a, b)
    )
    assert str(compare_keyspace_positions(one, other)) == answer


@given(st.builds(Origin, shards, positions))
def test_the_text_of_an_origin(origin: Origin) -> None:
    assert parse_origin(origin_text(origin)) == origin


@pytest.mark.parametrize("text", ["", "-80", " 0-1-5", "-80 x"])
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a"):
        parse_origin(text)


def test_the_token_of_a_change() -> None:
    at = datetime(2024, 5, 1, 12, 0, 0, 250_000, UTC)
    microseconds = 1_714_564_800_250_000
    row: dict[str, object] = {"shard": "-80", "position": "0-1-5", "origin": None, "kind": "insert"}
    plain = EventToken(microseconds, "-80", parse_position("0-1-5"))
    east = at.astimezone(timezone(timedelta(hours=5)))
    local = at.astimezone().replace(tzinfo=None)
    for given_ in (at, east, local, microseconds):
        assert token_of_change({**row, "committed_at": given_}) == plain
    assert plain.time == at
    fed = token_of_change({**row, "committed_at": None, "origin": "- 0-1-4"})
    assert (fed.committed_at, fed.time) == (0, None)
    assert fed.origin is not None
    assert compare(fed.origin.position, parse_position("0-1-4")) is Comparison.SAME
