"""`truecopy token`: which of two Event Tokens is older, and what is in one."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from typing import Annotated

import typer

from truecopy.model.errors import UsageError
from truecopy.model.position import Comparison
from truecopy.model.token import (
    CLOCK_BOUND,
    EventToken,
    KeyspacePosition,
    compare_keyspace_positions,
    compare_tokens,
    parse_any,
)
from truecopy.stream.request import Request

token_app = typer.Typer(
    name="token",
    help="Compare Event Tokens, and show what is in them.",
    no_args_is_help=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@token_app.command()
def now(
    endpoint: Annotated[
        str, typer.Argument(help="URL of a database, or the path of a keyspace file.")
    ],
    shard: Annotated[
        str, typer.Option(metavar="NAME", help="The name that the token carries.")
    ] = "",
    json_: Json = False,
) -> int:
    """Print the token of the end of the log now: everything committed before is before it.

    Keep it, and `truecopy stream --from TOKEN` gives what was committed after
    this moment, whenever it is asked.

    \b
    Examples:
      truecopy token now mariadb://repl@db1/shop
      truecopy token now shop-keyspace.yaml --json
    """
    from truecopy.stream.keyspace import (
        KeyspaceStream,
    )  # other commands need not wait for what it loads

    with KeyspaceStream(Request(endpoint, shard=shard)) as stream:
        position = stream.current().token()
    found = position if len(position.tokens) > 1 else position.tokens[0]
    if json_:
        _print_json(_plain(found))
    else:
        typer.echo(str(found))
    return 0


@token_app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A token, as a stream prints it.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The token to compare it to.")],
    clock_bound: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="How far apart the clocks of two shards may be."
        ),
    ] = CLOCK_BOUND.total_seconds(),
    json_: Json = False,
) -> int:
    """Print what A is compared to B: OLDER, SAME, NEWER or UNKNOWN.

    Tokens of one shard are compared by their positions, those of different
    shards by their times, as far as clocks can be trusted; UNKNOWN where they
    cannot. Do not sort by it: across shards the answers are not transitive.

    \b
    Examples:
      truecopy token compare "$A" "$B"
      truecopy token compare "$A" "$B" --clock-bound 0.5
    """
    answer = _compare(parse_any(a), parse_any(b), timedelta(seconds=clock_bound))
    if json_:
        _print_json({"comparison": str(answer), "a": a.strip(), "b": b.strip()})
    else:
        typer.echo(answer)
    return 0


@token_app.command()
def explain(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Of a shard or of a keyspace.")],
    json_: Json = False,
) -> int:
    """Show the shard, the commit time, the position and the origin that a token stands for.

    A token is one word, made for programs to keep. This is what is in it, for
    people.

    \b
    Example:
      truecopy token explain "$(truecopy token now mariadb://repl@db1/shop)"
    """
    found = parse_any(token)
    if json_:
        _print_json(_plain(found))
        return 0
    tokens = found.tokens if isinstance(found, KeyspacePosition) else (found,)
    typer.echo("\n\n".join(_text(one) for one in tokens))
    return 0


def _compare(
    a: EventToken | KeyspacePosition, b: EventToken | KeyspacePosition, clock_bound: timedelta
) -> Comparison:
    match a, b:
        case EventToken(), EventToken():
            return compare_tokens(a, b, clock_bound)
        case KeyspacePosition(), KeyspacePosition():
            return compare_keyspace_positions(a, b)
    raise UsageError("one token is a shard's and the other a keyspace's: compare two of a kind")


def _plain(found: EventToken | KeyspacePosition) -> dict[str, object]:
    if isinstance(found, KeyspacePosition):
        return {"tokens": [_plain(token) for token in found.tokens]}
    origin = found.origin and {
        "shard": found.origin.shard,
        "position": str(found.origin.position),
    }
    return {
        "token": str(found),
        "shard": found.shard,
        "committed_at": _time(found.time),
        "position": str(found.position),
        "origin": origin,
    }


def _text(token: EventToken) -> str:
    lines = {
        "shard": token.shard,
        "committed at": _time(token.time) or "not known",
        "position": str(token.position) or "the beginning",
    }
    if token.origin is not None:
        lines["origin shard"] = token.origin.shard
        lines["origin position"] = str(token.origin.position) or "the beginning"
    # Not a table of rich, which would fold a long position.
    return "\n".join(f"{name:<15}  {value}" for name, value in lines.items())


def _time(at: datetime | None) -> str | None:
    return at.isoformat(timespec="microseconds") if at else None


def _print_json(document: dict[str, object]) -> None:
    json.dump(document, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")
