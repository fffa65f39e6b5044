"""`truecopy verify`: are these tables equal, which rows are not, and what would make them equal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from truecopy.cli.output import print_report
from truecopy.cli.progress import progress_listener, say
from truecopy.engines import connect
from truecopy.engines.protocols import Writes
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.verify.options import Options
from truecopy.verify.page import certificate_page, write_report
from truecopy.verify.repair import apply_repair, unrepaired, write_repair
from truecopy.verify.report import DIFFERENT, EQUAL, NOT_COMPARED, Report
from truecopy.verify.verification import Listener
from truecopy.verify.verification import verify as verify_tables

if TYPE_CHECKING:
    from truecopy.transfer.settings import Settings

CHOICE, SPEED, ONLINE, RESULT = (
    "What to compare",
    "Pace and load",
    "While both sides are written to",
    "Result",
)


def verify(
    context: typer.Context,
    source: Annotated[
        str | None, typer.Argument(help="URL of the source; its rows are taken to be right.")
    ] = None,
    target: Annotated[str | None, typer.Argument(help="URL of the target.")] = None,
    task: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=CHOICE,
            help="A task file: compare what its task carries with what has arrived, while it runs or stands.",
        ),
    ] = None,
    verifier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=CHOICE,
            help="With --task: checksum, iterative, inline or target; repeatable. Default: those of the task.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="TABLE",
            rich_help_panel=CHOICE,
            help="NAME, or SOURCE=TARGET; repeatable. SOURCE may hold * to merge many tables into one TARGET."
            " Default: all common tables.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            rich_help_panel=CHOICE,
            help="Columns that identify a row, separated by commas.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL", rich_help_panel=CHOICE, help="SQL condition for the rows of both sides."
        ),
    ] = None,
    ignore_column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            rich_help_panel=CHOICE,
            help="[TABLE.]COLUMN to leave out; repeatable.",
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OLD=NEW",
            rich_help_panel=CHOICE,
            help="[TABLE.]COLUMN of the source and its name on the target; repeatable.",
        ),
    ] = None,
    cast: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=TYPE",
            rich_help_panel=CHOICE,
            help="Compare [TABLE.]COLUMN as text, integer, decimal(SCALE), double, date, time,"
            " timestamp, timestamptz, binary, json or uuid; repeatable.",
        ),
    ] = None,
    float_tolerance: Annotated[
        float,
        typer.Option(
            metavar="RATIO",
            rich_help_panel=CHOICE,
            help="Relative difference up to which floats are equal.",
        ),
    ] = 0.0,
    sample: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            rich_help_panel=CHOICE,
            help="Compare this share of the chunks, e.g. 0.05.",
        ),
    ] = None,
    match_case: Annotated[
        bool,
        typer.Option(
            "--match-case", rich_help_panel=CHOICE, help="Column names must agree in case."
        ),
    ] = False,
    match_order: Annotated[
        bool,
        typer.Option(
            "--match-order", rich_help_panel=CHOICE, help="Columns must stand in the same order."
        ),
    ] = False,
    strict_structure: Annotated[
        bool,
        typer.Option(
            "--strict-structure",
            rich_help_panel=CHOICE,
            help="Other types, and tables that only one side has, are differences.",
        ),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            rich_help_panel=SPEED,
            help="Spark master: local[N], spark://HOST:PORT, yarn, k8s://… Default: small work runs in this"
            " process, the rest on all cores.",
        ),
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=SPEED,
            help="Connections to each side at once; default one per core.",
        ),
    ] = None,
    chunk_rows: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=SPEED,
            help="Rows of a chunk; default by the size of a row.",
        ),
    ] = None,
    chunk_seconds: Annotated[
        float,
        typer.Option(
            metavar="SEC", rich_help_panel=SPEED, help="What one statement should take at most."
        ),
    ] = 1.0,
    replica: Annotated[
        str | None,
        typer.Option(
            metavar="URL", rich_help_panel=SPEED, help="URL of a replica whose lag pauses the work."
        ),
    ] = None,
    max_lag: Annotated[
        float,
        typer.Option(metavar="SEC", rich_help_panel=SPEED, help="Seconds of lag that pause it."),
    ] = 1.0,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", rich_help_panel=SPEED, help="Stop after this many differing rows."
        ),
    ] = None,
    max_time: Annotated[
        float | None,
        typer.Option(metavar="SEC", rich_help_panel=SPEED, help="Stop after this many seconds."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=SPEED,
            help="File that remembers what is done. Default: one per set of options, in the state folder.",
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", rich_help_panel=SPEED, help="Forget what an interrupted run had done."
        ),
    ] = False,
    live: Annotated[
        bool,
        typer.Option("--live", rich_help_panel=ONLINE, help="Both sides are written to meanwhile."),
    ] = False,
    delay: Annotated[
        float,
        typer.Option(
            metavar="SEC",
            rich_help_panel=ONLINE,
            help="Seconds for which a source row must stand still before a difference counts.",
        ),
    ] = 5.0,
    settle_time: Annotated[
        float,
        typer.Option(
            metavar="SEC",
            rich_help_panel=ONLINE,
            help="Seconds after which rows that never stood still are unsettled.",
        ),
    ] = 60.0,
    json_: Annotated[
        bool, typer.Option("--json", rich_help_panel=RESULT, help="Print one JSON document.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=RESULT, help="Write a page (HTML)."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=RESULT,
            help="Write the certificate here (.json or .html).",
        ),
    ] = None,
    repair: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=RESULT,
            help="Write the statements that repair the target.",
        ),
    ] = None,
    apply_repair_: Annotated[
        bool,
        typer.Option(
            "--apply-repair", rich_help_panel=RESULT, help="Ask, repair the target, verify again."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", rich_help_panel=RESULT, help="Do not ask.")] = False,
) -> int:
    """Compare the tables of two databases and name every row that differs.

    Digests are computed inside both databases, in chunks of the key; only
    rows that differ travel. The rows of SOURCE are taken to be right. Without
    --table all tables that both sides have are compared. A run that was
    interrupted goes on where it stopped.

    \b
    Examples:
      truecopy verify mysql://app@db1/shop postgresql://app@db2/shop
      truecopy verify 'mysql://app:${PW}@db1/shop' mysql://app@db2/shop -t orders --json
      truecopy verify mysql://… mysql://… --live --delay 10
      truecopy verify sqlite:///a.db sqlite:///b.db --repair fix.sql --report page.html
      truecopy verify --task shop.yaml --json

    Exit codes: 0 equal, 1 differences found, 2 wrong usage or nothing
    compared, 3 could not finish.
    """
    options = Options(
        tables=tuple(table or ()),
        ignore_columns=tuple(ignore_column or ()),
        casts=tuple(cast or ()),
        renames=tuple(rename or ()),
        key=tuple(part.strip() for part in key.split(",")) if key else (),
        where=where,
        float_tolerance=float_tolerance,
        limit=limit,
        max_time=max_time,
        sample=sample,
        connections=connections,
        chunk_rows=chunk_rows,
        chunk_seconds=chunk_seconds,
        replica=parse_endpoint(replica) if replica else None,
        max_lag=max_lag,
        live=live,
        delay=delay,
        settle_time=settle_time,
        match_case=match_case,
        match_order=match_order,
        strict_structure=strict_structure,
    )

    if task is not None:
        _refuse_what_the_task_says(context)
        legs = _of_task(task, tuple(verifier or ()), options, master)
        if len(legs) > 1:
            if report or certificate or repair:
                raise UsageError(
                    "--report, --certificate and --repair are of two databases, and this task has several"
                )
            return _verify_legs(legs, json_)
        (compare,) = legs.values()
    elif source is None or target is None:
        raise UsageError("verify compares SOURCE and TARGET, or what a task carries: --task FILE")
    elif verifier:
        raise UsageError("--verifier chooses among those of a task: add --task FILE")
    else:
        ends = parse_endpoint(source), parse_endpoint(target)
        compare = partial(
            verify_tables, *ends, options=options, master=master, checkpoint=checkpoint
        )

    def run(again: bool) -> Report:
        with progress_listener() as listener:
            return compare(fresh=fresh or again, listener=listener)

    found = run(again=False)
    if repair is not None:
        _repair(found, repair)
    if apply_repair_ and _apply(found, yes):
        if found.record is not None:
            found.record.close()
        found = run(again=True)
    _write(found, report, certificate)
    if json_:
        json.dump(found.to_dict(), sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        print_report(found)
    for refused in found.tables:
        if refused.verdict == "not_compared":
            say(f"truecopy: {refused.source or refused.target} was not compared: {refused.reason}")
    return found.exit_code


class _Compare(Protocol):
    def __call__(self, *, fresh: bool, listener: Listener) -> Report: ...


_WITH_TASK = {
    "task", "verifier", "master", "connections", "chunk_rows", "chunk_seconds", "replica", "max_lag",
    "delay", "settle_time", "json_", "report", "certificate", "repair",
}  # fmt: skip


def _refuse_what_the_task_says(context: typer.Context) -> None:
    """What would be ignored in silence; a repair by hand would be a write that the task does not know."""
    for name in context.params.keys() - _WITH_TASK:
        given = context.get_parameter_source(name)
        if given is not None and given.name == "COMMANDLINE":
            shown = name.upper() if name in ("source", "target") else f"--{name.strip('_')}"
            raise UsageError(f"{shown.replace('_', '-')} does not go with --task")


def _of_task(
    file: Path, verifiers: tuple[str, ...], options: Options, master: str | None
) -> dict[str, _Compare]:
    """The comparison of each leg of a task; most tasks have one."""
    # Other verifications need not wait for what only this one uses.
    from truecopy.tasks.file import load_task
    from truecopy.tasks.legs import transfer_legs
    from truecopy.transfer.cutover.standing import standing
    from truecopy.transfer.proof.alone import VERIFIERS, verify_task

    for name in verifiers:
        if name not in VERIFIERS:
            raise UsageError(f"there is no verifier {name}; known are {', '.join(VERIFIERS)}")

    def comparison(settings: Settings) -> _Compare:
        def compare(*, fresh: bool, listener: Listener) -> Report:  # noqa: ARG001 - it is always begun anew
            return verify_task(settings, verifiers, options=options, listener=listener)

        return compare

    legs = [standing(leg) for leg in transfer_legs(load_task(file))]
    if master is not None:
        legs = [replace(leg, master=master) for leg in legs]
    return {leg.task: comparison(leg) for leg in legs}


def _verify_legs(legs: Mapping[str, _Compare], json_: bool) -> int:
    """Leg after leg; all are equal when each is."""
    reports = {}
    for name, compare in legs.items():
        with progress_listener() as listener:
            reports[name] = compare(fresh=True, listener=listener)
        if not json_:
            typer.echo(f"{name}:")
            print_report(reports[name])
    if json_:
        found = [{"task": name, **report.to_dict()} for name, report in reports.items()]
        verdicts = {report.verdict for report in reports.values()}
        whole = next(one for one in (DIFFERENT, NOT_COMPARED, EQUAL) if one in verdicts)
        json.dump({"verdict": whole, "legs": found}, sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
    codes = {report.exit_code for report in reports.values()}
    return 1 if 1 in codes else max(codes)


@contextmanager
def _target(found: Report) -> Iterator[Writes]:
    with closing(connect(found.target)) as session:
        if not isinstance(session, Writes):
            raise UsageError(
                f"{found.target} cannot be repaired by statements: load the table again"
            )
        yield session


def _repair(found: Report, path: Path) -> None:
    with _target(found) as session:
        count = write_repair(found, session, path)
    say(f"{count:,} statements that repair the target are in {path}")
    for line in unrepaired(found):
        say(f"not in it: {line}")


def _apply(found: Report, yes: bool) -> bool:
    count = sum(table.found for table in found.tables if table.key)
    if not count:
        return False
    question = f"Change {count:,} rows of {found.target}?"
    if not yes and not (sys.stdin.isatty() and typer.confirm(question, err=True)):
        if not sys.stdin.isatty():
            raise UsageError(
                "--apply-repair asks before it writes: run it on a terminal, or add --yes"
            )
        return False
    with _target(found) as session:
        done = apply_repair(found, session)
    say(f"applied {done:,} statements to {found.target}; verifying again")
    return True


def _write(found: Report, report: Path | None, certificate: Path | None) -> None:
    if report is not None:
        write_report(found, report)
        say(f"the report is in {report}")
    if certificate is not None:
        text = (
            certificate_page(found)
            if certificate.suffix == ".html"
            else Path(found.certificate).read_text("utf-8")
        )
        certificate.write_text(text, encoding="utf-8")
        say(f"the certificate is in {certificate}")
