"""Views over arrays in SQLite."""

from __future__ import annotations

from truecopy.engines.array_views import (
    ANEW,
    Arrays,
    ArrayViews,
    double_quoted,
    nothing,
    without_nul,
)


def _element(array: str, place: int) -> str:
    return f"json_extract({array}, '$[{place}]')"


def _number(text: str, scale: int) -> str:
    """Numbers that it cannot hold stay texts."""
    kind, printed = (
        ("REAL", f"printf('%.{scale}f', {{}})") if scale else ("INTEGER", "CAST({} AS TEXT)")
    )
    number = f"CAST({text} AS {kind})"
    return f"CASE WHEN {printed.format(number)} = {text} THEN {number} ELSE {text} END"


VIEWS = ArrayViews(
    Arrays(
        double_quoted,
        _element,
        lambda key, place: _element(without_nul(key), place),
        "EXISTS (SELECT 1 FROM json_each({}) WHERE value = {})".format,
        str,
        _number,
    ),
    lambda of: without_nul(f"{of}.after_row"),
    nothing,
    (ANEW,),
)
