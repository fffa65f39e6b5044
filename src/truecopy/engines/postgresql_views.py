"""Views over arrays in PostgreSQL."""

from __future__ import annotations

from truecopy.engines.array_views import (
    ANEW,
    REPLACE,
    Arrays,
    ArrayViews,
    as_decimal,
    double_quoted,
    without_nul,
)


def _jsonb(text: str) -> str:
    return f"CAST({without_nul(text)} AS jsonb)"


VIEWS = ArrayViews(
    Arrays(
        double_quoted,
        "({} ->> {})".format,
        lambda key, place: f"({_jsonb(key)} ->> {place})",
        "CAST({} AS jsonb) @> to_jsonb({})".format,
        str,
        # Bounded: other engines make doubles of a numeric that is not.
        as_decimal,
    ),
    lambda of: f"{of}_row.after",
    # Without OFFSET the row would be parsed anew for each of its columns.
    lambda of: (
        f" CROSS JOIN LATERAL (SELECT {_jsonb(f'{of}.after_row')} AS after OFFSET 0) AS {of}_row"
    ),
    # Only the first keeps what others were granted; only the second can take a column away.
    (REPLACE, ANEW),
    before=("SET LOCAL lock_timeout = '3s'",),
)
