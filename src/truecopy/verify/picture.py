"""The picture of a table's key space: chunks in the order of the key, coloured by what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from truecopy.verify.report import ChunkSummary, TableReport

MOST_CELLS = 400
PER_LINE = 50
WIDTH = 800
LINE_HEIGHT = 18
GAP = 2
MOST_RANGES = 8
"""Ranges of chunks that the words name one by one."""

LEGEND = {
    "equal": "equal",
    "some": "up to 0.1% of rows differ",
    "several": "up to 1% differ",
    "many": "up to 10% differ",
    "most": "more than 10% differ",
    "empty": "no rows on either side",
    "unseen": "not compared",
}
_LIMITS = {"some": 0.001, "several": 0.01, "many": 0.1}


@dataclass(frozen=True)
class Cell:
    """One chunk, or as many neighbours as share a cell.

    Attributes:
        shade: A word of `LEGEND`.
        partly: Some of its chunks were not compared.
    """

    x: float
    y: float
    width: float
    height: float
    shade: str
    title: str
    partly: bool = False


@dataclass(frozen=True)
class Picture:
    """What to draw, and the same in words."""

    cells: tuple[Cell, ...]
    height: int
    words: str
    note: str = ""
    legend: dict[str, str] = field(default_factory=dict)
    width: int = WIDTH


def key_space(table: TableReport, most_cells: int = MOST_CELLS) -> Picture | None:
    """The picture of a table, or None where its chunks are not ranges of a key, or only one."""
    if not table.key or not table.chunks or _by_classes(table.chunks):
        return None
    if len(table.chunks) == 1 and table.complete and not table.sampled:
        return None
    by_number = {chunk.number: chunk for chunk in table.chunks}
    # Chunks after the last one that was compared are known to be there, but not how many.
    known = max(by_number) + 1
    tail = (not table.complete and known == len(by_number)) or table.sampled
    per_cell = -(-known // most_cells)
    groups = [range(at, min(at + per_cell, known)) for at in range(0, known, per_cell)]
    drawn = [_summarise(group, by_number, known, tail) for group in groups]
    if tail:
        rest = "the rest of the key space: chunks beyond here, if any, were not compared"
        drawn.append(("unseen", rest, False))
    cells = laid_out(drawn)
    shades = {cell.shade for cell in cells} | {"unseen" for cell in cells if cell.partly}
    return Picture(
        cells=cells,
        height=int(max(cell.y + cell.height for cell in cells)),
        words=_words(table, known, tail),
        note=f"Each cell stands for {per_cell} neighbouring chunks." if per_cell > 1 else "",
        legend={shade: text for shade, text in LEGEND.items() if shade in shades},
    )


def _by_classes(chunks: Sequence[ChunkSummary]) -> bool:
    """Whether it went by classes of a hash: then differences come apart from any rows."""
    return any(chunk.found and not chunk.rows for chunk in chunks)


def _summarise(
    group: range, by_number: dict[int, ChunkSummary], known: int, tail: bool
) -> tuple[str, str, bool]:
    """Shade, title and whether only a part was compared."""
    seen = [by_number[number] for number in group if number in by_number]
    of = f" of {known}" if not tail else ""
    name = (
        f"chunk {group[0] + 1}{of}"
        if len(group) == 1
        else f"chunks {_range(group[0], group[-1])}{of}"
    )
    if not seen:
        return "unseen", f"{name}: not compared", False
    rows, found = sum(chunk.rows for chunk in seen), sum(chunk.found for chunk in seen)
    seconds = sum(chunk.seconds for chunk in seen)
    title = f"{name}: {rows:,} rows, {found:,} differ, {seconds:.2f} s"
    if len(seen) < len(group):
        title += f"; {len(group) - len(seen)} of these chunks not compared"
    return _shade(rows, found), title, len(seen) < len(group)


def shade_of(rows: int, found: int) -> str:
    """By the share of rows that differ, of those where some do."""
    share = found / max(rows, found)
    return next((shade for shade, limit in _LIMITS.items() if share <= limit), "most")


def _shade(rows: int, found: int) -> str:
    if not found:
        return "equal" if rows else "empty"
    return shade_of(rows, found)


def laid_out(drawn: Sequence[tuple[str, str, bool]]) -> tuple[Cell, ...]:
    """Cells line by line: of each its shade, its title, and whether it is known in part only."""
    lines = max(-(-len(drawn) // PER_LINE), 1)
    per_line = max(-(-len(drawn) // lines), 1)
    width, height = WIDTH / per_line, LINE_HEIGHT if lines > 1 else 2 * LINE_HEIGHT
    return tuple(
        Cell(
            x=round(i % per_line * width, 1),
            y=i // per_line * height,
            width=round(width - GAP, 1),
            height=height - GAP,
            shade=shade,
            title=title,
            partly=partly,
        )
        for i, (shade, title, partly) in enumerate(drawn)
    )


def _words(table: TableReport, known: int, tail: bool) -> str:
    hit = [chunk.number for chunk in table.chunks if chunk.found]
    compared = len(table.chunks)
    chunks = f"{compared:,} chunk{'s' if compared != 1 else ''}"
    if not hit:
        said = f"No differences in {chunks}."
    elif len(hit) == compared:
        said = (
            f"Differences in all of {chunks}." if compared > 1 else "Differences in the only chunk."
        )
    else:
        said = f"Differences in {len(hit):,} of {chunks}: {_ranges(hit)}."
    if known > compared or tail:
        said += (
            f" {known - compared:,} chunks between them were not compared."
            if known > compared
            else ""
        )
        said += (
            " What lies after the last of them was not compared."
            if tail and not table.sampled
            else ""
        )
    placed = sum(chunk.found for chunk in table.chunks)
    if table.found > placed:
        said += f" {table.found - placed:,} rows were judged afterwards and are not in the picture."
    return said


def _ranges(numbers: list[int]) -> str:
    starts = [numbers[0], *(b for a, b in pairwise(numbers) if b != a + 1)]
    ends = [*(a for a, b in pairwise(numbers) if b != a + 1), numbers[-1]]
    named = [_range(a, b) for a, b in zip(starts, ends, strict=True)]
    more = len(named) - MOST_RANGES
    shown = ", ".join(named[:MOST_RANGES]) + (f" and {more:,} more places" if more > 0 else "")
    return ("chunk " if len(numbers) == 1 else "chunks ") + shown


def _range(first: int, last: int) -> str:
    """Chunks as people count them, from 1."""
    return f"{first + 1}" if first == last else f"{first + 1}–{last + 1}"  # noqa: RUF001 - a range
