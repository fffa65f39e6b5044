"""A report as text for people: the verdict first, then the tables, then the rows that differ."""

from __future__ import annotations

from itertools import islice

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from truecopy.verify.report import DIFFERENT, EQUAL, Report, TableReport

ROWS_SHOWN = 20
_MARKS = {
    EQUAL: "[green]✔ equal[/]",
    DIFFERENT: "[red]✘ different[/]",
    "not_compared": "[yellow]? not compared[/]",
}


def print_report(report: Report, console: Console | None = None) -> None:
    """Prints the whole report."""
    out = console or Console(highlight=False)
    out.print(_tables(report))
    for table in report.tables:
        for finding in table.structure:
            out.print(
                f"{escape(table.source)}: {escape(finding.message)}", style="yellow", soft_wrap=True
            )
        if table.found:
            out.print(_differences(report, table))
            if table.found > ROWS_SHOWN:
                more = f"… and {table.found - ROWS_SHOWN:,} more: see --json, --report or --repair"
                out.print(more, style="dim")
            if table.reason:
                out.print(f"{escape(table.source)}: {escape(table.reason)}", style="yellow")
    for name in report.only_source:
        out.print(f"{escape(name)}: the target has no such table", style="yellow")
    for name in report.only_target:
        out.print(f"{escape(name)}: the source has no such table", style="yellow")
    out.print(_closing_line(report), soft_wrap=True)


def _tables(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("source", "target"):
        table.add_column(name, overflow="fold")
    table.add_column("verdict", no_wrap=True)
    counts = {
        "rows": "rows_compared",
        "missing": "missing",
        "extra": "extra",
        "differing": "differing",
    }
    if report.options.live or any(one.unsettled for one in report.tables):
        counts["unsettled"] = "unsettled"
    for name in counts:
        table.add_column(name, justify="right", no_wrap=True)
    for one in report.tables:
        numbers = (f"{getattr(one, field):,}" for field in counts.values())
        table.add_row(escape(one.source), escape(one.target), _MARKS[one.verdict], *numbers)
    return table


def _differences(report: Report, table: TableReport) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in (f"{table.source}: key", "kind", "column", "source", "target"):
        shown.add_column(name, overflow="fold")
    for difference in islice(report.differences(table), ROWS_SHOWN):
        row = report.describe(table, difference)
        key = ", ".join(f"{name}={value}" for name, value in row["key"].items())
        columns = row.get("columns") or [""]
        for at, column in enumerate(columns):
            source, target = (
                visible(row.get(side, {}).get(column, "")) for side in ("source", "target")
            )
            first = (escape(key), row["kind"]) if at == 0 else ("", "")
            shown.add_row(
                *first,
                escape(column),
                escape(source) if column else "",
                escape(target) if column else "",
            )
    return shown


def visible(value: str | None) -> str:
    """A value with what the eye would miss made visible."""
    if value is None:
        return "NULL"
    if not value:
        return "(empty)"
    stripped = value.rstrip(" ")
    text = stripped + "·" * (len(value) - len(stripped))
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= 120 else f"{text[:117]}…"


def _closing_line(report: Report) -> str:
    rows = sum(table.rows_compared for table in report.tables)
    found = sum(table.found for table in report.tables)
    words = {
        EQUAL: f"[green]equal[/]: {rows:,} rows compared",
        DIFFERENT: f"[red]different[/]: {found:,} differing rows among {rows:,} compared",
    }.get(report.verdict, f"[yellow]not compared[/]: {rows:,} rows compared")
    return f"{words} in {report.seconds:.1f} s; certificate: {escape(report.certificate)}"
