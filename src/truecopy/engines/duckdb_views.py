"""Views over arrays in DuckDB."""

from __future__ import annotations

from dataclasses import replace

from truecopy.engines.array_views import (
    REPLACE,
    Arrays,
    ArrayViews,
    as_decimal,
    double_quoted,
    nothing,
)


def _from_one(array: str, place: int) -> str:
    return f"{array}[{place + 1}]"


ARRAYS = Arrays(
    double_quoted, _from_one, _from_one, "list_contains({}, {})".format, str, as_decimal
)
"""Of true arrays, as files have them."""


def _list(text: str, kind: str = "VARCHAR") -> str:
    return f"from_json({text}, '[\"{kind}\"]')"


VIEWS = ArrayViews(
    replace(
        ARRAYS,
        key_element=lambda key, place: ARRAYS.key_element(_list(key), place),
        contains=lambda some, one: ARRAYS.contains(_list(some, "INTEGER"), one),
    ),
    lambda of: _list(f"{of}.after_row"),
    nothing,
    (REPLACE,),
)
