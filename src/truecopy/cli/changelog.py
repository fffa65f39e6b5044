"""`truecopy changelog`: keep every change of a database, and have its tables as of any moment."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from truecopy.cli.progress import ERRORS, say
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.stream.request import ENGINE_SETTINGS, Request

if TYPE_CHECKING:
    from truecopy.changelog.record import Listener, RecordReport
    from truecopy.changelog.store import Store

changelog_app = typer.Typer(
    name="changelog",
    help="Keep every change of a database, and have its tables as of any moment.",
    no_args_is_help=True,
)

_Source = Annotated[
    str,
    typer.Argument(metavar="ENDPOINT", help="URL of a database, or the path of a keyspace file."),
]
_Log = Annotated[
    str, typer.Argument(metavar="LOG", help="The folder of the log: a path, or lake:///path.")
]
_Tables = Annotated[
    list[str] | None,
    typer.Option("--tables", "-t", help="Names or patterns, separated by commas. Default: all."),
]
_Until = Annotated[
    str, typer.Option(metavar="POINT", help="never, or current: what is committed when it starts.")
]
_Interval = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="What comes in this time is one batch.")
]
_Master = Annotated[str | None, typer.Option(metavar="URL", help="Spark master.")]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A setting of the source's engine; repeatable."
    ),
]
_Shard = Annotated[str, typer.Option(metavar="NAME", help="The name that tokens carry.")]
_Name = Annotated[
    str,
    typer.Option("--log", metavar="NAME", help="Of a log in a database, which may have several."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_Table = Annotated[str, typer.Option("--table", metavar="NAME", help="A table, as the log has it.")]
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_STOP_SECONDS = 120.0


@changelog_app.command()
def start(
    endpoint: _Source,
    to: Annotated[
        str,
        typer.Option(metavar="LOG", help="A folder, or the URL of a database that gets a table."),
    ],
    tables: _Tables = None,
    until: _Until = "never",
    interval: _Interval = 1.0,
    shard: _Shard = "",
    log: _Name = "changes",
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POINT",
            help="Of a log in a database: start, current, a token or a time.",
        ),
    ] = "current",
    set_: _Set = None,
    master: _Master = None,
    json_: _Json = False,
) -> int:
    """Record every change, each once, until it is stopped; the same command goes on where it stopped.

    In a folder the log begins with a copy of the tables, from which they can be restored.

    \b
    truecopy changelog start mariadb://repl@db1/shop --to /srv/shop-log
    truecopy changelog start shop-keyspace.yaml --to /srv/shop-log --until current
    truecopy changelog start mariadb://repl@db1/shop --to postgresql://app@db2/archive
    """
    from truecopy.changelog.record import Recording
    from truecopy.changelog.table_log import TableRecording

    _require_end(until)
    request = _request(endpoint, tables, shard, set_)
    with _progress("recorded", "changes") as listener:
        recording: _Runs
        if (folder := _folder(to)) is not None:
            recording = Recording(
                request, folder, interval=interval, master=master, listener=listener
            )
        else:
            recording = TableRecording(
                request,
                to,
                log=log,
                start=from_,
                interval=interval,
                master=master,
                listener=listener,
            )
        report = _run(recording, until, master)
    _tell(report, json_, "changes recorded")
    return 0


@changelog_app.command()
def follow(
    endpoint: _Source,
    to: Annotated[str, typer.Option(metavar="ENDPOINT", help="URL of the database with the copy.")],
    tables: _Tables = None,
    until: _Until = "never",
    interval: _Interval = 0.5,
    shard: _Shard = "",
    set_: _Set = None,
    master: _Master = None,
    json_: _Json = False,
) -> int:
    """Keep a copy in another database up to date, with the last token in each row; it only moves forward.

    \b
    truecopy changelog follow mariadb://repl@db1/shop --to postgresql://app@db2/copy
    """
    from truecopy.changelog.follow import Copy

    _require_end(until)
    request = _request(endpoint, tables, shard, set_)
    with _progress("moved", "rows") as listener:
        copy = Copy(request, to, interval=interval, master=master, listener=listener)
        report = _run(copy, until, master)
    _tell(report, json_, "rows moved forward")
    return 0


@changelog_app.command()
def stop(
    to: Annotated[str, typer.Argument(metavar="LOG", help="As start got it by --to.")],
    log: _Name = "changes",
) -> int:
    """End a log that is being written, after its batch; start goes on with it."""
    folder = _folder(to)
    if folder is None:
        from truecopy.changelog.table_log import LogLine

        LogLine(parse_endpoint(to), log).ask_to_stop()
        say("asked to stop")
        return 0
    from truecopy.changelog.store import Store

    with Store.open(folder) as store:
        if not store.is_written():
            say(f"nobody writes {folder}")
            return 0
        store.say("stop", "asked")
        deadline = time.monotonic() + _STOP_SECONDS
        while store.is_written():
            if time.monotonic() > deadline:
                raise CannotFinish(f"{folder} is still being written; it ends after its batch")
            time.sleep(0.1)
    say("stopped")
    return 0


@changelog_app.command()
def compact(
    log: _Log,
    keep: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Move the base forward and remove events that are older: 30d, 12h."
        ),
    ] = "",
    master: _Master = None,
    json_: _Json = False,
) -> int:
    """Merge small files; with --keep, leave out the past. May run while the log is written."""
    from truecopy.changelog.compact import compact as compact_log

    before = int(time.time() * 1e6) - _microseconds(keep) if keep else None
    report = compact_log(_need_folder(log), before=before, master=master)
    if json_:
        _print_json(asdict(report))
    else:
        gone = f", {report.events_removed:,} events removed" if keep else ""
        typer.echo(f"{report.files_before:,} files before, {report.files_after:,} now{gone}")
    return 0


@changelog_app.command()
def ls(log: _Log, json_: _Json = False) -> int:
    """Say what a log holds: its tables, from when they can be restored, and how far it has come."""
    from truecopy.changelog.store import Store

    with Store.open(_need_folder(log)) as store:
        document = _document(store)
    if json_:
        _print_json(document)
        return 0
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("table", "base rows", "changes", "files", "bytes"):
        shown.add_column(name, justify="left" if name == "table" else "right")
    for one in document["tables"]:
        numbers = (one["base_rows"], one["changes"], one["files"], one["bytes"])
        shown.add_row(one["table"], *(f"{number:,}" for number in numbers))
    out = Console(highlight=False)
    out.print(shown)
    for name in ("source", "restorable_from", "read_to", "position", "views"):
        out.print(f"{name.replace('_', ' ')}: {document[name]}", soft_wrap=True, markup=False)
    out.print("being written" if document["running"] else "not being written")
    return 0


@changelog_app.command()
def restore(
    log: _Log,
    table: _Table,
    at: Annotated[
        str,
        typer.Option(
            metavar="POINT", help="current, a token, or a time: what was committed before it."
        ),
    ],
    to: Annotated[str, typer.Option(metavar="ENDPOINT", help="URL of the database that gets it.")],
    as_: Annotated[str, typer.Option("--as", metavar="NAME", help="Under another name.")] = "",
    master: _Master = None,
    json_: _Json = False,
) -> int:
    """Write a table as it was at a point, to the transaction.

    \b
    truecopy changelog restore /srv/shop-log --table orders --at 2026-01-31T12:00:00Z --to sqlite:///then.db
    """
    from truecopy.changelog.restore import restore as restore_table

    report = restore_table(_need_folder(log), table, at, to, name=as_, master=master)
    if json_:
        _print_json(asdict(report))
    else:
        typer.echo(f"{report.table}: {report.rows:,} rows in {report.target}")
    return 0


@changelog_app.command()
def diff(
    log: _Log,
    table: _Table,
    at: Annotated[str, typer.Option("--at", metavar="POINT", help="The one point.")],
    and_: Annotated[str, typer.Option("--and", metavar="POINT", help="The other point.")],
    master: _Master = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object per row.")] = False,
) -> int:
    """Show the rows that differ between two points, with what happened to them; exit code 1 if there are any."""
    from truecopy.changelog.diff import diff as diff_points

    count = 0
    for difference in diff_points(_need_folder(log), table, at, and_, master):
        count += 1
        _print_difference(asdict(difference), json_)
    say(f"{table}: {count:,} rows differ")
    return 1 if count else 0


# Both kinds of runs


class _Runs(Protocol):
    def run(self, until: str) -> RecordReport: ...
    def stop(self) -> None: ...


def _run(work: _Runs, until: str, master: str | None) -> RecordReport:
    """Runs until its end, or a signal, which is waited for between two batches."""
    from truecopy import spark

    spark.session(master)  # which sets a handler of its own
    received: list[int] = []

    def end(number: int, _: object) -> None:
        received.append(number)
        work.stop()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        report = work.run(until)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise CannotFinish("interrupted; the same command goes on where this one stopped")
    return report


@contextmanager
def _progress(verb: str, things: str) -> Iterator[Listener]:
    from truecopy.changelog.record import Listener

    if not ERRORS.is_terminal:
        yield Listener(said=say)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=ERRORS, transient=True) as progress:
        task = progress.add_task("connecting")
        counts = {"copied": 0, "recorded": 0}
        begun = time.monotonic()

        def count(which: str, more: int) -> None:
            counts[which] += more
            rate = sum(counts.values()) / max(time.monotonic() - begun, 0.1)
            text = f"{counts['copied']:,} rows copied, {counts['recorded']:,} {things} {verb}, {rate:,.0f}/s"
            progress.update(task, description=text)

        yield Listener(
            say, lambda more: count("copied", more), lambda more: count("recorded", more)
        )


def _tell(report: RecordReport, json_: bool, what: str) -> None:
    if json_:
        _print_json(asdict(report))
        return
    copied = f"{report.rows_copied:,} rows copied, " if report.rows_copied else ""
    typer.echo(f"{copied}{report.events:,} {what}, up to {report.token}")


# What was given


def _request(
    endpoint: str, tables: list[str] | None, shard: str, set_: list[str] | None
) -> Request:
    names = tuple(name for given in tables or () for name in given.split(",") if name)
    settings = {}
    for pair in set_ or ():
        name, separator, value = pair.partition("=")
        if not separator or name not in ENGINE_SETTINGS:
            raise UsageError(
                f"--set {pair}: write NAME=VALUE with one of {', '.join(ENGINE_SETTINGS)}"
            )
        settings[name] = value
    return Request(endpoint, shard=shard, tables=names, settings=settings)


def _require_end(until: str) -> None:
    if until not in ("never", "current"):
        raise UsageError(f"--until {until}: write never or current")


def _folder(text: str) -> Path | None:
    """The folder of a log; None where a database is meant."""
    if "://" not in text:
        return Path(text).absolute()
    endpoint = parse_endpoint(text)
    return Path("/" + endpoint.path.lstrip("/")) if endpoint.scheme == "lake" else None


def _need_folder(text: str) -> Path:
    folder = _folder(text)
    if folder is None:
        raise UsageError(f"{parse_endpoint(text)} is a database, and the log of a folder is wanted")
    return folder


def _microseconds(text: str) -> int:
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if match is None:
        raise UsageError(f"--keep {text}: write a number and s, m, h or d, as 30d")
    return int(match[1]) * _SECONDS[match[2]] * 1_000_000


# What is printed


def _document(store: Store) -> dict[str, Any]:
    if store.last < 0:
        raise UsageError(
            f"the log in {store.folder} was not begun: truecopy changelog start goes on"
        )
    bases, files = store.bases(), store.files()
    base = bases[-1]
    rows: dict[str, int] = {}
    for chunk in store.chunks(base.number):
        rows[chunk.table] = rows.get(chunk.table, 0) + (chunk.rows or 0)
    end = store.end_of(store.last)
    ready = base.ready is not None
    return {
        "source": store.word("source"),
        "running": store.is_written(),
        "restorable_from": _time(base.ready_at) if ready else None,
        "read_to": _time(max(end.slowest, int(store.word("seen_at") or 0))),
        "position": str(end.token()),
        "batches": store.last,
        "changes": sum(file.rows for file in files),
        "views": str(store.folder / "views"),
        "tables": [
            {
                "table": table,
                "base_rows": rows.get(table, 0),
                "changes": sum(file.rows for file in files if file.table == table),
                "files": sum(file.table == table for file in files),
                "bytes": sum(file.bytes for file in files if file.table == table),
            }
            for table in store.tables()
        ],
    }


def _time(at: int) -> str:
    return (
        datetime.fromtimestamp(at / 1e6, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _print_difference(row: dict[str, Any], json_: bool) -> None:
    if json_:
        _print_json(row)
        return
    key = " ".join(f"{name}={text}" for name, text in (row["key"] or {}).items())
    before, after = row["before"] or {}, row["after"] or {}
    changed = [
        f"{name}: {before.get(name)} → {after.get(name)}"
        for name in (after or before)
        if before.get(name) != after.get(name) and name not in (row["key"] or {})
    ]
    typer.echo(f"{row['kind']:<8} {key}  {'  '.join(changed)}")


def _print_json(document: object) -> None:
    json.dump(document, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")
    sys.stdout.flush()
