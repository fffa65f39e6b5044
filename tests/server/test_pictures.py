"""Charts and pictures of key spaces, before anybody draws them."""

from __future__ import annotations

from itertools import pairwise

from truecopy.metastore.tasks import Sample
from truecopy.server.pages.charts import HEIGHT, POINTS, WIDTH, chart
from truecopy.server.pages.key_picture import Picture, picture
from truecopy.tasks.key_ranges import KeyRange
from truecopy.verify.picture import MOST_CELLS


def samples(*values: float | None, seconds: int = 10) -> list[Sample]:
    return [Sample(n * seconds * 1_000_000, one, 0.0, 0, 0) for n, one in enumerate(values)]


def lag(one: Sample) -> float | None:
    return one.lag_seconds


def test_a_chart_reaches_from_end_to_end_and_from_nothing_to_the_largest() -> None:
    drawn = chart("Lag", samples(0.0, 4.0, 2.0), lag, "{:.0f} s".format)
    assert drawn is not None
    assert drawn.lines == (f"0.0,{HEIGHT:.1f} {WIDTH / 2:.1f},0.0 {WIDTH:.1f},{HEIGHT / 2:.1f}",)
    assert (drawn.top, drawn.last) == ("4 s", "2 s")


def test_a_line_is_broken_where_the_task_stood() -> None:
    known = samples(1.0, 1.0) + [
        Sample(one.at + 3_600_000_000, 1.0, 0, 0, 0) for one in samples(1.0, 1.0)
    ]
    drawn = chart("Lag", known, lag, str)
    assert drawn is not None
    assert len(drawn.lines) == 2


def test_many_samples_become_few_points_and_no_peak_is_lost() -> None:
    values: list[float | None] = [1.0] * 8000
    values[4321] = 99.0
    drawn = chart("Lag", samples(*values), lag, str)
    assert drawn is not None
    assert drawn.top == "99.0"
    assert sum(len(line.split()) for line in drawn.lines) <= POINTS


def test_too_few_samples_make_no_chart() -> None:
    assert chart("Lag", samples(1.0), lag, str) is None
    assert chart("Lag", samples(None, None, 1.0), lag, str) is None
    flat = chart("Lag", samples(0.0, 0.0), lag, str)
    assert flat is not None
    assert flat.lines


def shades(drawn: Picture) -> list[str]:
    return [cell.shade for cell in drawn.cells]


def test_ranges_are_placed_by_numbers_and_not_as_text() -> None:
    ranges = [
        KeyRange(("1000",), None, 10),  # as it was planned later
        KeyRange(None, ("9",), 10),
        KeyRange(("9",), ("1000",), None),
    ]
    drawn = picture("t", ranges, [("8",), ("2000",)], verified=True)
    assert shades(drawn) == ["many", "pending", "many"]
    assert drawn.cells[1].title == "9 to 1000: not copied so far"
    assert "2 rows differ in 2 of them" in drawn.words
    whole = picture("t", [KeyRange(None, None, 5)], [], verified=False)
    assert shades(whole) == ["copied"]
    assert shades(picture("t", [KeyRange(None, None, 5)], [], verified=True)) == ["equal"]


def test_text_keys_of_several_columns_are_placed_where_they_belong() -> None:
    ranges = [KeyRange(None, ("b", "1"), 500), KeyRange(("b", "1"), None, 500)]
    drawn = picture("t", ranges, [("b", "0"), ("b", "1"), ("c", None)], verified=True)
    assert shades(drawn) == ["several", "several"]


def test_rows_that_cannot_be_placed_are_counted() -> None:
    """A collation that puts `a` before `B`."""
    ranges = [
        KeyRange(None, ("a",), 5),
        KeyRange(("a",), ("B",), 5),
        KeyRange(("B",), None, 5),
    ]
    drawn = picture("t", ranges, [("x",)], verified=True)
    assert shades(drawn) == ["equal"] * 3
    assert "cannot be placed" in drawn.words


def test_many_ranges_share_cells() -> None:
    bounds = [None, *((str(n),) for n in range(1, 1000)), None]
    ranges = [KeyRange(low, high, 1) for low, high in pairwise(bounds)]
    drawn = picture("t", ranges, [("500",)], verified=True)
    assert len(drawn.cells) <= MOST_CELLS
    assert shades(drawn).count("most") == 1
    assert picture("t", [], [], verified=False).cells == ()
