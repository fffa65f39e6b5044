"""`truecopy validate`: every replicated change, checked on the target."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from truecopy.cli.output import visible
from truecopy.cli.progress import say
from truecopy.model.endpoint import mask_secrets, parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError

if TYPE_CHECKING:
    from truecopy.metastore.validation_errors import ErrorRow, ValidationErrors
    from truecopy.metastore.validations import Validations
    from truecopy.tasks.file import Task
    from truecopy.transfer.continuous.standing import Validation
    from truecopy.transfer.settings import Settings

validate_app = typer.Typer(
    name="validate",
    help="Check every replicated change on the target, beside a task of ours or any other replication.",
    no_args_is_help=True,
)

TaskFile = Annotated[Path, typer.Argument(help="The task file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Ids = Annotated[list[int] | None, typer.Argument(help="Numbers of errors.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All errors.")]
_WIDE = 1000
_ROWS_SHOWN = 50
_ERROR_COLUMNS = (
    "id",
    "table",
    "key",
    "kind",
    "status",
    "column",
    "source",
    "target",
    "since",
    "last",
)


@validate_app.callback()
def _validate() -> None:
    """Check every replicated change on the target, beside a task of ours or any other replication."""


@validate_app.command()
def start(
    task: TaskFile,
    start_: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Begin elsewhere than where it stands: current, a time, or a token. Further on, what is pending is let"
            " go; further back, it is kept.",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Serve the figures to Prometheus at this port of 127.0.0.1, at /metrics."
        ),
    ] = None,
    json_: Json = False,
) -> int:
    """Validate until stopped; the same command goes on where it stood.

    Every change of the source is looked for on the target once the replication
    has applied it; rows that stay wrong become errors. Without --from, a
    validation that is new begins with the changes from now on.

    \b
    Examples:
      truecopy validate start shop.yaml
      truecopy validate start shop.yaml --from 2026-01-31T12:00:00Z
      truecopy validate start shop.yaml --metrics-port 9100
    """
    from truecopy.tasks.validation import validation_options
    from truecopy.transfer.continuous.metrics import serving
    from truecopy.transfer.continuous.together import run_validators
    from truecopy.transfer.continuous.validator import Validator

    loaded, legs = _load(task)
    options = validation_options(loaded)
    validators = [Validator(leg, options, _teller(leg.task)) for leg in legs]
    names = [leg.task for leg in legs]
    with serving(metrics_port, names):
        run_validators(validators, start_)
    if json_:
        _print_json(_document(loaded, names), legs)
    else:
        say(f"{loaded.task}: stopped; validate start goes on")
    return 0


@validate_app.command()
def stop(task: TaskFile, json_: Json = False) -> int:
    """Stop a running validation after the check that is under way; what is pending is kept.

    It waits for that, at most a minute. One that was stopped by hand stays so
    when `truecopy run` starts the task again; `validate start` goes on with it.

    \b
    Examples:
      truecopy validate stop shop.yaml
      truecopy validate stop shop.yaml --json
    """
    import time

    from truecopy.transfer.continuous.standing import read_validation

    loaded, store, legs = _opened(task)
    for leg in legs:
        read_validation(leg.task)
        store.ask_stop(leg.task)
    deadline = time.monotonic() + 60
    for leg in legs:
        while (found := read_validation(leg.task)).state == "running":
            if time.monotonic() > deadline:
                raise CannotFinish(f"{leg.task} was asked to stop, and is still at a check")
            time.sleep(0.2)
        store.stop(leg.task, found.standing.message)
        if not json_:
            typer.echo(f"{leg.task}: stopped")
    if json_:
        _print_json(_document(loaded, [leg.task for leg in legs]), legs)
    return 0


@validate_app.command()
def status(
    task: TaskFile,
    json_: Json = False,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print the figures as Prometheus reads them.")
    ] = False,
) -> int:
    """Show how a validation stands: what was checked, what is pending, errors, and each table.

    The metastore is asked, so it does not matter whether the validation runs.
    A table that cannot be validated says why; the others go on.

    \b
    Examples:
      truecopy validate status shop.yaml
      truecopy validate status shop.yaml --json
      truecopy validate status shop.yaml --prometheus
    """
    from truecopy.transfer.continuous import standing

    loaded, legs = _load(task)
    names = [leg.task for leg in legs]
    found = [standing.read_validation(name) for name in names]
    if prometheus:
        sys.stdout.write(standing.prometheus(found))
    elif json_:
        _print_json(_document(loaded, names), legs)
    else:
        out = _console()
        for one in found:
            for line in _described(one):
                out.print(mask_secrets(line, _secrets(legs)), soft_wrap=True)
            out.print(_tables(one))
    return 0


@validate_app.command()
def errors(
    task: TaskFile,
    only: Annotated[
        list[str] | None,
        typer.Option("--status", help="new, ignored or resolved; may be given again."),
    ] = None,
    json_: Json = False,
) -> int:
    """List the rows that are wrong on the target, with both values. Exit code 1 where one of them is new.

    An error is a row that was wrong for the task's row-error-delay: missing,
    extra, or different. It is watched on, and resolves itself when the target
    comes right.

    \b
    Examples:
      truecopy validate errors shop.yaml
      truecopy validate errors shop.yaml --status new --json
    """
    from truecopy.metastore.validation_errors import NEW, STATUSES
    from truecopy.transfer.continuous.standing import plain_error

    for one in only or ():
        if one not in STATUSES:
            raise UsageError(f"--status {one}: write {', '.join(STATUSES)}")
    _, store, legs = _opened(task)
    found = [error for leg in legs for error in store.errors.of(leg.task, only or STATUSES)]
    if json_:
        _print_json([plain_error(error) for error in found], legs)
    else:
        _print_errors(found)
    return int(any(error.status == NEW for error in found))


@validate_app.command()
def ignore(task: TaskFile, ids: Ids = None, all_: All = False, json_: Json = False) -> int:
    """Have errors counted as ignored; they are still watched, and resolve themselves.

    For rows that are known to differ and may. An ignored error no longer
    makes `validate errors` end with 1.

    \b
    Examples:
      truecopy validate ignore shop.yaml 17 18
      truecopy validate ignore shop.yaml --all
    """
    return _change(task, ids, all_, json_, "ignored", lambda errors: errors.ignore)


@validate_app.command()
def resolve(task: TaskFile, ids: Ids = None, all_: All = False, json_: Json = False) -> int:
    """Take errors for settled; their rows are looked at again when they change.

    For rows that were brought right by hand, or do not matter. An error that
    comes right by itself is resolved without this.

    \b
    Examples:
      truecopy validate resolve shop.yaml 17 18
      truecopy validate resolve shop.yaml --all
    """
    return _change(task, ids, all_, json_, "resolved", lambda errors: errors.resolve)


@validate_app.command()
def clear(task: TaskFile, ids: Ids = None, all_: All = False, json_: Json = False) -> int:
    """Remove errors from the record; their rows are looked at again when they change.

    Unlike a resolved error, one that is cleared is not listed any more.

    \b
    Examples:
      truecopy validate clear shop.yaml 17 18
      truecopy validate clear shop.yaml --all
    """
    return _change(task, ids, all_, json_, "cleared", lambda errors: errors.clear)


@validate_app.command()
def recheck(task: TaskFile, ids: Ids = None, all_: All = False, json_: Json = False) -> int:
    """Have errors looked at now; a validation that is stopped does it when it starts.

    Errors are looked at again at growing intervals, up to an hour. This does
    it at once, for instance after a repair by hand.

    \b
    Examples:
      truecopy validate recheck shop.yaml 17 18
      truecopy validate recheck shop.yaml --all
    """
    return _change(task, ids, all_, json_, "to be looked at again", lambda errors: errors.recheck)


@validate_app.command()
def repair(
    task: TaskFile,
    ids: Ids = None,
    all_: All = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Run the statements on the target.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the statements to a file.")
    ] = None,
    json_: Json = False,
) -> int:
    """Print, write or run the statements that bring the rows of errors right.

    Without numbers: all errors that are new. Both sides are read again; the
    source's row counts. Nothing is run without --apply.

    \b
    Examples:
      truecopy validate repair shop.yaml
      truecopy validate repair shop.yaml -o repair.sql
      truecopy validate repair shop.yaml 17 18 --apply
    """
    from truecopy.tasks.steering import repair_errors

    if apply and output is not None:
        raise UsageError("--apply runs the statements, --output writes them: take one of the two")
    loaded, legs = _load(task)
    count, text = repair_errors(loaded, ids, all_open=all_, apply=apply)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if json_:
        _print_json({"statements": count, "applied": apply, "script": text or None}, legs)
    elif apply or output is not None:
        done = "run" if apply else f"written to {output}"
        typer.echo(f"{count} statements {done}")
    else:
        sys.stdout.write(text)
    return 0


def _load(path: Path) -> tuple[Task, tuple[Settings, ...]]:
    from truecopy.metastore.database import choose_metastore
    from truecopy.tasks.file import load_task
    from truecopy.tasks.validation import validation_legs

    loaded = load_task(path)
    if loaded.metastore is not None:
        choose_metastore(loaded.metastore)
    return loaded, validation_legs(loaded)


def _opened(path: Path) -> tuple[Task, Validations, tuple[Settings, ...]]:
    from truecopy.metastore.validations import Validations

    loaded, legs = _load(path)
    return loaded, Validations(), legs


def _change(
    path: Path,
    ids: list[int] | None,
    all_: bool,
    json_: bool,
    word: str,
    how: Callable[[ValidationErrors], Callable[[str, list[int] | None], int]],
) -> int:
    if bool(ids) == all_:
        raise UsageError("name errors by their numbers, or all of them with --all")
    loaded, store, legs = _opened(path)
    if ids:
        _require_known(ids, store, legs)
    count = sum(how(store.errors)(leg.task, ids or None) for leg in legs)
    if json_:
        _print_json({"task": loaded.task, "errors": count}, legs)
    else:
        typer.echo(f"{count} {word}")
    return 0


def _require_known(ids: list[int], store: Validations, legs: tuple[Settings, ...]) -> None:
    known = {error.id for leg in legs for error in store.errors.of(leg.task, ids=ids)}
    if unknown := [str(number) for number in ids if number not in known]:
        raise UsageError(f"no such error: {', '.join(unknown)}; see truecopy validate errors")


def _teller(name: str) -> Callable[[str], None]:
    return lambda line: say(f"{name}: {line}")


def _secrets(legs: tuple[Settings, ...]) -> tuple[Any, ...]:
    return tuple(parse_endpoint(end) for leg in legs for end in (leg.source, leg.target))


def _document(task: Task, names: list[str]) -> object:
    from truecopy.transfer.continuous.standing import read_validation

    plain = [read_validation(name).plain() for name in names]
    return plain[0] if len(plain) == 1 else {"task": task.task, "legs": plain}


def _print_json(document: object, legs: tuple[Settings, ...]) -> None:
    text = json.dumps(document, ensure_ascii=False)
    sys.stdout.write(f"{mask_secrets(text, _secrets(legs))}\n")


def _console() -> Console:
    out = Console(highlight=False)
    if not out.is_terminal:
        out.width = _WIDE  # a reader of lines gets whole lines
    return out


def _described(one: Validation) -> Iterator[str]:
    standing, pending = one.standing, one.pending
    colour = "green" if one.state == "running" else "yellow"
    yield f"[bold]{escape(standing.task)}[/]: [{colour}]{one.state}[/], {standing.mode}"
    if one.message:
        yield escape(one.message)
    if waits := standing.report.get("waits"):
        yield escape(str(waits))
    for word, counts in (
        ("processed", standing.processed),
        ("pending", pending.rows),
        ("failed", pending.failed),
    ):
        listed = ", ".join(f"{count:,} {kind}s" for kind, count in counts.items())
        yield f"{word}: {listed}"
    yield "errors: " + ", ".join(f"{count:,} {status}" for status, count in one.errors.items())
    if one.lag_seconds is not None:
        caught = "" if standing.caught_up else ", has not caught up so far"
        yield f"lag: {one.lag_seconds:.1f} s{caught}"


def _tables(one: Validation) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("table", "stage", "message"):
        table.add_column(name, overflow="fold")
    for stage in one.tables.values():
        table.add_row(escape(stage.name), stage.stage, escape(stage.message))
    return table


def _print_errors(found: list[ErrorRow]) -> None:
    from truecopy.transfer.continuous.standing import moment

    out = _console()
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in _ERROR_COLUMNS:
        shown.add_column(name, overflow="fold")
    for error in found[:_ROWS_SHOWN]:
        first = (str(error.id), error.table, _named(error.key), error.kind, error.status)
        times = (moment(error.first_failed_at) or "", moment(error.last_failed_at) or "")
        for at, values in enumerate(_values(error)):
            cells = (*first, *values, *times) if at == 0 else (*[""] * 5, *values, "", "")
            shown.add_row(*map(escape, cells))
    out.print(shown)
    if len(found) > _ROWS_SHOWN:
        out.print(f"… and {len(found) - _ROWS_SHOWN:,} more: see --json", style="dim")


def _values(error: ErrorRow) -> Iterator[tuple[str, ...]]:
    """Columns with both values; of a row that only one side has, the whole of it."""
    sides = error.source, error.target
    if not error.columns:
        yield "", *("no row" if side is None else _named(side) for side in sides)
    for column in error.columns:
        yield column, *(visible((side or {}).get(column)) for side in sides)


def _named(values: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={visible(value)}" for name, value in values.items())
