"""Every command explains itself: what it does, each option, and an example that the program takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cli.commands import ROOT, parse

_WIDTH = 76
"""So wide is a paragraph on a terminal of 80 columns; longer lines of its source would be broken twice."""


@dataclass(frozen=True)
class Described:
    """A command, and the words by which it is called."""

    words: tuple[str, ...]
    command: Any

    @property
    def text(self) -> str:
        return self.command.help or ""

    @property
    def is_group(self) -> bool:
        return hasattr(self.command, "commands")

    def examples(self) -> list[list[str]]:
        """The words of each example, without the program's name and what the shell does with the output."""
        whole = self.text.replace("\\\n", " ")
        lines = re.findall(r"^ *truecopy (.+)$", whole, re.MULTILINE)
        return [shlex.split(re.split(r" [|>#] ", line)[0]) for line in lines]


def _walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[Described]:
    yield Described(words, command)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, (*words, name))


ALL = list(_walk(ROOT))
EACH = pytest.mark.parametrize("one", ALL, ids=lambda one: " ".join(one.words) or "truecopy")
LEAVES = pytest.mark.parametrize(
    "one", [one for one in ALL if not one.is_group], ids=lambda one: " ".join(one.words)
)


@EACH
def test_every_option_and_argument_is_explained(one: Described) -> None:
    unsaid = [param.name for param in one.command.params if not getattr(param, "help", None)]
    assert unsaid == []
    assert one.text


@LEAVES
def test_a_paragraph_says_what_the_command_does(one: Described) -> None:
    prose = [part for part in one.text.split("\n\n") if "\b" not in part]
    assert prose[0].strip().endswith("."), "the first sentence, which the list of commands shows"
    assert len(" ".join(prose[:2])) > 120
    long = [line for part in prose[1:] for line in part.splitlines() if len(line) > _WIDTH]
    assert long == []


@LEAVES
def test_the_program_takes_every_example(one: Described) -> None:
    examples = one.examples()
    assert any(tuple(words[: len(one.words)]) == one.words for words in examples)
    for words in examples:
        parse(words)
