"""`truecopy cache`: keeps a cache true to a database, by invalidating what changes."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from truecopy.cli.progress import ERRORS, say
from truecopy.cli.stream import end_as_by_keyboard, engine_settings
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.keyspace import parse_key_range
from truecopy.stream.log import LogGone
from truecopy.stream.request import ENGINE_SETTINGS, Request, parse_point

if TYPE_CHECKING:
    from truecopy.cache.invalidation import Counts
    from truecopy.cache.objects import Objects

WHAT, WHERE = "What to invalidate", "From where to where"
_BITE = 4 << 20
_TURN = 0.05
"""Seconds that an idle stream waits for news at a time: so soon an interrupt is heard."""


def cache(
    endpoint: Annotated[
        str, typer.Argument(help="URL of a database, or the path of a keyspace file.")
    ],
    store: Annotated[
        str, typer.Argument(metavar="CACHE", help="redis://HOST:PORT/0, memcached://HOST:PORT.")
    ],
    objects: Annotated[
        list[str],
        typer.Option(
            "--object",
            "-o",
            metavar="TABLE=KEY",
            rich_help_panel=WHAT,
            help="Which object a row is part of, by columns: 'orders=customer:{customer_id}'; repeatable.",
        ),
    ],
    key_range: Annotated[
        str,
        typer.Option(
            metavar="RANGE", rich_help_panel=WHAT, help="Part of a keyspace: -40, 40-80, 80-."
        ),
    ] = "-",
    shard: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=WHAT,
            help="The name that tokens carry; the same as for readers. Default: the database's name.",
        ),
    ] = "",
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=WHERE,
            help="Remember there how far it is; the same command goes on where it stopped.",
        ),
    ] = None,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POINT",
            rich_help_panel=WHERE,
            help="Without a checkpoint: start, current, a token, a time, or so long ago (90s, 15m, 2h).",
        ),
    ] = "60s",
    until: Annotated[
        str,
        typer.Option(
            metavar="POINT",
            rich_help_panel=WHERE,
            help="never, or current: what is committed by now.",
        ),
    ] = "never",
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Work in tasks of this Spark master, not in this process."
        ),
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
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON document in the end.")
    ] = False,
) -> int:
    """Invalidate what is cached of rows that change, as they change.

    Follows the stream of a database and stores the token of each change in
    the place of what the change has made old. Readers that use the
    read-through client of truecopy.cache fill the cache again, never with what
    a lagging replica says.

    \b
    Examples:
      truecopy cache mariadb://repl@db1/shop redis://cache1/0 --object 'orders=order:{id}'
      truecopy cache shop-keyspace.yaml redis://cache1/0 --key-range=-80 --checkpoint /var/lib/shop-cache \\
        --object 'orders=customer:{customer_id}' --object 'customers=customer:{id}'
    """
    if until not in ("current", "never"):
        raise UsageError("--until is current or never")
    if store.startswith("memory://"):
        raise UsageError(
            "memory:// is the cache of one process: follow the stream there, or use Redis"
        )
    chosen = _objects(objects)
    request = Request(
        endpoint,
        shard=shard,
        tables=tuple(chosen.templates),
        key_range=parse_key_range(key_range),
        max_bytes=_BITE,
        wait=_TURN,
        settings=engine_settings(set_ or []),
    )
    request = _keys_only(request, chosen)
    start = _start(from_)
    began = time.monotonic()
    if master is not None:
        counts = _by_spark(request, store, chosen, start, checkpoint, master, until == "current")
    else:
        counts = _here(request, store, chosen, start, checkpoint, until == "current")
    if json_:
        json.dump({**asdict(counts), "seconds": round(time.monotonic() - began, 3)}, sys.stdout)
        sys.stdout.write("\n")
    return 0


def _objects(given: list[str]) -> Objects:
    from truecopy.cache.objects import Objects

    templates: dict[str, tuple[str, ...]] = {}
    for pair in given:
        table, separator, template = pair.partition("=")
        if not separator or not table or not template:
            raise UsageError(f"--object {pair}: write TABLE=KEY, such as 'orders=order:{{id}}'")
        templates[table] = (*templates.get(table, ()), template)
    return Objects(templates)


def _start(text: str) -> str:
    """A point of the stream; a length of time is as long ago."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    if text[:-1].isdecimal() and text[-1:] in units:
        ago = timedelta(seconds=int(text[:-1]) * units[text[-1]])
        return (datetime.now(UTC) - ago).isoformat()
    parse_point(text, ("start", "current"))
    return text


def _keys_only(request: Request, objects: Objects) -> Request:
    """Keys are enough where the objects are addressed by parts of them."""
    from truecopy.cache.objects import needs_rows
    from truecopy.engines.protocols import Introspects
    from truecopy.engines.registry import connect

    server = request.keyspace().serving[0].servers[0]
    keys: dict[str, tuple[str, ...]] = {}
    with connect(parse_endpoint(server)) as session:
        if not isinstance(session, Introspects):
            return request
        for table in objects.templates:
            found = session.find(table)
            if found is None:
                raise UsageError(f"there is no table {table} on {parse_endpoint(server)}")
            unique = session.describe(found).keys
            keys[table] = unique[0] if unique else ()
    return replace(request, keys_only=not needs_rows(objects, keys))


def _here(
    request: Request, store: str, objects: Objects, start: str, folder: Path | None, once: bool
) -> Counts:
    from truecopy.cache.follow import Checkpoint, Following
    from truecopy.cache.store import open_cache

    opened = open_cache(store)
    saved = Checkpoint(folder / "position") if folder else None
    point = parse_point(start, ("start", "current"))
    try:
        opening = Following(request, opened, objects, point, saved)
    except LogGone as error:
        raise CannotFinish(
            f"{error}; what changed since then cannot be invalidated: clear the cache, and start with --from current"
            " and a new --checkpoint"
        ) from None
    end_as_by_keyboard()
    with opening as following:
        show = _Progress()
        try:
            following.run(Event(), until_current=once, listener=show.counted)
        except (KeyboardInterrupt, CannotFinish) as error:
            # What is done is done: the same command goes on behind it.
            if saved:
                saved.write(str(following.offset.token()))
            if isinstance(error, KeyboardInterrupt):
                raise CannotFinish(
                    f"interrupted; to go on: --from {following.offset.token()}"
                ) from None
            raise
        finally:
            opened.close()
        return following.counts


def _by_spark(
    request: Request,
    store: str,
    objects: Objects,
    start: str,
    folder: Path | None,
    master: str,
    once: bool,
) -> Counts:
    from truecopy.cache.spark import invalidate_by_spark

    if folder is None:
        raise UsageError("--master needs --checkpoint: Spark keeps there where it is")
    if store.startswith("memory://"):
        raise UsageError(
            "memory:// is a cache of one process, which Spark's tasks are not: use Redis"
        )
    return invalidate_by_spark(request, store, objects, start, folder / "spark", master, once=once)


class _Progress:
    """A line now and then, where somebody looks."""

    def __init__(self) -> None:
        self._said_at = time.monotonic()

    def counted(self, counts: Counts) -> None:
        now = time.monotonic()
        if ERRORS.is_terminal and now - self._said_at > 5:
            self._said_at = now
            say(
                f"{counts.changes:,} changes: {counts.stored:,} invalidated, {counts.kept:,} kept as newer"
            )
