"""The report and the certificate as pages: one file each, without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truecopy.model.errors import CannotFinish
from truecopy.verify.certificate import certificate
from truecopy.verify.differences import Difference
from truecopy.verify.marks import Value, show_pair, show_value
from truecopy.verify.options import Options
from truecopy.verify.picture import MOST_CELLS, Picture, key_space
from truecopy.verify.report import DIFFERENT, EQUAL, NOT_COMPARED, Report, TableReport

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_ROWS = 200
"""Differing rows that are shown of one table."""
CELLS_OF_PAGE, ROWS_OF_PAGE = 12_000, 6_000
"""What all tables share, so that a browser still opens the page of a thousand tables."""

VERDICTS = {
    EQUAL: ("=", "Equal"),
    DIFFERENT: ("≠", "Different"),
    NOT_COMPARED: ("?", "Not compared"),
}


def report_page(report: Report) -> str:
    """The whole report as one page of HTML."""
    tables = len(report.tables)
    most_cells = min(MOST_CELLS, max(40, CELLS_OF_PAGE // max(tables, 1)))
    differing = sum(1 for table in report.tables if table.found)
    most_rows = min(MOST_ROWS, max(10, ROWS_OF_PAGE // max(differing, 1)))
    html = (
        str(Path(report.certificate).with_suffix(".html").resolve().as_uri())
        if report.certificate
        else ""
    )
    return (
        _templates()
        .get_template("report.html.j2")
        .render(
            report=report,
            summary=summary(report),
            rows=sum(table.rows_compared for table in report.tables),
            tables=[_view(report, table, most_cells, most_rows) for table in report.tables],
            settings=_settings(report.options),
            certificate=certificate(report),
            certificate_link=html,
        )
    )


def certificate_page(report: Report, more: Mapping[str, Any] | None = None) -> str:
    """The certificate as one page, to be read and printed."""
    document = certificate(report, more)
    template = _templates().get_template("certificate.html.j2")
    return template.render(certificate=document, summary=summary(report))


def write_report(report: Report, path: str | Path) -> None:
    """Writes the page of a report into a file."""
    try:
        Path(path).write_text(report_page(report), encoding="utf-8")
    except OSError as error:
        raise CannotFinish(f"cannot write the report to {path}: {error.strerror}") from None


def summary(report: Report) -> str:
    """The verdict in words: never without the number of rows behind it, and what held it back."""
    limits = ""
    if any(not table.complete for table in report.tables):
        limits += " The work stopped before the end."
    if unsettled := sum(table.unsettled for table in report.tables):
        limits += f" {count(unsettled, 'row')} kept changing, neither equal nor different."
    if report.options.sample is not None:
        limits += f" Only a sample was compared, {report.options.sample:.0%} of the chunks."
    return _finding(report) + limits


def _finding(report: Report) -> str:
    tables = report.tables
    rows = sum(table.rows_compared for table in tables)
    found = sum(table.found for table in tables)
    looked_at = f"{count(rows, 'row')} of {count(_compared(tables), 'table')}"
    if report.verdict == EQUAL:
        return f"{looked_at} compared, and none differs."
    if report.verdict == NOT_COMPARED:
        reasons = [
            table.reason for table in tables if table.verdict == NOT_COMPARED and table.reason
        ]
        why = f": {reasons[0]}" if reasons else ""
        more = f" (and {count(len(reasons) - 1, 'more reason')} below)" if len(reasons) > 1 else ""
        return f"No verdict{why}{more}. {looked_at} compared."
    if not found:
        return f"{looked_at} compared, and no row differs; but the structure does."
    kinds = [
        (sum(table.missing for table in tables), "missing on the target"),
        (sum(table.extra for table in tables), "extra on the target"),
        (sum(table.differing for table in tables), "with other values"),
    ]
    parts = ", ".join(f"{number:,} {what}" for number, what in kinds if number)
    where = sum(1 for table in tables if table.found)
    differ = (
        f"{count(found, 'row')} of {count(where, 'table')} {'differs' if found == 1 else 'differ'}"
    )
    return f"{looked_at} compared. {differ}: {parts}."


def count(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time that is read, not computed with."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def moment(seconds: float) -> str:
    """A point in time, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@dataclass(frozen=True)
class _Cell:
    """One column of a differing row; None where a side has no such row."""

    column: str
    source: Value | None
    target: Value | None


@dataclass(frozen=True)
class _Row:
    kind: str
    key: tuple[tuple[str, Value], ...]
    cells: tuple[_Cell, ...]


@dataclass(frozen=True)
class _TableView:
    report: TableReport
    picture: Picture | None
    rows: tuple[_Row, ...]

    @property
    def more(self) -> int:
        return self.report.found - len(self.rows)

    @property
    def noteworthy(self) -> bool:
        table = self.report
        return (
            table.verdict != EQUAL or bool(table.structure or table.unsettled) or not table.complete
        )


def _view(report: Report, table: TableReport, most_cells: int, most_rows: int) -> _TableView:
    differences = islice(report.differences(table), most_rows)
    rows = tuple(_row(report, table, difference) for difference in differences)
    return _TableView(table, key_space(table, most_cells), rows)


def _row(report: Report, table: TableReport, difference: Difference) -> _Row:
    shown = report.describe(table, difference)
    key = tuple((name, show_value(text)) for name, text in shown["key"].items())
    source: Mapping[str, str | None] = shown.get("source", {})
    target: Mapping[str, str | None] = shown.get("target", {})
    if difference.kind == "differs":
        pairs = [(name, show_pair(source[name], target[name])) for name in shown["columns"]]
        cells = tuple(_Cell(name, *pair) for name, pair in pairs)
    else:
        here = tuple(_Cell(name, show_value(text), None) for name, text in source.items())
        cells = here + tuple(_Cell(name, None, show_value(text)) for name, text in target.items())
    return _Row(difference.kind, key, cells)


def _compared(tables: tuple[TableReport, ...]) -> int:
    return sum(1 for table in tables if table.rows_compared)


def _settings(options: Options) -> dict[str, str]:
    """What the user chose, where it is not the default."""
    chosen = {f.name: getattr(options, f.name) for f in fields(options)}
    return {
        f.name.replace("_", " "): _setting(chosen[f.name])
        for f in fields(options)
        if chosen[f.name] != f.default
    }


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    # An endpoint's text has its password masked.
    return ", ".join(value) if isinstance(value, tuple) else str(value)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # most commands make no page

    environment = Environment(
        loader=PackageLoader("truecopy.verify"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["VERDICTS"] = VERDICTS
    environment.filters |= {"number": "{:,}".format, "duration": duration, "moment": moment}
    return environment
