"""The program `truecopy`: commands, and the one place where errors become lines and exit codes."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from types import FrameType

import typer
from setproctitle import setproctitle
from typer.exceptions import TyperException

from truecopy import ending, telemetry
from truecopy import spark as spark_settings
from truecopy.cli.cache import cache
from truecopy.cli.changelog import changelog_app
from truecopy.cli.check import check
from truecopy.cli.cutover import cutover, switch_back
from truecopy.cli.delete import delete
from truecopy.cli.demo import demo
from truecopy.cli.pause import pause, resume, throttle
from truecopy.cli.progress import AS_JSON, say
from truecopy.cli.queries import queries_app
from truecopy.cli.run import run
from truecopy.cli.serve import serve_app
from truecopy.cli.status import status
from truecopy.cli.stream import stream
from truecopy.cli.suites import suite_app
from truecopy.cli.task import task_app
from truecopy.cli.tasks import (
    add_task,
    list_tasks,
    remove_task,
    show_task,
    start_task,
    stop_run,
    stop_task,
    task_status,
)
from truecopy.cli.token import token_app
from truecopy.cli.validate import validate_app
from truecopy.cli.verify import verify
from truecopy.extras import BROUGHT_BY, missing
from truecopy.model.endpoint import mask_secrets, parse_endpoint
from truecopy.model.errors import TruecopyError

_INTERRUPTED = 130  # what the command line library makes of Ctrl-C

app = typer.Typer(
    name="truecopy",
    help="Move data between databases, keep it moving, and prove that every row arrived.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(verify)
app.command()(stream)
app.command()(cache)
app.command()(check)
app.command()(run)
app.command()(cutover)
app.command()(switch_back)
app.command()(status)
app.command()(pause)
app.command()(resume)
app.command()(throttle)
app.command()(delete)
app.command()(demo)
app.add_typer(changelog_app)
app.add_typer(validate_app)
app.add_typer(queries_app)
app.add_typer(token_app)
app.add_typer(serve_app)
app.add_typer(task_app)
app.add_typer(suite_app)
task_app.command("list")(list_tasks)
task_app.command("add")(add_task)
task_app.command("show")(show_task)
task_app.command("status")(task_status)
task_app.command("start")(start_task)
task_app.command("stop")(stop_task)
task_app.command("stop-run")(stop_run)
task_app.command("remove")(remove_task)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"truecopy {version('truecopy')}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    _: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Move data between databases, keep it moving, and prove that every row arrived."""
    command = context.invoked_subcommand
    if command != "serve":  # which traces each request
        context.with_resource(telemetry.span(f"truecopy {command}"))


def main() -> None:
    """Runs a command. Exit codes: 0 equal or done, 1 differences, 2 wrong usage, 3 could not finish."""
    signal.signal(signal.SIGTERM, _terminated)
    _leave_the_process_list()
    # What libraries log beside the one line that the user gets.
    logging.getLogger().addHandler(logging.FileHandler(spark_settings.log_file(), delay=True))
    sys.exit(_run())


def _run() -> int:
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        return _fail("stopped", 3)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except TyperException as error:
        return _fail(error.format_message(), 2, " (see --help)")
    except TruecopyError as error:
        code = _fail(str(error), error.exit_code)
        error.told()
        return code
    except BrokenPipeError:
        # The reader of the output went away; nothing is left to be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 3
    except ModuleNotFoundError as error:
        if error.name not in BROUGHT_BY:
            return _fail_unexpected(error)
        return _fail(f"this command {missing(error)}", 2)
    except Exception as error:  # noqa: BLE001 - the last resort: one line for the user, the trace for us
        return _fail(why, 3) if (why := ending.reason()) else _fail_unexpected(error)
    if code == _INTERRUPTED:
        return _fail("interrupted; the same command goes on where this one stopped", 3)
    return int(code or 0)


def _fail_unexpected(error: Exception) -> int:
    log = spark_settings.log_file()
    with log.open("a", encoding="utf-8") as file:
        file.write(_masked(traceback.format_exc()))
    said = str(error).splitlines()[0] if str(error) else ""
    return _fail(f"unexpected {type(error).__name__}: {said} (the trace is in {log})", 3)


def _fail(message: str, code: int, hint: str = "") -> int:
    said = f"{_masked(message)}{hint}"
    if AS_JSON:
        say(said, "error", exit_code=code)
    else:
        typer.echo(f"truecopy: {said}", err=True)
    return code


def _leave_the_process_list() -> None:
    """Takes the secrets of a command line out of what every user of the machine can read of it."""
    typed = " ".join((sys.executable, *sys.argv))
    if (shown := _masked(typed)) != typed:
        setproctitle(shown)


def _masked(text: str) -> str:
    """The text without the secrets of any URL of the command line."""
    endpoints = []
    for word in sys.argv[1:]:
        if "://" in word:
            try:
                endpoints.append(parse_endpoint(word.removeprefix("--replica=")))
            except TruecopyError:
                continue
    return mask_secrets(text, tuple(endpoints))


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    ending.ask("terminated; the same command goes on where this one stopped")
    ending.require_none()
