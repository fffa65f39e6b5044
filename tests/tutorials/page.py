"""A page of documentation, taken at its word.

Blocks that have a title are files, and are written. Blocks of `console` are typed into one shell, as a reader would,
and what the page shows must come out, line by line and in that order. In a line `…` stands for anything, a line of
`…` alone for any lines; seconds, times and positions in logs are never the same twice, so any will do. A command must
succeed unless the page asks for its exit code next. Blocks of `bash` are what each reader has to set otherwise: the
test has to set the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"(?:^export|(?<=[^=]) )\s*([A-Z_]+)=", re.MULTILINE)
_ANY = "…"
_VOLATILE = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*"),
    (r"\b\d+(?:\.\d+)? s\b", r"[\d.]+ s"),
    (r"\b0-\d+-\d+\b", r"\d+-\d+-\d+"),
)


@dataclass(frozen=True)
class File:
    """A file that the reader is told to write."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command that the reader is told to type, and what comes out of it."""

    line: str
    shown: tuple[str, ...]

    @property
    def asks_for_code(self) -> bool:
        return self.line == "echo $?"


@dataclass(frozen=True)
class Page:
    """The steps of a page, and the variables that a reader sets before the first one."""

    name: str
    steps: tuple[File | Command, ...]
    variables: frozenset[str]


def read_page(name: str) -> Page:
    """The page `docs/tutorials/NAME.md`."""
    text = (DOCS / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
    steps: list[File | Command] = []
    variables: set[str] = set()
    for language, title, body in _FENCE.findall(text):
        if title:
            steps.append(File(title, body))
        elif language == "bash":
            variables.update(_EXPORT.findall(body))
        elif language == "console":
            steps += _commands(body)
    assert steps, f"{name} has nothing to try"
    return Page(name, tuple(steps), frozenset(variables))


def _commands(body: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = part.rstrip("\n").split("\n")
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        if here := re.search(r"<<(\w+)", lines[0]):
            count = lines.index(here[1]) + 1
        yield Command("\n".join(lines[:count]), tuple(lines[count:]))


def first_missing(shown: tuple[str, ...], output: str) -> str | None:
    """The first line that the page shows and that did not come out where it should; None: all did."""
    lines = iter(output.splitlines())
    for line in shown:
        if line.strip() == _ANY or not line.strip():
            continue
        pattern = _pattern(line.strip())
        if not any(pattern.fullmatch(found.strip()) for found in lines):
            return line
    return None


def _pattern(line: str) -> re.Pattern[str]:
    volatile = "|".join(f"({like})" for like, _ in _VOLATILE)
    parts, at = [], 0
    for match in re.finditer(rf"{volatile}|({_ANY})|\s+", line):
        parts.append(re.escape(line[at : match.start()]))
        if match[0] == _ANY:
            parts.append(".*")
        elif match.lastindex:
            parts.append(_VOLATILE[match.lastindex - 1][1])
        else:
            parts.append(r"\s+")
        at = match.end()
    return re.compile("".join(parts) + re.escape(line[at:]))
