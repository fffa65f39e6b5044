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
    from truecopy.changelog.log import Log
    from truecopy.changelog.record import Listener, RecordReport
    from truecopy.tasks.file import Task

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
    str,
    typer.Argument(
        metavar="LOG", help="A folder (a path, or lake:///path), or the URL of a database."
    ),
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
_CHANGES = "changes"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_STOP_SECONDS = 120.0


@changelog_app.command()
def start(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="URL of a database, or the path of a keyspace or task file."
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="LOG",
            help="A folder, or the URL of a database that gets tables. Default: a task's target.",
        ),
    ] = "",
    tables: _Tables = None,
    until: _Until = "never",
    interval: _Interval = 1.0,
    shard: _Shard = "",
    log: _Name = "",
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POINT",
            help="Of a log in a database: begin at start, current, a token or a time, without a copy of the tables.",
        ),
    ] = "",
    set_: _Set = None,
    master: _Master = None,
    json_: _Json = False,
) -> int:
    """Record every change, each once, until it is stopped.

    The same command goes on where it stopped. A log begins with a copy of the
    tables, from which they can be restored at any point since. It is a folder
    of Parquet files, or tables of a database. A task file says the source, the
    tables, and by its target where the log is.

    \b
    Examples:
      truecopy changelog start mariadb://repl@db1/shop --to /srv/shop-log
      truecopy changelog start shop-keyspace.yaml --to /srv/shop-log --until current
      truecopy changelog start mariadb://repl@db1/shop --to postgresql://app@db2/archive
      truecopy changelog start shop-log.yaml
    """
    from truecopy.changelog.opening import log_folder
    from truecopy.changelog.record import Recording
    from truecopy.changelog.table_log import TableRecording

    _require_end(until)
    if (task := _task(source)) is not None:
        request, to, log = _of_task(task, to, log, given=bool(tables or shard or set_))
        master = master or task.spark.master
    else:
        request = _request(source, tables, shard, set_)
    if not to:
        raise UsageError("--to is missing: name a folder, or the URL of a database")
    with _progress("recorded", "changes") as listener:
        recording: _Runs
        if (folder := log_folder(to)) is not None:
            if from_:
                raise UsageError("--from is for logs in a database: a folder begins with a copy")
            recording = Recording(
                request, folder, interval=interval, master=master, listener=listener
            )
        else:
            recording = TableRecording(
                request,
                to,
                log=log or _CHANGES,
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
    """Keep a copy in another database up to date, which only moves forward.

    Dumps the tables and applies the changes since. Each row has the token of
    its last change and takes none that is older; a row that was deleted stays
    as its key and its token.

    \b
    Examples:
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
    log: _Name = "",
) -> int:
    """End a log that is being written, after its batch; start goes on with it.

    Waits for the writer of a folder. A writer of a log in a database may be on
    any machine: it is asked to stop, and does so within seconds.

    \b
    Examples:
      truecopy changelog stop /srv/shop-log
      truecopy changelog stop postgresql://app@db2/archive --log shop
    """
    from truecopy.changelog.opening import open_log

    with open_log(to, log or _CHANGES) as found:
        if found.is_written() is False:
            say(f"nobody writes {found.place}")
            return 0
        found.say("stop", "asked")
        if found.is_written() is None:
            say("asked to stop")
            return 0
        deadline = time.monotonic() + _STOP_SECONDS
        while found.is_written():
            if time.monotonic() > deadline:
                raise CannotFinish(f"{found.place} is still being written; it ends after its batch")
            time.sleep(0.1)
    say("stopped")
    return 0


@changelog_app.command()
def compact(
    place: _Log,
    keep: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Move the base forward and remove events that are older: 30d, 12h."
        ),
    ] = "",
    log: _Name = "",
    master: _Master = None,
    json_: _Json = False,
) -> int:
    """Merge small files; with --keep, leave out the past.

    May run while the log is written. What is kept can be restored: the tables
    as they were at the last moment that is left out become the log's new base.

    \b
    Examples:
      truecopy changelog compact /srv/shop-log --keep 90d
      truecopy changelog compact postgresql://app@db2/archive --log shop --keep 30d
    """
    from truecopy.changelog.compact import compact as compact_log
    from truecopy.changelog.compact import leave_past
    from truecopy.changelog.opening import log_folder

    before = int(time.time() * 1e6) - _microseconds(keep) if keep else None
    if (folder := log_folder(place)) is not None:
        report = compact_log(folder, before=before, master=master)
    elif before is None:
        raise UsageError(
            f"{parse_endpoint(place)} is a database, where a log has no files to merge: say with --keep what to keep"
        )
    else:
        report = leave_past(parse_endpoint(place), log or _CHANGES, before, master=master)
    if json_:
        _print_json(asdict(report))
    else:
        gone = f", {report.events_removed:,} events removed" if keep else ""
        typer.echo(f"{report.files_before:,} files before, {report.files_after:,} now{gone}")
    return 0


@changelog_app.command()
def ls(place: _Log, log: _Name = "", json_: _Json = False) -> int:
    """Say what a log holds: its tables, and how far it has come.

    Shows the rows of the base and the changes of each table, from when on they
    can be restored, up to where the source's log is read, and for a folder
    whether it is being written.

    \b
    Examples:
      truecopy changelog ls /srv/shop-log
      truecopy changelog ls postgresql://app@db2/archive --log shop --json
    """
    from truecopy.changelog.opening import open_log

    with open_log(place, log or _CHANGES) as found:
        document = _document(found)
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
    running = {True: "being written", False: "not being written", None: "its writer is not known"}
    out.print(running[document["running"]])
    return 0


@changelog_app.command()
def restore(
    place: _Log,
    table: _Table,
    at: Annotated[
        str,
        typer.Option(
            metavar="POINT", help="current, a token, or a time: what was committed before it."
        ),
    ],
    to: Annotated[str, typer.Option(metavar="ENDPOINT", help="URL of the database that gets it.")],
    as_: Annotated[str, typer.Option("--as", metavar="NAME", help="Under another name.")] = "",
    log: _Name = "",
    master: _Master = None,
    json_: _Json = False,
) -> int:
    """Write a table as it was at a point, to the transaction.

    The table is made where it is missing, and must be empty. A restore that
    was ended goes on by the same command, at the same point.

    \b
    Examples:
      truecopy changelog restore /srv/shop-log --table orders --at 2026-01-31T12:00:00Z --to sqlite:///then.db
      truecopy changelog restore postgresql://app@db2/archive --log shop --table orders --at current \\
        --to mariadb://app@db1/shop --as orders_now
    """
    from truecopy.changelog.restore import restore as restore_table

    report = restore_table(place, table, at, to, name=as_, log=log or _CHANGES, master=master)
    if json_:
        _print_json(asdict(report))
    else:
        typer.echo(f"{report.table}: {report.rows:,} rows in {report.target}")
    return 0


@changelog_app.command()
def diff(
    place: _Log,
    table: _Table,
    at: Annotated[str, typer.Option("--at", metavar="POINT", help="The one point.")],
    and_: Annotated[str, typer.Option("--and", metavar="POINT", help="The other point.")],
    log: _Name = "",
    master: _Master = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object per row.")] = False,
) -> int:
    """Show the rows that differ between two points, with what happened to them.

    An insert, update or delete is what leads from the first point to the
    second. The exit code is 1 if there are any.

    \b
    Examples:
      truecopy changelog diff /srv/shop-log --table orders --at 2026-01-31T12:00:00Z --and current
    """
    from truecopy.changelog.diff import diff as diff_points

    count = 0
    for difference in diff_points(place, table, at, and_, log=log or _CHANGES, master=master):
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


def _task(path: str) -> Task | None:
    """The task of a file; None where a database or a keyspace is named."""
    from truecopy.stream.yaml_file import read_yaml
    from truecopy.tasks.file import load_task

    if "://" in path:
        return None
    document = read_yaml(path, "the file")
    return load_task(path) if isinstance(document, dict) and "task" in document else None


def _of_task(task: Task, to: str, log: str, *, given: bool) -> tuple[Request, str, str]:
    """What is recorded, where, and under which name."""
    from truecopy.metastore.definitions import choose_metastore
    from truecopy.spark import choose_settings
    from truecopy.tasks.changelog import log_task

    if given:
        raise UsageError(
            f"{task.path} says which tables and how: leave --tables, --shard and --set out"
        )
    choose_settings(task.spark.settings)
    if task.metastore is not None:
        choose_metastore(task.metastore)
    found = log_task(task)
    return found.request, to or found.to, log or found.log


def _microseconds(text: str) -> int:
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if match is None:
        raise UsageError(f"--keep {text}: write a number and s, m, h or d, as 30d")
    return int(match[1]) * _SECONDS[match[2]] * 1_000_000


# What is printed


def _document(store: Log) -> dict[str, Any]:
    if store.last < 0:
        raise UsageError(
            f"the log in {store.place} was not begun: truecopy changelog start goes on"
        )
    bases, files = store.bases(), store.files()
    rows: dict[str, int] = {}
    for chunk in store.chunks(bases[-1].number) if bases else ():
        rows[chunk.table] = rows.get(chunk.table, 0) + (chunk.rows or 0)
    end = store.end_of(store.last)
    ready = bool(bases) and bases[-1].ready is not None
    return {
        "source": store.word("source"),
        "running": store.is_written(),
        "restorable_from": _time(bases[-1].ready_at) if ready else None,
        "read_to": _time(max(end.slowest, int(store.word("seen_at") or 0))),
        "position": str(end.token()),
        "batches": store.last,
        "changes": sum(file.rows for file in files),
        "views": store.views,
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
