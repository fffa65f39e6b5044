"""Names and patterns of tables: which of them a rule means, and which tables are chosen."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from truecopy.model.table import TableName

_WILD = frozenset("*?[")


@dataclass(frozen=True)
class Choice:
    """The tables that some pattern includes and none excludes; without patterns all of them."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def wants(self, name: TableName) -> bool:
        included = not self.include or any(matches(pattern, name) for pattern in self.include)
        return included and not any(matches(pattern, name) for pattern in self.exclude)


def matches(pattern: str, name: TableName) -> bool:
    """Whether a pattern means a table: `order*` in any schema, `sales.order*` with its schema."""
    if fnmatchcase(name.table, pattern):
        return True
    # Without its point, `s*` would mean every table of the schema `shop`.
    return "." in pattern and fnmatchcase(str(name), pattern)


def is_pattern(text: str) -> bool:
    """Whether the text may mean more than one table."""
    return not _WILD.isdisjoint(text)


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the known one that was meant, or all of them."""
    names = list(dict.fromkeys(known))
    folded = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), folded, 1)
    if near:
        return f"; did you mean {folded[near[0]]}?"
    return f"; known are {', '.join(names)}" if names else ""
