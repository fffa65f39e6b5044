"""`truecopy task list`, `add`, `show`, `status`, `start`, `stop`, `stop-run` and `remove`: tasks that are kept."""

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

Name = Annotated[str, typer.Argument(help="The task.")]


def list_tasks(server: Server = None, json_: Json = False) -> int:
    """List the tasks that are kept, and how they stand.

    A line for each: its state, how far it is, its lag, and what its last
    verification said. Tasks that run by `truecopy run` alone are not kept.

    \b
    Examples:
      truecopy task list
      truecopy task list --server https://truecopy.example:8080 --json
    """
    found = client(server).get("/api/tasks") if server else _summaries()
    if json_:
        print_document(found)
        return 0
    table = table_of("task", "state", "phase", "rows", "changes", "rate", "lag", "verdict", "")
    for one in found:
        told = one["progress"] or {}
        lag = told.get("lag_seconds")
        table.add_row(
            escape(one["name"]),
            one["state"],
            told.get("phase") or "",
            f"{told['rows_copied']:,}" if told else "",
            f"{told['changes_applied']:,}" if told else "",
            f"{told['rate']:,.0f}/s" if told else "",
            "" if lag is None else f"{lag:.1f} s",
            one["verdict"] or "",
            escape(one["message"]),
        )
    print_table(table)
    return 0


def add_task(
    file: Annotated[Path, typer.Argument(help="The task file.")],
    start: Annotated[bool, typer.Option("--start", help="Start it at once.")] = False,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not look at both ends first.")
    ] = False,
    server: Server = None,
    json_: Json = False,
) -> int:
    """Have a task kept: started, watched and started again by its name.

    Both ends are looked at first, as `truecopy check` does. The file names
    secrets and holds none: ${NAME} is a variable where the task is kept.

    \b
    Examples:
      truecopy task add shop.yaml --start
    """
    text = text_of(file, "task file")
    asked: dict[str, Any] = {"file": text, "check": not no_check, "start": start}
    if server:
        found = client(server).post("/api/tasks", asked)
    else:
        from truecopy.server.models import NewTask

        found = control().add(NewTask(**asked), WHO).model_dump()
        see_to_it()
    if json_:
        print_document(found)
    else:
        typer.echo(f"{found['name']}: {'starts' if start else 'is there; task start begins it'}")
    return 0


def show_task(name: Name, server: Server = None) -> int:
    """Print all that is known of a task, as JSON.

    Its file, state and message, who keeps it, and its tables as the running
    process knows them. `truecopy status` asks the target instead.

    \b
    Examples:
      truecopy task show shop --server http://127.0.0.1:8080
    """
    print_document(
        client(server).get(f"/api/tasks/{name}") if server else control().detail(name).model_dump()
    )
    return 0


def task_status(name: Name, server: Server = None, json_: Json = False) -> int:
    """Show how a kept task stands, as its target knows.

    What `truecopy status` says of a task file, for a task by its name: phase,
    tables, lag and guarantee; and with it whether it is kept running.

    \b
    Examples:
      truecopy task status shop
      truecopy task status shop --server http://127.0.0.1:8080 --json
    """
    if server:
        shown, legs = (client(server).get(f"/api/tasks/{name}{end}") for end in ("", "/status"))
    else:
        plane = control()
        shown, legs = (one.model_dump() for one in (plane.detail(name), plane.status(name)))
    if json_:
        print_document({"state": shown["state"], "message": shown["message"], **legs})
        return 0
    said = f" ({shown['message']})" if shown["message"] else ""
    typer.echo(f"{name}: {shown['state']}{said}")
    for leg in legs["legs"]:
        lag = leg["lag_seconds"]
        behind = "" if lag is None else f", lag {lag:.1f} s"
        waits = f"; waits: {leg['waits']}" if leg["waits"] else ""
        typer.echo(
            f"{leg['task']}: {leg['state']}, phase {leg['phase']}, {leg['rows_copied']:,} rows copied,"
            f" {leg['changes_applied']:,} changes applied{behind}{waits}"
        )
        if leg["guarantee"]:
            typer.echo(f"guarantee: {leg['guarantee']['text']}")
    return 0


def start_task(name: Name, server: Server = None) -> int:
    """Start a task; it is started again when it ends by itself.

    A run that cannot go on is tried again, at first after a second, later
    after a minute; one that could never succeed is left, with its reason.

    \b
    Examples:
      truecopy task start shop
    """
    _want(name, "start", server)
    typer.echo(f"{name}: starts")
    return 0


def stop_task(name: Name, server: Server = None) -> int:
    """Stop a task; `task start` goes on where it stopped.

    The running process ends after the batch that it is at. Unlike after
    `truecopy pause`, no process is left that waits.

    \b
    Examples:
      truecopy task stop shop
    """
    _want(name, "stop", server)
    typer.echo(f"{name}: stops")
    return 0


def stop_run(
    run: Annotated[int, typer.Argument(help="The number of the run.", min=1)], server: Server = None
) -> int:
    """End a run of a task or of a suite: a verification, a check, queries.

    The pages tell its number, and so does `suite run`. A cutover that is under
    way ends by itself only: writers may be locked out.

    \b
    Examples:
      truecopy task stop-run 12
    """
    if server:
        client(server).post(f"/api/runs/{run}/stop")
    else:
        control().stop_run(run)
    typer.echo(f"run {run}: ends")
    return 0


def remove_task(
    name: Name,
    yes: Yes = False,
    server: Server = None,
) -> int:
    """Forget a task that has stopped, with its progress and its validation.

    What streaming made on the source goes, too. Copied rows stay, and so do
    certificates.

    \b
    Examples:
      truecopy task remove shop
    """
    if not yes:
        typer.confirm(f"Forget {name}? The copied rows stay.", abort=True, err=True)
    path = f"/api/tasks/{name}"
    for line in client(server).delete(path)["said"] if server else control().delete(name):
        typer.echo(f"removed: {line}")
    return 0


def _want(name: str, word: str, server: str | None) -> None:
    if server:
        client(server).post(f"/api/tasks/{name}/{word}")
        return
    control().want(name, "running" if word == "start" else "stopped", WHO)
    see_to_it()


def _summaries() -> list[dict[str, Any]]:
    return [one.model_dump() for one in control().summaries()]
