"""`truecopy stream`: every committed change of a database or a keyspace, as it happens."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from truecopy.cli.output import visible
from truecopy.cli.progress import say
from truecopy.model.change import HEARTBEAT, TRUNCATE
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.keyspace import parse_key_range
from truecopy.stream.request import ENGINE_SETTINGS, Request, parse_point
from truecopy.stream.resharding import Resharded

if TYPE_CHECKING:
    from truecopy.stream.follow import Change

WHAT, WHERE, SHAPE = "What to stream", "From where to where", "Result"
_COLOURS = {"insert": "green", "update": "yellow", "delete": "red", "truncate": "bold red"}
# A person wants to see the first change at once; the Spark source takes larger bites.
_BITE = 4 << 20


def stream(
    endpoint: Annotated[
        str, typer.Argument(help="URL of a database, or the path of a keyspace file.")
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--tables",
            "-t",
            metavar="NAMES",
            rich_help_panel=WHAT,
            help="Names or patterns such as 'sales_*', separated by commas; repeatable. Default: all.",
        ),
    ] = None,
    key_range: Annotated[
        str,
        typer.Option(
            metavar="RANGE",
            rich_help_panel=WHAT,
            help="Part of a keyspace: -40, 40-80, 80-. Whole shards as they are, others row by row.",
        ),
    ] = "-",
    keys_only: Annotated[
        bool,
        typer.Option("--keys-only", rich_help_panel=WHAT, help="Keys without the rows' values."),
    ] = False,
    shard: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=WHAT,
            help="The name that tokens carry; the same for a primary and its replicas. Default: the database's name.",
        ),
    ] = "",
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POINT",
            rich_help_panel=WHERE,
            help="start, current, a token, or a time such as 2026-01-31T12:00:00Z.",
        ),
    ] = "current",
    until: Annotated[
        str,
        typer.Option(
            metavar="POINT",
            rich_help_panel=WHERE,
            help="never, current (what is committed by now), a token, or a time.",
        ),
    ] = "never",
    stop_on_reshard: Annotated[
        bool,
        typer.Option(
            "--stop-on-reshard",
            rich_help_panel=WHERE,
            help="End when the serving shards change, instead of following them.",
        ),
    ] = False,
    heartbeat: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            rich_help_panel=SHAPE,
            help="Say at this interval that an idle stream is alive; 0: never.",
        ),
    ] = 0,
    json_: Annotated[
        bool, typer.Option("--json", rich_help_panel=SHAPE, help="One JSON object per change.")
    ] = False,
    parquet: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=SHAPE,
            help="Write Parquet files by Spark, exactly once; the same command goes on where it stopped.",
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", rich_help_panel=SHAPE, help="Spark master, with --parquet."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            rich_help_panel=WHAT,
            help=f"A setting of the engine; repeatable. Known: {', '.join(ENGINE_SETTINGS)}.",
        ),
    ] = None,
    drop: Annotated[
        bool,
        typer.Option(
            "--drop",
            rich_help_panel=WHAT,
            help="Remove what streaming made on the source (slot, publication, triggers), and end.",
        ),
    ] = False,
) -> int:
    """Show every committed change, with a token to come back to.

    Changes are read from the database's own log and shown as they happen, a
    transaction at a time, until --until. Interrupted, it says from which token
    to go on. --json prints one change per line for other programs, --parquet
    writes files.

    \b
    Examples:
      truecopy stream mariadb://repl@db1/shop
      truecopy stream 'postgresql://repl:${PW}@db1/shop' --from start --until current --json
      truecopy stream shop-keyspace.yaml --key-range 40-80 --tables orders
      truecopy stream mariadb://repl@db1/shop --parquet changes/
    """
    request = Request(
        endpoint,
        shard=shard,
        tables=tuple(name for given in tables or () for name in given.split(",") if name),
        key_range=parse_key_range(key_range),
        keys_only=keys_only,
        heartbeat=heartbeat,
        stop_on_reshard=stop_on_reshard,
        max_bytes=_BITE,
        settings=engine_settings(set_ or []),
    )
    if drop:
        return _drop(request)
    start = parse_point(from_, ("start", "current"))
    end = parse_point(until, ("current", "never"))
    if parquet is not None:
        from truecopy.stream.parquet import write_parquet

        if end not in ("current", "never"):
            raise UsageError("--parquet ends at --until current or never")
        write_parquet(request, from_, parquet, master, once=end == "current")
        return 0
    printer = _print_json if json_ else _Log().print
    from truecopy.stream.follow import Following  # other commands need not wait for what it loads

    end_as_by_keyboard()
    with Following(request, start, end) as following:
        for line in following.warnings:
            say(line)
        try:
            for change in following.changes():
                printer(change)
        except Resharded as resharded:
            say(str(resharded))
        except KeyboardInterrupt:
            raise CannotFinish(
                f"interrupted; to go on: --from {following.offset.token()}"
            ) from None
        except CannotFinish as error:
            raise CannotFinish(f"{error}; to go on: --from {following.offset.token()}") from None
    return 0


def end_as_by_keyboard() -> None:
    """Has SIGTERM end a program that follows a log: an error would pass for a lost server, which is waited for."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def engine_settings(given: list[str]) -> dict[str, str]:
    """What `--set` says."""
    settings = {}
    for pair in given:
        name, separator, value = pair.partition("=")
        if not separator or name not in ENGINE_SETTINGS:
            raise UsageError(
                f"--set {pair}: write NAME=VALUE with one of {', '.join(ENGINE_SETTINGS)}"
            )
        settings[name] = value
    return settings


def _drop(request: Request) -> int:
    from truecopy.stream.removal import remove

    for line in remove(request):
        say(line)
    return 0


def _print_json(change: Change) -> None:
    json.dump(change, sys.stdout, ensure_ascii=False, default=_plain)
    sys.stdout.write("\n")
    sys.stdout.flush()


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    raise TypeError(type(value).__name__)


class _Log:
    """Changes as lines of a log: a line per change, and the transaction named where it begins."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._transaction: tuple[Any, ...] = ()

    def print(self, change: Change) -> None:
        if change["kind"] == HEARTBEAT:
            self._console.print(
                Text(f"{_clock(change)}  idle at {change['position']}", style="dim")
            )
            return
        transaction = change["shard"], change["txn"]
        if transaction != self._transaction:
            self._transaction = transaction
            origin = f"  from {change['origin']}" if change["origin"] else ""
            head = f"{_clock(change)}  {change['shard']}  {change['txn']}{origin}"
            self._console.print(Text(head, style="dim"))
        self._console.print(Text.assemble("  ", *_line(change)))


def _clock(change: Change) -> str:
    moment = change["committed_at"]
    return moment.strftime("%Y-%m-%d %H:%M:%S") if moment else "time not known"


def _line(change: Change) -> Iterator[tuple[str, str]]:
    kind = change["kind"]
    yield f"{kind:<8} ", _COLOURS.get(kind, "")
    yield change["table"] or "", "bold"
    if kind == TRUNCATE:
        return
    for name, text in (change["key"] or {}).items():
        yield f"  {name}={visible(text)}", "cyan"
    before, after = change["before"] or {}, change["after"] or {}
    for name, text in (after or before).items():
        if name in (change["key"] or {}):
            continue
        if not before or not after:
            yield f"  {name}=", "dim"
            yield visible(text), ""
        elif before.get(name) != text:
            yield f"  {name}: ", "dim"
            yield visible(before.get(name)), "red"
            yield " → ", "dim"
            yield visible(text), "green"
