"""`truecopy task`: task files, and the tasks that they describe."""

from __future__ import annotations

import json
import sys

import typer

task_app = typer.Typer(
    name="task", help="Task files, and the tasks that they describe.", no_args_is_help=True
)


@task_app.callback()
def _task() -> None:
    """Task files, and the tasks that they describe."""


@task_app.command()
def schema() -> int:
    """Print the JSON Schema of task files, for editors and for other programs.

    Editors that know YAML complete keys and mark mistakes where a task file
    begins with the line `# yaml-language-server: $schema=./task.schema.json`.

    \b
    Example:
      truecopy task schema > task.schema.json
    """
    from truecopy.tasks.file import task_schema

    json.dump(task_schema(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
    return 0
