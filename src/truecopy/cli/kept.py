"""Where commands find what is kept: a server, or without one the metastore of this machine.

Without a server a process beside the command keeps tasks and suites, and outlives it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from truecopy.model.errors import UsageError

if TYPE_CHECKING:
    from truecopy.server.client import Client
    from truecopy.server.control import Control

_WIDE = 1000
WHO = "command line"
"""Who asked, where no token says it."""

Server = Annotated[
    str | None,
    typer.Option(
        envvar="TRUECOPY_SERVER",
        metavar="URL",
        help="A server to ask; TRUECOPY_TOKEN holds its token. Default: the metastore of this machine.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def client(server: str) -> Client:
    """What asks a server."""
    from truecopy.server.client import Client

    return Client(server)


def control() -> Control:
    """What does without one what a server does."""
    from truecopy.server.control import Control

    return Control()


def see_to_it() -> None:
    """Starts the keepers that are missing."""
    from truecopy.tasks.supervisor import Supervisor

    Supervisor().look()


def text_of(file: Path, what: str) -> str:
    """What a file says that is to be kept."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"cannot read the {what} {file}") from None


def table_of(*columns: str) -> Table:
    """A table of what is kept, a line each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_table(table: Table) -> None:
    """Prints it; lines stay whole for a program that reads them."""
    out = Console(highlight=False)
    if not out.is_terminal:
        out.width = _WIDE
    out.print(table)


def print_document(document: object) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
