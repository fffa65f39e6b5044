"""`truecopy suite`: suites of queries that are kept, and run by their name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from truecopy.cli.kept import (
    WHO,
    Json,
    Server,
    Yes,
    client,
    control,
    print_document,
    print_table,
    see_to_it,
    table_of,
    text_of,
)

suite_app = typer.Typer(
    name="suite",
    help="Suites of queries that are kept, run by their name, and seen on the pages.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="The suite.")]
_PATH = "/api/suites"
_ENDINGS = {0: "done", 1: "differences", 2: "failed", 3: "did not finish"}
"""By the exit code of the run."""


@suite_app.command("list")
def list_suites(server: Server = None, json_: Json = False) -> int:
    """List the suites that are kept, and what their last run came to.

    Suites that run by `truecopy queries run` alone are not kept.

    \b
    Examples:
      truecopy suite list
      truecopy suite list --server https://truecopy.example:8080 --json
    """
    found = (
        client(server).get(_PATH)
        if server
        else [suite.model_dump() for suite in control().suites()]
    )
    if json_:
        print_document(found)
        return 0
    table = table_of("suite", "last run", "state", "")
    for suite in found:
        run = suite["last"]
        table.add_row(
            escape(suite["name"]),
            str(run["id"]) if run else "",
            _word(run),
            escape(_counts(run) or run["message"]) if run else "",
        )
    print_table(table)
    return 0


@suite_app.command("add")
def add_suite(
    name: Name,
    file: Annotated[Path, typer.Argument(help="The suite's file, which names both ends.")],
    server: Server = None,
) -> int:
    """Have a suite kept: run by its name, its answers seen on the pages.

    The file is one of `truecopy queries run`. It names secrets and holds none:
    ${NAME} is a variable where the suite is kept.

    \b
    Examples:
      truecopy suite add reports reports.yaml
    """
    text = text_of(file, "suite file")
    if server:
        client(server).post(_PATH, {"name": name, "file": text})
    else:
        control().add_suite(name, text, WHO)
    typer.echo(f"{name}: is there; suite run runs it")
    return 0


@suite_app.command("run")
def run_suite(name: Name, server: Server = None) -> int:
    """Run a suite, in a process of its own; `suite show` tells what came of it.

    Both ends are asked as by `truecopy queries run`, where the suite is kept,
    and the answers are on the pages. `truecopy task stop-run` ends it.

    \b
    Examples:
      truecopy suite run reports
    """
    if server:
        number = client(server).post(f"{_PATH}/{name}/run")["id"]
    else:
        number = control().run_suite(name, WHO).id
        see_to_it()
    typer.echo(f"{name}: runs, run {number}")
    return 0


@suite_app.command("show")
def show_suite(name: Name, server: Server = None) -> int:
    """Print a suite with its last run, as JSON.

    Its file, who made it, and of the last run how it ended, when, and how many
    queries succeeded, failed or were skipped.

    \b
    Examples:
      truecopy suite show reports --server http://127.0.0.1:8080
    """
    print_document(
        client(server).get(f"{_PATH}/{name}") if server else control().suite(name).model_dump()
    )
    return 0


@suite_app.command("remove")
def remove_suite(name: Name, yes: Yes = False, server: Server = None) -> int:
    """Forget a suite that does not run, with its results.

    It asks first, and refuses while the suite runs. Nothing on either end
    changes: scratch tables went with each query.

    \b
    Examples:
      truecopy suite remove reports
    """
    if not yes:
        typer.confirm(f"Forget {name} and its results?", abort=True, err=True)
    if server:
        client(server).delete(f"{_PATH}/{name}")
    else:
        control().delete_suite(name)
    typer.echo(f"removed: the suite {name}")
    return 0


def _word(run: dict[str, Any] | None) -> str:
    if run is None:
        return "not run so far"
    if run["state"] != "ended":
        return "under way" if run["state"] == "running" else "asked for"
    return _ENDINGS.get(run["exit_code"], "stopped")


def _counts(run: dict[str, Any]) -> str:
    statuses = (run["result"] or {}).get("statuses") or {}
    return ", ".join(f"{n} {word.lower().replace('_', ' ')}" for word, n in statuses.items())
