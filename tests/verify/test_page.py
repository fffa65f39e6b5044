"""The pages: what they say, what they mark, and what must never be in them."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from truecopy import verify
from truecopy.metastore.chunks import ChunkRecord
from truecopy.metastore.runs import RunRecord
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.fingerprint import Digest
from truecopy.model.types import Integer, Text
from truecopy.verify.differences import Difference, to_arrow, to_bytes
from truecopy.verify.marks import Value, show_pair, show_value
from truecopy.verify.matching import Finding
from truecopy.verify.options import Options
from truecopy.verify.page import certificate_page, duration, report_page, summary, write_report
from truecopy.verify.picture import LEGEND, MOST_CELLS, key_space
from truecopy.verify.report import (
    DIFFERENT,
    EQUAL,
    NOT_COMPARED,
    ChunkSummary,
    Report,
    TableReport,
)

PASSWORD = "s3cr3t-horse"


def table(**fields: object) -> TableReport:
    some = TableReport(
        source="shop.orders",
        target="public.orders",
        verdict=EQUAL,
        rows_compared=100,
        rows_source=100,
        rows_target=100,
        digests=(Digest(100, 12345), Digest(100, 67890)),
        columns=("id", "note"),
        types=(Integer(), Text()),
        key=("id",),
        chunks=chunks(4),
        comparison=0,
    )
    return replace(some, **fields)  # type: ignore[arg-type]


def chunks(
    number: int, found: dict[int, int] | None = None, rows: int = 100
) -> tuple[ChunkSummary, ...]:
    return tuple(ChunkSummary(i, rows, (found or {}).get(i, 0), 0.01) for i in range(number))


def report(*tables: TableReport, verdict: str = EQUAL, **fields: object) -> Report:
    some = Report(
        source=parse_endpoint(f"mysql://app:{PASSWORD}@db1:3306/shop"),
        target=parse_endpoint(f"postgresql://app:{PASSWORD}@db2/shop?token={PASSWORD}"),
        options=Options(),
        verdict=verdict,
        tables=tables,
        seconds=2.5,
        started_at=1_700_000_000.0,
        positions={"source_before": "0-1-5", "source_after": "0-1-6", "target_before": "0/16B3748"},
    )
    return replace(some, **fields)  # type: ignore[arg-type]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[RunRecord]:
    with closing(RunRecord(tmp_path / "run.db")) as record:
        yield record


def keep(record: RunRecord, *differences: Difference) -> None:
    data = to_bytes(to_arrow(differences))
    record.add(ChunkRecord(0, 0, {}, len(differences), data))


def differs(key: str, source: str | None, target: str | None) -> Difference:
    return Difference("differs", (key,), (key, source), (key, target))


class TestVerdict:
    @pytest.mark.parametrize(
        ("verdict", "words"),
        [(EQUAL, "= Equal"), (DIFFERENT, "≠ Different"), (NOT_COMPARED, "? Not compared")],
    )
    def test_is_said_in_words_and_signs(self, verdict: str, words: str) -> None:
        said = text_of(report_page(report(table(verdict=verdict), verdict=verdict)))
        assert words.split()[1] in said
        assert words in said

    def test_equal_says_how_many_rows(self) -> None:
        assert summary(report(table())) == "100 rows of 1 table compared, and none differs."

    def test_different_says_how(self) -> None:
        wrong = table(verdict=DIFFERENT, missing=1, differing=2)
        said = summary(report(wrong, table(), verdict=DIFFERENT))
        assert said == (
            "200 rows of 2 tables compared."
            " 3 rows of 1 table differ: 1 missing on the target, 2 with other values."
        )

    def test_nothing_compared_says_why(self) -> None:
        refused = TableReport("a", "b", NOT_COMPARED, "no column in common")
        said = summary(report(refused, verdict=NOT_COMPARED))
        assert said == "No verdict: no column in common. 0 rows of 0 tables compared."

    def test_what_held_it_back_is_said(self) -> None:
        partial = report(table(complete=False, unsettled=3), options=Options(sample=0.25))
        said = summary(partial)
        assert "stopped before the end" in said
        assert "3 rows kept changing" in said
        assert "25%" in said


class TestReportPage:
    def test_escapes_everything_that_comes_from_databases(self, record: RunRecord) -> None:
        evil = "<script>alert(1)</script>"
        keep(
            record,
            differs(evil, evil, f'{evil}"'),
            Difference("missing", (evil,), (evil, ""), None),
        )
        nasty = table(
            source=evil,
            target=evil,
            verdict=DIFFERENT,
            reason=evil,
            differing=1,
            missing=1,
            columns=("id", evil),
            types=(Text(), Text()),
            structure=(Finding("type", evil, evil, fatal=True),),
            ignored=(evil,),
        )
        nasty_report = report(
            nasty,
            verdict=DIFFERENT,
            record=record,
            only_source=(evil,),
            options=Options(where=evil),
            positions={"source_before": evil},
        )
        for page in (report_page(nasty_report), certificate_page(nasty_report)):
            assert "<script" not in page
            assert "&lt;script&gt;" in page

    def test_needs_nothing_from_elsewhere(self) -> None:
        for page in (report_page(report(table())), certificate_page(report(table()))):
            assert not re.search(r"<(script|link|img|iframe)\b|@import|url\((?!#)", page)
            assert "http" not in page
            assert_well_formed(page)

    def test_holds_no_password(self) -> None:
        named = report(
            table(), options=Options(replica=parse_endpoint(f"mysql://r:{PASSWORD}@db3/shop"))
        )
        for page in (report_page(named), certificate_page(named)):
            assert PASSWORD not in page
            assert "mysql://app:***@db1:3306/shop" in page

    def test_shows_differing_rows_side_by_side(self, record: RunRecord) -> None:
        keep(record, differs("7", "Oslo", "Oslo "), differs("8", None, ""))
        page = report_page(
            report(table(verdict=DIFFERENT, differing=2), verdict=DIFFERENT, record=record)
        )
        assert 'Oslo<mark><span class="code" title="space">·</span></mark>' in page
        assert '<mark><span class="null">NULL</span></mark>' in page
        assert '<mark><span class="hint">(empty)</span></mark>' in page
        assert "not shown here" not in page
        assert_well_formed(page)

    def test_shows_some_rows_and_says_how_many_more(self, record: RunRecord) -> None:
        keep(record, *(differs(str(i), "a", "b") for i in range(250)))
        page = report_page(
            report(table(verdict=DIFFERENT, differing=250), verdict=DIFFERENT, record=record)
        )
        assert page.count('data-label="Key"') == 200
        assert "50 more differing rows are not shown here" in text_of(page)

    def test_shows_rows_without_a_key_whole(self, record: RunRecord) -> None:
        keep(record, Difference("extra", (), None, ("1", "twice")))
        keyless = table(verdict=DIFFERENT, key=(), extra=1, chunks=chunks(1))
        page = report_page(report(keyless, verdict=DIFFERENT, record=record))
        assert '<span class="value">twice</span>' in page
        assert "no such row" in page

    def test_names_its_certificate_and_what_was_not_seen(self) -> None:
        kept = report(table(ignored=("updated_at",)), certificate="/state/certificates/abc.json")
        page = report_page(kept)
        assert 'href="file:///state/certificates/abc.html"' in page
        assert "shop.orders: columns left out: updated_at" in page
        assert "views, triggers, routines, grants and sequences" in page

    def test_many_tables_share_the_page(self) -> None:
        many = [table(chunks=chunks(1000)) for _ in range(200)]
        assert len(report_page(report(*many))) < 5_000_000


class TestPicture:
    @pytest.mark.parametrize("number", [2, 50, 51, 399, 400, 401, 1000, 20_000])
    def test_has_at_most_400_cells_that_hold_every_chunk(self, number: int) -> None:
        picture = key_space(table(chunks=chunks(number)))
        assert picture is not None
        assert number / 60 <= len(picture.cells) <= min(number, MOST_CELLS)
        assert sum(rows_in(cell.title) for cell in picture.cells) == 100 * number
        assert len({(cell.x, cell.y) for cell in picture.cells}) == len(picture.cells)
        assert all(cell.x + cell.width <= picture.width for cell in picture.cells)

    def test_says_in_words_where_differences_lie(self) -> None:
        found = {3: 1, 4: 1, 70: 100}
        picture = key_space(table(differing=102, chunks=chunks(80, found)))
        assert picture is not None
        assert picture.words == "Differences in 3 of 80 chunks: chunks 4–5, 71."  # noqa: RUF001
        assert picture.cells[4].title == "chunk 5 of 80: 100 rows, 1 differ, 0.01 s"

    @pytest.mark.parametrize(
        ("rows", "found", "shade"),
        [
            (0, 0, "empty"),
            (9, 0, "equal"),
            (1000, 1, "some"),
            (100, 1, "several"),
            (10, 1, "many"),
            (2, 2, "most"),
        ],
    )
    def test_colours_by_the_share_of_differing_rows(
        self, rows: int, found: int, shade: str
    ) -> None:
        picture = key_space(table(differing=found, chunks=chunks(2, {1: found}, rows)))
        assert picture is not None
        assert picture.cells[1].shade == shade
        assert picture.legend[shade] == LEGEND[shade]

    def test_hatches_what_a_sample_left_out(self) -> None:
        some = tuple(chunk for chunk in chunks(10) if chunk.number in {2, 3, 7})
        picture = key_space(table(sampled=True, chunks=some))
        assert picture is not None
        seen = [i for i, cell in enumerate(picture.cells) if cell.shade != "unseen"]
        assert seen == [2, 3, 7]
        assert "5 chunks between them were not compared" in picture.words
        assert "not compared" in picture.legend.values()

    def test_hatches_what_an_early_stop_left_out(self) -> None:
        picture = key_space(table(complete=False, chunks=chunks(3)))
        assert picture is not None
        assert [cell.shade for cell in picture.cells] == ["equal"] * 3 + ["unseen"]

    def test_marks_cells_of_which_a_part_was_compared(self) -> None:
        odd = tuple(chunk for chunk in chunks(1000) if chunk.number % 2)
        picture = key_space(table(sampled=True, chunks=odd))
        assert picture is not None
        assert picture.cells[0].partly
        assert "not compared" in picture.cells[0].title

    def test_says_that_rows_of_a_live_run_were_judged_afterwards(self) -> None:
        picture = key_space(table(differing=2, chunks=chunks(3)))
        assert picture is not None
        assert "2 rows were judged afterwards" in picture.words

    def test_is_left_out_where_chunks_are_no_ranges_of_a_key(self) -> None:
        classes = (ChunkSummary(0, 100, 0, 0.0), ChunkSummary(1, 0, 5, 0.0))
        assert key_space(table(differing=5, chunks=classes)) is None
        assert key_space(table(key=())) is None
        assert key_space(table(chunks=())) is None


class TestMarks:
    @pytest.mark.parametrize(
        ("source", "target", "shown"),
        [
            ("Oslo", "Oslo ", ("Oslo", "Oslo[·]")),
            (" Oslo", "Oslo", ("[·]Oslo", "Oslo")),
            ("100", "250", ("[100]", "[250]")),
            ("Name 20", "Name 21", ("Name 2[0]", "Name 2[1]")),
            (None, "", ("[NULL]", "[(empty)]")),
            ("NULL", None, ("[NULL]", "[NULL]")),
            ("a\nb", "a\r\nb", ("aU+000A\nb", "a[U+000D]U+000A\nb")),
            ("Müller", "Mu\u0308ller", ("M[ü]ller", "M[uU+0308]ller")),
            ("Paypal", "P\u0430ypal", ("P[a]ypal", "P[\u0430U+0430]ypal")),
            ("ab\u200bcd", "abcd", ("ab[U+200B]cd", "abcd")),
            ("one two", "one  two", ("one two", "one [·]two")),
        ],
    )
    def test_show_what_differs(
        self, source: str | None, target: str | None, shown: tuple[str, str]
    ) -> None:
        assert tuple(map(plain, show_pair(source, target))) == shown

    def test_find_a_slip_in_a_long_text_and_leave_out_the_rest(self) -> None:
        long = "lorem ipsum " * 10_000
        source, target = map(plain, show_pair(f"{long}cat{long}", f"{long}cut{long}"))
        assert "c[a]t" in source
        assert "c[u]t" in target
        assert "more characters" in source
        assert len(source) < 400

    def test_find_two_slips_in_a_long_text(self) -> None:
        words = "the quick brown fox jumps over the lazy dog and runs away from it " * 30
        source, target = show_pair(f"{words}fin.", f"{words.replace('brown', 'brawn', 1)}fin!")
        assert plain(source).startswith("the quick br[o]wn fox")
        assert plain(target).endswith("fin[!]")

    def test_texts_that_repeat_themselves_take_no_time(self) -> None:
        started = time.process_time()
        for source, target in (("0" * 400, "10" * 200), ("a " * 900, "b a " * 450)):
            show_pair(source, target)
        assert time.process_time() - started < 1

    def test_two_long_texts_stay_short(self) -> None:
        source, target = show_pair("ab" * 50_000, "ba" * 40_000 + "c")
        assert len(plain(source)) < 1000
        assert len(plain(target)) < 1000

    def test_a_lone_surrogate_can_be_written(self) -> None:
        assert plain(show_value("a\ud800")) == "aU+D800"

    def test_a_value_alone_is_not_marked(self) -> None:
        assert plain(show_value(" x y ")) == "·x y·"
        assert plain(show_value(None)) == "NULL"


class TestCertificatePage:
    def test_names_positions_digests_definition_and_limits(self) -> None:
        said = text_of(certificate_page(report(table())))
        for fact in (
            "0-1-5",
            "0-1-6",
            "0/16B3748",
            "not known",
            "12345",
            "67890",
            "SHA-256",
            "views, triggers",
        ):
            assert fact in said

    def test_shows_tables_that_were_not_compared(self) -> None:
        refused = TableReport("a", "b", NOT_COMPARED, "no column in common")
        assert "no column in common" in certificate_page(report(refused, verdict=NOT_COMPARED))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.034, "0.03 s"), (12.4, "12 s"), (75, "1 min 15 s"), (7384, "2 h 3 min")],
)
def test_durations_are_read_easily(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_verification_leaves_a_certificate_as_json_and_as_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUECOPY_STATE", str(tmp_path / "state"))
    for name in ("a", "b"):
        with sqlite3.connect(tmp_path / name) as database:
            database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
            rows = [(i, f"value {i}") for i in range(1000)]
            database.executemany("INSERT INTO t VALUES (?, ?)", rows)
            if name == "b":
                database.execute("UPDATE t SET v = '<b>' WHERE id = 500")
        database.close()
    found = verify(f"sqlite:///{tmp_path}/a", f"sqlite:///{tmp_path}/b", chunk_rows=20)
    kept = Path(found.certificate)
    page = kept.with_suffix(".html").read_text(encoding="utf-8")
    assert json.loads(kept.read_text(encoding="utf-8"))["id"] in page

    write_report(found, tmp_path / "report.html")
    written = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Differences in 1 of 50 chunks" in written
    assert "<mark>&lt;b&gt;</mark>" in written
    with pytest.raises(CannotFinish, match="cannot write the report"):
        write_report(found, tmp_path / "no such folder" / "report.html")


def plain(value: Value) -> str:
    """A value as one text, marks in brackets."""
    runs = ["".join(span.text for span in run.spans) for run in value]
    return "".join(
        f"[{text}]" if run.marked else text for run, text in zip(value, runs, strict=True)
    )


def rows_in(title: str) -> int:
    match = re.search(r"([\d,]+) rows", title)
    assert match is not None
    return int(match[1].replace(",", ""))


def text_of(page: str) -> str:
    without_style = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", without_style).split())


class _Balance(HTMLParser):
    """Fails where tags do not close in the order in which they opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag not in {"meta", "col"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_well_formed(page: str) -> None:
    balance = _Balance()
    balance.feed(page)
    assert balance.open == []
