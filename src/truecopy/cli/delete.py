"""`truecopy delete`: forget a task and its validation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from truecopy.model.endpoint import mask_secrets, parse_endpoint


def delete(
    task: Annotated[Path, typer.Argument(help="The task file.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Forget a task: its progress, its validation, and what streaming made on the source. Rows stay.

    It asks first, and prints what it removed: tables of its own in the target,
    slots, publications and triggers on both sides, what verifiers kept. A task
    of the same name begins anew afterwards.

    \b
    Examples:
      truecopy delete shop.yaml
      truecopy delete shop.yaml --yes
      truecopy delete shop.yaml --yes --json
    """
    from truecopy.tasks.file import load_task
    from truecopy.tasks.validation import validation_legs
    from truecopy.transfer.deletion import delete_task

    loaded = load_task(task)
    legs = validation_legs(loaded)
    if not yes:
        typer.confirm(
            f"Forget {loaded.task}, its progress and its validation? The copied rows stay.",
            abort=True,
            err=True,
        )
    removed = list[str]()
    for leg in legs:
        secrets = parse_endpoint(leg.source), parse_endpoint(leg.target)
        for line in delete_task(leg):
            removed.append(mask_secrets(line, secrets))
            if not json_:
                typer.echo(f"removed: {removed[-1]}")
    if json_:
        typer.echo(json.dumps({"task": loaded.task, "removed": removed}, ensure_ascii=False))
    return 0
