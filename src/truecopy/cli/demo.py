"""`truecopy demo`: a damaged copy of a small shop, found out and repaired, without any server."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from truecopy.cli import shop
from truecopy.cli.output import print_report
from truecopy.cli.progress import progress_listener
from truecopy.engines import connect
from truecopy.engines.protocols import Writes
from truecopy.model.errors import CannotFinish
from truecopy.spark import default_master
from truecopy.verify.page import write_report
from truecopy.verify.repair import apply_repair, write_repair
from truecopy.verify.report import DIFFERENT, EQUAL, Report
from truecopy.verify.verification import verify


def demo(
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep the databases, the repair and the report page here."
        ),
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print both reports as one JSON document.")
    ] = False,
) -> int:
    """See a damaged copy of a small shop found out and repaired, on SQLite, without any server.

    It makes two databases of 80,000 rows, damages one of them in ways that
    counts and sums do not show, finds exactly that damage, repairs it and
    verifies again. It takes less than a minute.

    \b
    Examples:
      truecopy demo
      truecopy demo --folder /tmp/shop
    """
    out = Console(highlight=False, stderr=json_)
    place = folder or Path(tempfile.mkdtemp(prefix="truecopy-demo-"))
    place.mkdir(parents=True, exist_ok=True)
    try:
        found, repaired = _play(place, out, kept=folder is not None)
        if json_:
            json.dump({"damaged": found.to_dict(), "repaired": repaired.to_dict()}, sys.stdout)
            sys.stdout.write("\n")
        return 0
    finally:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)


def _play(place: Path, out: Console, *, kept: bool) -> tuple[Report, Report]:
    source, target = place / "shop.db", place / "copy.db"
    _step(out, 1, "Two databases: a small shop and its copy")
    rows = shop.create(source)
    shutil.copyfile(source, target)
    out.print(
        f"  {rows:,} rows in customers, orders and order_lines, in {source.name} and {target.name}"
    )

    _step(out, 2, "Damage to the copy, of the kind that tools miss")
    damages = shop.damage(target)
    for damage in damages:
        out.print(f"  • {escape(damage.story)}")

    _step(out, 3, "What a count of rows and a sum of balances say")
    for line in shop.naive_checks(source, target):
        out.print(f"  {line}")

    _step(out, 4, f"truecopy verify {source.name} {target.name}")
    found = _verify(source, target)
    print_report(found, out)
    _expect(found, {(d.table, d.key, d.kind) for d in damages})
    write_report(found, place / "report.html")

    _step(out, 5, "The statements that repair it")
    with closing(connect(found.target)) as session:
        if not isinstance(session, Writes):
            raise CannotFinish("the demo's target cannot be written to")
        write_repair(found, session, place / "repair.sql")
        from rich.syntax import Syntax  # other commands need not wait for what it loads

        out.print(
            Syntax(
                (place / "repair.sql").read_text("utf-8"),
                "sql",
                background_color="default",
                word_wrap=True,
            )
        )

        _step(out, 6, "Applied, and verified again")
        apply_repair(found, session)
    again = _verify(source, target)
    print_report(again, out)
    if again.verdict != EQUAL:
        raise CannotFinish(
            "the repaired copy is not equal to the shop: this is a bug, please report it"
        )
    out.print()
    if kept:
        out.print(f"Databases, repair.sql and report.html are in {place}")
    out.print(
        "Next: truecopy verify SOURCE TARGET with your own databases; truecopy verify --help",
        soft_wrap=True,
    )
    return found, again


def _verify(source: Path, target: Path) -> Report:
    with progress_listener() as listener:
        # On Spark even though the shop is small: the demo shows the same way that 2 TB go.
        return verify(
            f"sqlite:///{source}",
            f"sqlite:///{target}",
            chunk_rows=10_000,
            master=default_master(),
            fresh=True,
            listener=listener,
        )


def _expect(report: Report, planted: set[tuple[str, str, str]]) -> None:
    found = {
        (table.source, ",".join(str(text) for text in difference.key), difference.kind)
        for table in report.tables
        for difference in report.differences(table)
    }
    if report.verdict != DIFFERENT or found != planted:
        raise CannotFinish(
            f"the demo planted {len(planted)} damages and found {len(found)}: please report this bug"
        )


def _step(out: Console, number: int, title: str) -> None:
    out.print(f"\n[bold]{number}. {escape(title)}[/]", soft_wrap=True)
