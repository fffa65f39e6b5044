"""Views over arrays in MySQL, MariaDB and TiDB."""

from __future__ import annotations

from truecopy.engines.array_views import REPLACE, Arrays, ArrayViews, backticked, nothing

_NO_MORE = 30
"""Digits after the point."""


def _element(array: str, place: int) -> str:
    """Not JSON_VALUE, which in MySQL cuts at 512 characters, nor JSON_UNQUOTE alone, which makes a text of null."""
    one = f"JSON_EXTRACT({array}, '$[{place}]')"
    return f"CASE JSON_TYPE({one}) WHEN 'STRING' THEN JSON_UNQUOTE({one}) END"


VIEWS = ArrayViews(
    Arrays(
        backticked,
        _element,
        _element,
        "JSON_CONTAINS({}, CAST({} AS CHAR))".format,
        "SHA2({}, 256)".format,  # of long texts only the first bytes are compared when rows are grouped
        lambda text, scale: f"CAST({text} AS DECIMAL(65, {scale}))" if scale <= _NO_MORE else text,
    ),
    "{}.after_row".format,
    nothing,
    (REPLACE,),
    before=("SET SESSION lock_wait_timeout = 3",),
    after=("SET SESSION lock_wait_timeout = DEFAULT",),
)
