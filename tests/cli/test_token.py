"""`truecopy token`, as a script uses it."""

from __future__ import annotations

import pytest

from tests.program import truecopy
from truecopy.model.position import parse_position
from truecopy.model.token import EventToken, KeyspacePosition, Origin

NOON = 1_714_564_800_250_000
OLD = EventToken(NOON, "-80", parse_position("0-1-5"))
NEW = EventToken(NOON - 1, "-80", parse_position("0-1-6"))
OTHER = EventToken(NOON + 3_000_000, "80-", parse_position("16/B374D848"))
COPY = EventToken(NOON, "-40", parse_position("9"), Origin("-80", OLD.position))


@pytest.mark.parametrize(
    ("a", "b", "options", "answer"),
    [
        (OLD, NEW, [], "OLDER"),
        (NEW, OLD, [], "NEWER"),
        (OLD, COPY, [], "SAME"),
        (OLD, OTHER, [], "OLDER"),
        (OLD, OTHER, ["--clock-bound", "3"], "UNKNOWN"),
        (KeyspacePosition((NEW, OTHER)), KeyspacePosition((OLD, OTHER)), [], "NEWER"),
    ],
)
def test_compare(a: object, b: object, options: list[str], answer: str) -> None:
    ended = truecopy("token", "compare", str(a), str(b), *options)
    assert (ended.code, ended.out, ended.err) == (0, f"{answer}\n", "")


def test_compare_as_json() -> None:
    document = truecopy("token", "compare", str(OLD), str(NEW), "--json").document
    assert document == {"comparison": "OLDER", "a": str(OLD), "b": str(NEW)}


def test_explain() -> None:
    ended = truecopy("token", "explain", str(COPY))
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        "shard            -40",
        "committed at     2024-05-01T12:00:00.250000+00:00",
        "position         9",
        "origin shard     -80",
        "origin position  0-1-5",
    ]


def test_explain_as_json() -> None:
    document = truecopy("token", "explain", str(KeyspacePosition((OTHER, COPY))), "--json").document
    copy, other = document["tokens"]
    assert copy == {
        "token": str(COPY),
        "shard": "-40",
        "committed_at": "2024-05-01T12:00:00.250000+00:00",
        "position": "9",
        "origin": {"shard": "-80", "position": "0-1-5"},
    }
    assert other["origin"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", str(OLD), str(NEW)[:-1]], "not a token: "),
        (["compare", str(OLD), str(KeyspacePosition((OLD,)))], "compare two of a kind"),
        (["compare", str(OLD), str(NEW), "--clock-bound", "-1"], "--clock-bound"),
        (["compare", str(OLD)], "'B'"),
        (["explain", "0-1-5"], "not a token: '0-1-5'"),
    ],
)
def test_mistakes(arguments: list[str], message: str) -> None:
    ended = truecopy("token", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1
