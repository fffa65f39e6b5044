"""The picture of a table's key space: ranges in the order of the key, by what is known of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import pairwise

from truecopy.model.relation import Key
from truecopy.tasks.key_ranges import KeyRange
from truecopy.verify.picture import LEGEND as OF_REPORTS
from truecopy.verify.picture import MOST_CELLS, WIDTH, Cell, laid_out, shade_of

PENDING, COPIED, VERIFIED = "pending", "copied", "equal"
LEGEND = {
    VERIFIED: "verified: no row differs",
    COPIED: "copied, not verified since",
    **{shade: OF_REPORTS[shade] for shade in ("some", "several", "many", "most")},
    PENDING: "pending: not copied so far",
}
_Order = tuple[tuple[int, Decimal | str], ...]


@dataclass(frozen=True)
class Picture:
    """What to draw of a table, and the same in words."""

    table: str
    cells: tuple[Cell, ...]
    height: int
    words: str
    legend: dict[str, str]
    width: int = WIDTH


def picture(
    table: str, ranges: Sequence[KeyRange], wrong: Sequence[Key], verified: bool
) -> Picture:
    """Draws a table.

    Args:
        table: Its name.
        ranges: How it was cut.
        wrong: The keys of rows that are known to differ.
        verified: Whether a verification has compared all rows after the copy.
    """
    ordered, counts = _placed(ranges, wrong)
    per_cell = max(-(-len(ordered) // MOST_CELLS), 1)
    groups = [
        range(at, min(at + per_cell, len(ordered))) for at in range(0, len(ordered), per_cell)
    ]
    drawn = [_cell(group, ordered, counts, verified) for group in groups]
    cells = laid_out(drawn)
    shades = {cell.shade for cell in cells}
    return Picture(
        table,
        cells,
        int(max((cell.y + cell.height for cell in cells), default=0)),
        _words(ordered, counts, len(wrong), per_cell),
        {shade: text for shade, text in LEGEND.items() if shade in shades},
    )


def _placed(ranges: Sequence[KeyRange], wrong: Sequence[Key]) -> tuple[list[KeyRange], list[int]]:
    """The ranges in the order of the key, and how many wrong rows each has.

    Databases order keys in their own ways. Where neither numbers nor plain text explain how the ranges follow each
    other, the rows cannot be placed.
    """
    keys = [
        *(one.low for one in ranges if one.low),
        *(one.high for one in ranges if one.high),
        *wrong,
    ]
    numeric = all(_is_number(part) for key in keys for part in key)
    ordered = sorted(ranges, key=lambda one: _order(one.low, numeric) if one.low else ())
    counts = [0] * len(ordered)
    lows = [_order(one.low, numeric) if one.low else () for one in ordered]
    follow = all(before.high == after.low for before, after in pairwise(ordered))
    rising = all(before < after for before, after in pairwise(lows))
    if not (follow and rising):
        return list(ranges), counts
    for key in wrong:
        counts[max(bisect_right(lows, _order(key, numeric)) - 1, 0)] += 1
    return ordered, counts


def _order(key: Key, numeric: bool) -> _Order:
    """Something that sorts as the database does, as far as can be told from outside; NULL comes first."""
    return tuple(
        (0, "") if part is None else (1, Decimal(part) if numeric else part) for part in key
    )


def _is_number(part: str | None) -> bool:
    try:
        return part is None or Decimal(part).is_finite()
    except InvalidOperation:
        return False


def _cell(
    group: range, ordered: Sequence[KeyRange], counts: Sequence[int], verified: bool
) -> tuple[str, str, bool]:
    """Shade and title; a range is copied whole."""
    some = [ordered[i] for i in group]
    rows = sum(one.rows or 0 for one in some)
    found = sum(counts[i] for i in group)
    title = f"{_bound(some[0].low, 'the beginning')} to {_bound(some[-1].high, 'the end')}"
    pending = sum(one.rows is None for one in some)
    if found:
        return shade_of(rows, found), f"{title}: {found:,} of {rows:,} rows differ", False
    if pending:
        of = f"{pending} of {len(some)} ranges " if len(some) > 1 else ""
        return PENDING, f"{title}: {of}not copied so far", False
    return (VERIFIED if verified else COPIED), f"{title}: {rows:,} rows", False


def _bound(key: Key | None, otherwise: str) -> str:
    return ", ".join("NULL" if part is None else part[:40] for part in key) if key else otherwise


def _words(ordered: Sequence[KeyRange], counts: Sequence[int], wrong: int, per_cell: int) -> str:
    pending = sum(one.rows is None for one in ordered)
    hit, placed = sum(1 for one in counts if one), sum(counts)
    said = f"{len(ordered):,} range{'s' if len(ordered) != 1 else ''} of the key"
    said += f", {pending:,} not copied so far" if pending else ", all copied"
    if wrong:
        said += f"; {wrong:,} row{'s' if wrong != 1 else ''} differ"
        said += f" in {hit:,} of them" if placed else ", which cannot be placed by their keys"
    return said + (f". Each cell stands for {per_cell} neighbours." if per_cell > 1 else ".")
