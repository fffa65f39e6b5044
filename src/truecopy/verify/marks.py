"""Two values side by side: what differs is marked, and what the eye cannot see is made visible.

Nothing here knows HTML: a value becomes runs of spans, and the template writes them, escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import TypeVar

LONGEST_DIFF = 400
"""Characters up to which the differing middle of two texts is looked at letter by letter."""
MOST_WORDS = 2000
MOST_PAIRS = 20_000
"""Pairs of equal letters, or of equal words, up to which difflib is asked: they are its time."""
ALIKE = 0.5
"""Share of common characters below which two texts are two values, not one with a slip in it."""
LONGEST_RUN = 300
CONTEXT = 60
"""Characters of a long text that are shown on each side of what differs in it."""

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
_COMBINING = {"Mn", "Me"}


@dataclass(frozen=True)
class Span:
    """Characters in one style: plain, `code` for unseen ones, `null`, or `hint` for our words."""

    text: str
    style: str = ""
    title: str = ""


@dataclass(frozen=True)
class Run:
    """Spans that stand together; marked where the other side has something else."""

    spans: tuple[Span, ...]
    marked: bool = False
    title: str = ""


@dataclass(frozen=True)
class Piece:
    """A part of a text that both sides share, or that only this one has."""

    text: str
    marked: bool = False


Value = tuple[Run, ...]
Parts = TypeVar("Parts", str, list[str])
_WORD = re.compile(r"\s*\S+|\s+")
_SPACE = Span("·", "code", "space")


def show_value(text: str | None) -> Value:
    """One value, nothing of it marked."""
    return _render(text, [Piece(text or "")])


def show_pair(source: str | None, target: str | None) -> tuple[Value, Value]:
    """Two values, with what differs marked on both sides."""
    if source is None or target is None:
        here, there = [Piece(source or "", marked=True)], [Piece(target or "", marked=True)]
    else:
        here, there = differing_pieces(source, target)
    # Letters of two alphabets may look the same: their numbers do not.
    numbered = _alphabets(here) != _alphabets(there)
    return _render(source, here, numbered), _render(target, there, numbered)


def differing_pieces(source: str, target: str) -> tuple[list[Piece], list[Piece]]:
    """Cuts two texts into what they share and what they do not."""
    edits = list(_edits(source, target))
    longest = max(len(source), len(target))
    shared = sum(len(here) for here, there in edits if here == there)
    if longest <= LONGEST_DIFF and shared < ALIKE * longest:
        edits = [(source, target)]
    return (
        [Piece(here, here != there) for here, there in edits if here],
        [Piece(there, here != there) for here, there in edits if there],
    )


def _edits(source: str, target: str) -> Iterator[tuple[str, str]]:
    """Both texts in parts, equal ones and differing ones.

    The common ends come first: they make a slip in a long text cheap to find. The quadratic search
    of difflib sees only what lies between them: by letters where that is short, else by words.
    """
    start = _common(source, target)
    end = _common(source[start:][::-1], target[start:][::-1])
    here, there = source[start : len(source) - end], target[start : len(target) - end]
    yield source[:start], target[:start]
    if max(len(here), len(there)) <= LONGEST_DIFF:
        yield from _matched(here, there)
    else:
        for words, others in _matched(_WORD.findall(here), _WORD.findall(there)):
            left, right = "".join(words), "".join(others)
            smaller = len(left) + len(right) < len(here) + len(there)
            yield from _edits(left, right) if left != right and smaller else [(left, right)]
    yield source[len(source) - end :], target[len(target) - end :]


def _matched(here: Parts, there: Parts) -> Iterator[tuple[Parts, Parts]]:
    counts = Counter(there)
    if max(len(here), len(there)) > MOST_WORDS or sum(counts[part] for part in here) > MOST_PAIRS:
        yield here, there
        return
    matcher = SequenceMatcher(None, here, there, autojunk=False)
    for _, a, b, c, d in matcher.get_opcodes():
        yield here[a:b], there[c:d]


def _common(a: str, b: str) -> int:
    shortest = min(len(a), len(b))
    return next((i for i in range(shortest) if a[i] != b[i]), shortest)


def _alphabets(pieces: list[Piece]) -> set[str]:
    marked = "".join(piece.text for piece in pieces if piece.marked)[:LONGEST_DIFF]
    return {unicodedata.name(c, "").partition(" ")[0] for c in marked if c.isalpha()}


def _render(text: str | None, pieces: list[Piece], numbered: bool = False) -> Value:
    if not text:
        shown = Span("NULL", "null") if text is None else Span("(empty)", "hint")
        return (Run((shown,), marked=any(piece.marked for piece in pieces)),)
    words = _between_ends(text)
    runs, at = [], 0
    for number, piece in enumerate(pieces):
        parts = _shortened(piece, first=number == 0, last=number == len(pieces) - 1)
        for part, skipped in parts:
            if skipped:
                runs.append(Run((Span(f" … {skipped:,} more characters … ", "hint"),)))
            else:
                inside = range(words.start - at, words.stop - at)
                runs.append(_run(part, piece.marked, inside, numbered))
            at += skipped or len(part)
    return tuple(runs)


def _between_ends(text: str) -> range:
    """Where spaces only part words; those at either end are shown."""
    return range(len(text) - len(text.lstrip(" ")), len(text.rstrip(" ")))


def _shortened(piece: Piece, *, first: bool, last: bool) -> list[tuple[str, int]]:
    """The parts of a piece to show, and how many characters to skip between them."""
    text, size = piece.text, len(piece.text)
    if size <= LONGEST_RUN:
        return [(text, 0)]
    if piece.marked or (first and last):
        return [(text[:LONGEST_RUN], 0), ("", size - LONGEST_RUN)]
    head, tail = 0 if first else CONTEXT, 0 if last else CONTEXT
    parts = [(text[:head], 0), ("", size - head - tail), (text[size - tail :], 0)]
    return [(part, skipped) for part, skipped in parts if part or skipped]


def _run(text: str, marked: bool, words: range, numbered: bool) -> Run:
    spans: list[Span] = []
    if marked:
        own = _between_ends(text)
        words = range(max(words.start, own.start), min(words.stop, own.stop))
    shown = (_character(c, marked, i in words) for i, c in enumerate(text))
    for style, group in groupby(shown, key=lambda span: span.style):
        same = list(group)
        spans += same if style else [Span("".join(span.text for span in same))]
    numbers = (
        " ".join(map(_number, text)) if marked and not text.isascii() and len(text) <= 8 else ""
    )
    if numbers and numbered and len(text) <= 2 and text.isalpha():
        spans.append(Span(numbers, "code"))
    return Run(tuple(spans), marked, numbers)


def _character(character: str, marked: bool, between_words: bool) -> Span:
    if character == " ":
        return Span(" ") if between_words else _SPACE
    category = unicodedata.category(character)
    if category not in _HIDDEN and not (marked and category in _COMBINING):
        return Span(character)
    name = unicodedata.name(character, "control character").lower()
    return Span(_number(character) + ("\n" if character == "\n" else ""), "code", name)


def _number(character: str) -> str:
    return f"U+{ord(character):04X}"
