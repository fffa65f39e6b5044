"""What engines say differently in views over arrays of texts, and over such arrays that a table keeps as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

REPLACE = ("CREATE OR REPLACE VIEW {name} AS {query}",)
ANEW = ("DROP VIEW IF EXISTS {name}", "CREATE VIEW {name} AS {query}")
_MOST_DIGITS = 38


@dataclass(frozen=True)
class Arrays:
    """How an engine reads arrays.

    Attributes:
        element: One of an array, `after`, by its place from 0.
        key_element: Likewise of `key`.
        contains: Whether `unchanged` has a number; that is an expression.
        same: What equal keys share, fit to group by.
        number: A text of digits as a number with so many of them after the point.
    """

    quote: Callable[[str], str]
    element: Callable[[str, int], str]
    key_element: Callable[[str, int], str]
    contains: Callable[[str, str], str]
    same: Callable[[str], str]
    number: Callable[[str, int], str]


@dataclass(frozen=True)
class ArrayViews:
    """How an engine shows tables whose arrays are kept as JSON.

    Attributes:
        array: What `Arrays.element` takes, of the column `after_row` of a table.
        beside: What is joined to the table for that.
        replacing: Ways to replace a view, each in one transaction; the first that works will do.
        before, after: Statements around them: a reader who takes his time must not hold up the log.
    """

    arrays: Arrays
    array: Callable[[str], str]
    beside: Callable[[str], str]
    replacing: tuple[tuple[str, ...], ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def double_quoted(name: str) -> str:
    """An identifier, as the standard quotes it."""
    return '"' + name.replace('"', '""') + '"'


def backticked(name: str) -> str:
    """An identifier, as MySQL and Spark quote it."""
    return "`" + name.replace("`", "``") + "`"


def as_decimal(text: str, scale: int) -> str:
    """A text of digits as a number, where one may have as many digits as in files."""
    return f"CAST({text} AS DECIMAL({_MOST_DIGITS}, {scale}))" if scale <= _MOST_DIGITS else text


def nothing(_: str) -> str:
    """What is joined to a table whose arrays are read as they are."""
    return ""


def without_nul(text: str) -> str:
    r"""JSON whose NULs show as ␀, for engines that have no text with one.

    Backslashes are written otherwise first, so that one before `u0000` is no longer taken for an escape.
    """
    return rf"replace(replace({text}, '\\', '\u005c'), '\u0000', '␀')"
